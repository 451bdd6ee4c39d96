"""On recordings of a real vLLM the two estimators of the cost do not contradict each other."""

from __future__ import annotations

import pytest
from tests.judges.verdicts import RECORDINGS, replay

from prefillwatch.analysis.tuning import DEFAULT

#: Recordings in which prompts were read while others decoded, often enough for a line. Left out is busy/shared-prefix:
#: eight steps make its line, and the sizes of half of them are wrong, since usage says only later what was cached.
NAMES = ("mixed", "short-300", "single-2500", "shared-prefix", "twelve-at-once", "busy/mixed", "busy/short-300")


@pytest.mark.parametrize("name", NAMES)
def test_law_and_line_agree_on_a_full_step_within_the_slack_of_verdicts(name: str) -> None:
    _, observed = replay(RECORDINGS / f"{name}.jsonl.gz")
    ledger = observed.ledger
    (line,) = [line for line in map(ledger.costs.line, ledger.models) if line is not None]
    law = ledger.costs.known.law
    assert law.known
    ratio = law.expect_ns(line.largest) / (line.token_ns * line.largest)
    assert 1 / DEFAULT.cost.slack < ratio < DEFAULT.cost.slack


@pytest.mark.parametrize("name", NAMES)
def test_the_base_of_the_line_is_a_clear_step(name: str) -> None:
    _, observed = replay(RECORDINGS / f"{name}.jsonl.gz")
    ledger = observed.ledger
    (line,) = [line for line in map(ledger.costs.line, ledger.models) if line is not None]
    clear_ns = ledger.timeline.clear.expect_ns(6)
    assert line.base_ns == pytest.approx(clear_ns, rel=0.6)
