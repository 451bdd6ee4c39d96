"""Verdicts on stalls of a real vLLM, held against its own step log; faults were injected for real."""

from __future__ import annotations

from functools import cache

import pytest
from tests.judges.verdicts import RECORDINGS, Verdicts, score, score_simulated
from tests.judges.workloads import SIMULATED

pytestmark = pytest.mark.apart

NAMES = sorted(path.name.removesuffix(".jsonl.gz") for path in RECORDINGS.glob("*.jsonl.gz"))
#: Recordings in which something other than prefill stalled streams, and the only cause that may be named for it.
FAULTS = {
    "engine-stopped": ("engine_pause", "engine_pause"),
    "engine-stopped-300": ("engine_pause", "engine_pause"),
    "frontend-stopped": ("frontend", "frontend"),
    "preemption": ("preemption", "preemption"),
    "first-logprobs": ("other", "engine_pause"),
}


@cache
def verdicts(name: str) -> Verdicts:
    return score(RECORDINGS / f"{name}.jsonl.gz")


def test_there_are_recordings() -> None:
    assert len(NAMES) >= 14


@pytest.mark.parametrize("name", NAMES)
def test_prefill_is_blamed_for_what_it_did_and_for_nothing_else(name: str) -> None:
    found = verdicts(name)
    assert found.recall >= 0.95
    assert found.precision >= 0.95
    assert found.names >= 0.85


def test_over_all_recordings() -> None:
    total = Verdicts()
    for name in NAMES:
        found = verdicts(name)
        total.seconds += found.seconds
        total.wrong_names += found.wrong_names
        total.unknown += found.unknown
    assert total.true("prefill") > 500, "the recordings must hold enough to judge by"
    assert total.recall >= 0.98
    assert total.precision >= 0.98
    assert total.names >= 0.95
    assert total.unknown == 0


@pytest.mark.parametrize("name", FAULTS)
def test_faults_get_their_own_name(name: str) -> None:
    truth, named = FAULTS[name]
    found = verdicts(name)
    assert found.true(truth) > 10
    assert found.seconds[truth, named] >= 0.95 * found.true(truth)
    assert found.seconds[truth, "prefill"] == 0


def test_a_quiet_engine_has_no_incidents() -> None:
    assert verdicts("quiet").incidents == []


@pytest.mark.parametrize(
    "name", ["sim tiny kv", "sim paused with 300", "sim aborted", "sim shared prefix", "sim 8 mixed at once"]
)
def test_the_simulated_engine_agrees(name: str) -> None:
    found = score_simulated(SIMULATED[name]())
    assert sum(found.stalls.values()) > 10
    assert found.recall >= 0.95
    assert found.precision >= 0.95
    assert found.names >= 0.85
