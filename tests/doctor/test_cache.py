from __future__ import annotations

import pytest

from prefillwatch.doctor.cache import nearly_full, preempted
from prefillwatch.doctor.figures import Figures, Moment
from prefillwatch.doctor.finding import Seen


def test_the_fullest_of_all_looks_counts() -> None:
    figures = Figures(server="vllm", moments=tuple(Moment(kv_usage=usage) for usage in (0.3, 0.95, 0.4)), kv_free=1200)
    found = nearly_full(figures)
    assert found.seen is Seen.YES
    assert found.words == "95 % used at the most in 3 looks; 1,200 tokens are free."


def test_what_is_not_told_is_not_0() -> None:
    assert nearly_full(Figures(server="llamacpp", moments=(Moment(),))).seen is Seen.UNKNOWN
    assert preempted(Figures(server="llamacpp")).seen is Seen.UNKNOWN


@pytest.mark.parametrize(
    ("preemptions", "finished", "seen"),
    [(0, 50, Seen.NO), (4, 50, Seen.NO), (20, 50, Seen.YES), (2, 0, Seen.NO), (3, 0, Seen.YES), (3, None, Seen.YES)],
)
def test_again_and_again(preemptions: float, finished: float | None, seen: Seen) -> None:
    assert preempted(Figures(server="vllm", preemptions=preemptions, finished=finished)).seen is seen


def test_requests_of_which_nothing_is_told_are_not_0() -> None:
    assert preempted(Figures(server="vllm", preemptions=2)).words == (
        "2 preemptions; how many requests finished is not reported."
    )
    assert preempted(Figures(server="vllm", preemptions=2, finished=0)).words == "2 preemptions, 0 requests finished."
