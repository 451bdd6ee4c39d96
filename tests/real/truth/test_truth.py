"""Real vLLM behind the real sidecar: what was said of every stall, held against the engine's own step log.

Each scenario is played once; its tests ask different questions about the same load. Stalls that the machine itself
caused, by giving a process on the way no core, say nothing about verdicts and are left out of the shares; the report
shows them.
"""

from __future__ import annotations

from collections.abc import Collection

import pytest
from tests.real.truth.figures import prefill_error
from tests.real.truth.outcome import Outcome, table, together
from tests.real.truth.scenarios import BY_NAME, chosen
from tests.real.truth.true_causes import DISCARDED

LEAST_SHARE = 0.95  # of stall seconds; the aim is 0.98
LEAST_RIGHT_NAMES = 0.9
MOST_PREFILL_ERROR = 0.05
#: A window was calm if those who hand tokens on waited for a core in no larger share of it: the gaps that this may have
#: stretched move a rank by as much, four times what figures may differ by. Of calm windows' quantiles at least so many
#: must be the engine's; fewer calm ones than this say nothing.
CALM, LEAST_EXACT, FEWEST_CALM = 0.02, 0.8, 12
#: Milliseconds. A machine of its own gives steps of 9 to 15 ms; where other programs keep a core busy the engine's
#: threads wait for each other and a step takes seconds. Nothing that is timed means anything then.
SLOWEST_PACE = 40.0
FAULTS = [each.name for each in chosen() if each.cause != "prefill"]
PREFILLS = [each.name for each in chosen() if each.cause == "prefill"]
Outcomes = dict[str, Outcome]


def judged(outcomes: Outcomes, name: str) -> Outcome:
    """What was played, if the machine let the engine run."""
    found = outcomes[name]
    if found.pace_ms > SLOWEST_PACE:
        pytest.skip(f"{name}: the engine took {found.pace_ms:.0f} ms for a step; this machine is too busy to judge by")
    return found


def all_judged(outcomes: Outcomes, names: Collection[str] = BY_NAME) -> list[Outcome]:
    """As `judged`, of all of these that were played; skips if fewer than half are left."""
    played = [each for name, each in outcomes.items() if name in names]
    found = [each for each in played if each.pace_ms <= SLOWEST_PACE]
    if 2 * len(found) < len(played) or not found:
        pytest.skip(f"the engine kept its pace in {len(found)} of {len(played)} scenarios; too few to judge by")
    return found


@pytest.mark.parametrize("name", [each.name for each in chosen()])
def test_the_scenario_made_what_it_is_for(outcomes: Outcomes, name: str) -> None:
    outcome = judged(outcomes, name)
    assert outcome.true_stalls[outcome.scenario.cause], f"true stalls: {dict(outcome.true_stalls)}"


def test_the_machine_left_enough_to_judge(outcomes: Outcomes) -> None:
    whole = together(all_judged(outcomes))
    discarded, all_seconds = whole.discarded, sum(whole.seconds.values())
    assert discarded <= all_seconds / 3, f"{discarded:.1f} of {all_seconds:.1f} s were the machine's own doing"


def test_stalls_blamed_on_prefill_were_of_prefill(outcomes: Outcomes) -> None:
    whole = together(all_judged(outcomes))
    assert whole.precision >= LEAST_SHARE, table(whole)


def test_stalls_of_prefill_were_blamed_on_it(outcomes: Outcomes) -> None:
    whole = together(all_judged(outcomes))
    assert whole.recall >= LEAST_SHARE, table(whole)


@pytest.mark.parametrize("name", FAULTS)
def test_no_other_fault_is_blamed_on_prefill(outcomes: Outcomes, name: str) -> None:
    found = judged(outcomes, name).confusion
    wrong = {true: s for (true, named), s in found.seconds.items() if named == "prefill" and s}
    for cause in ("prefill", *DISCARDED):
        wrong.pop(cause, None)
    assert not wrong, table(found)


@pytest.mark.parametrize("name", PREFILLS)
def test_named_culprits_were_in_prefill_in_those_steps(outcomes: Outcomes, name: str) -> None:
    found = judged(outcomes, name).confusion
    assert found.blamed > 0
    assert found.membership >= LEAST_RIGHT_NAMES


def test_prefill_time_is_the_engines(outcomes: Outcomes) -> None:
    times = [each.times for each in all_judged(outcomes, PREFILLS)]
    assert abs(prefill_error(times)) <= MOST_PREFILL_ERROR, times


@pytest.mark.parametrize("name", PREFILLS)
def test_every_first_token_has_a_prefill_time(outcomes: Outcomes, name: str) -> None:
    times = judged(outcomes, name).times
    assert times.ours_count == times.requests


@pytest.mark.parametrize("name", PREFILLS)
def test_latency_in_the_windows_is_between_the_engines_and_the_clients(outcomes: Outcomes, name: str) -> None:
    """At every scrape. How far it may be from the engine's own depends on how long those who hand tokens on waited for
    a core, since gaps on the wire are then no longer the engine's."""
    found = judged(outcomes, name).latencies
    assert found
    assert not [each for each in found if not each.fits]


def test_latency_in_the_windows_is_the_engines(outcomes: Outcomes) -> None:
    """Wherever the machine left everybody a core. A busy machine has fewer such windows, not a lower bar."""
    every = [each for outcome in all_judged(outcomes, PREFILLS) for each in outcome.latencies]
    found = [each for each in every if each.waited <= CALM]
    if len(found) < FEWEST_CALM:
        pytest.skip(f"{len(found)} of {len(every)} windows were calm; this machine is too busy to judge by")
    wrong = [each for each in found if not each.is_the_engines]
    assert len(wrong) <= (1 - LEAST_EXACT) * len(found), wrong
