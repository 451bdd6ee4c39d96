"""A real llama.cpp server behind the real sidecar: what was said of every stall, held against the server's own log."""

from __future__ import annotations

import pytest
from tests.real.llamacpp.scenarios import SCENARIOS, SEEN, STOPPED, UNSEEN
from tests.real.sidecar import Sidecar
from tests.real.truth.outcome import Outcome, table, together

from prefillwatch.contract.causes import ENGINE_PAUSE, PREFILL

#: Of stall seconds. A scenario has 6 to 40 of them, and each gap counts for six streams at once: one that the log does
#: not explain, or that is left unattributed while the server reads on for a client that left, is up to a sixth.
LEAST_SHARE = 0.85
LEAST_SHARE_OF_ONE_SCENARIO = 0.7
LEAST_RIGHT_NAMES = 0.9
#: Milliseconds. A machine of its own gives steps of 5 to 10 ms.
SLOWEST_PACE = 40.0
Outcomes = dict[str, Outcome]


def judged(played: Outcomes, name: str) -> Outcome:
    """What was played, if the machine let the engine run."""
    found = played[name]
    if found.pace_ms > SLOWEST_PACE:
        pytest.skip(f"{name}: the engine took {found.pace_ms:.0f} ms for a step; this machine is too busy to judge by")
    return found


@pytest.mark.parametrize("name", [each.name for each in SCENARIOS])
def test_the_scenario_made_what_it_is_for(played: Outcomes, name: str) -> None:
    outcome = judged(played, name)
    assert outcome.true_stalls[outcome.scenario.cause], f"true stalls: {dict(outcome.true_stalls)}"


@pytest.mark.parametrize("name", [each.name for each in SEEN])
def test_stalls_of_prompts_are_called_so_and_name_them(played: Outcomes, name: str) -> None:
    found = judged(played, name).confusion
    assert found.precision >= LEAST_SHARE_OF_ONE_SCENARIO, table(found)
    assert found.recall >= LEAST_SHARE_OF_ONE_SCENARIO, table(found)
    assert found.seconds[PREFILL, ENGINE_PAUSE] <= (1 - LEAST_SHARE) * found.really_in_prefill, table(found)
    assert found.membership >= LEAST_RIGHT_NAMES, table(found)


def test_prompts_that_went_past_us_are_nobodys_and_no_pause(played: Outcomes) -> None:
    found = judged(played, UNSEEN.name).confusion
    assert found.seconds[PREFILL, ENGINE_PAUSE] == 0, table(found)
    assert found.blamed == 0, table(found)


def test_a_stop_of_the_server_is_no_prompts(played: Outcomes) -> None:
    found = judged(played, STOPPED.name).confusion
    assert found.seconds[ENGINE_PAUSE, PREFILL] == 0, table(found)


def test_together(played: Outcomes) -> None:
    seen = [judged(played, each.name) for each in (*SEEN, STOPPED)]
    whole = together(seen)
    assert whole.precision >= LEAST_SHARE, table(whole)
    assert whole.recall >= LEAST_SHARE, table(whole)


def test_clients_may_call_the_model_what_they_like(played: Outcomes, llama_sidecar: Sidecar) -> None:
    """They ask for "tiny"; the server has the name of a file, and its answers tell that."""
    assert played
    metrics = llama_sidecar.metrics()
    assert metrics.total("prefillwatch_generated_tokens_total", model="tiny.gguf") > 1000
    assert metrics.total("prefillwatch_generated_tokens_total", model="other") == 0
