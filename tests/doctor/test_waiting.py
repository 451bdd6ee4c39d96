from __future__ import annotations

import pytest
from tests.doctor.making import first_tokens, histogram, parts, prompts
from tests.doctor.test_trust import TRUST

from prefillwatch.doctor.figures import Figures, Moment
from prefillwatch.doctor.finding import Seen
from prefillwatch.doctor.histogram import Histogram
from prefillwatch.doctor.waiting import head_of_line, late_first_tokens, now, queue_saturation


def queued(*waiting: int, queue: Histogram | None = None) -> Seen:
    moments = tuple(Moment(running=4, waiting=number) for number in waiting)
    return queue_saturation(Figures(server="vllm", moments=moments, queue={"": queue} if queue else {})).seen


def test_many_that_wait() -> None:
    assert queued(16, 17, 15) is Seen.YES
    assert queued(16) is Seen.YES
    assert queued(0, 30, 0) is Seen.NO
    assert queued() is Seen.UNKNOWN


def test_few_that_wait_long_all_the_time() -> None:
    assert queued(3, 2, 3, queue=parts((8, 4.0))) is Seen.YES
    assert queued(3, 2, 3, queue=parts((8, 0.2))) is Seen.NO
    assert queued(3, 0, 3, queue=parts((8, 4.0))) is Seen.NO
    assert queued(3, 2, 3, queue=parts((2, 4.0))) is Seen.NO


def test_promises_are_by_size() -> None:
    tokens = {"0-512": first_tokens((9, 0.2), (1, 4.0)), "8k-32k": first_tokens((5, 15.0))}
    found = late_first_tokens(Figures(server="prefillwatch", first_tokens=tokens, trust=TRUST))
    assert found.seen is Seen.YES
    assert found.words.startswith("1 of 10 prompts of 0-512 tokens waited longer than 2.5 s.")
    assert found.numbers["late_8k-32k"] == 0


@pytest.mark.parametrize(
    ("queue", "prefill", "remedy"),
    [
        (parts((5, 8.0)), parts((5, 0.1)), "they waited for their turn"),
        (parts((5, 0.1)), parts((5, 8.0)), "they waited for their own"),
    ],
)
def test_the_remedy_follows_the_larger_part(queue: Histogram, prefill: Histogram, remedy: str) -> None:
    figures = Figures(
        server="prefillwatch",
        first_tokens={"2k-8k": first_tokens((5, 9.0))},
        queue={"2k-8k": queue},
        prefill={"2k-8k": prefill},
        trust=TRUST,
    )
    assert late_first_tokens(figures).remedy.startswith(remedy)


def test_few_in_time_say_nothing() -> None:
    def of(count: int) -> Seen:
        return late_first_tokens(Figures(server="vllm", first_tokens={"": first_tokens((count, 0.2))})).seen

    assert of(9) is Seen.UNKNOWN
    assert of(10) is Seen.NO


def test_a_histogram_that_ends_before_the_promise_does_not_show_that_none_was_late() -> None:
    figures = Figures(server="vllm", first_tokens={"": histogram([0.2] * 50 + [1.5] * 9, (0.5, 1.0))})
    found = late_first_tokens(figures)
    assert found.seen is Seen.UNKNOWN
    assert found.words == (
        "9 of 59 first tokens took longer than their histogram shows, which ends before what was promised."
    )
    in_time = Figures(server="vllm", first_tokens={"": histogram([0.2] * 50, (0.5, 1.0))})
    assert late_first_tokens(in_time).seen is Seen.NO


def test_without_sizes_a_late_one_may_have_been_a_long_prompt() -> None:
    late = {"": first_tokens((12, 9.0))}
    assert late_first_tokens(Figures(server="vllm", first_tokens=late)).seen is Seen.UNKNOWN
    assert (
        late_first_tokens(Figures(server="vllm", first_tokens=late, prompts=prompts((12, 9000)))).seen is Seen.UNKNOWN
    )
    assert late_first_tokens(Figures(server="vllm", first_tokens=late, prompts=prompts((12, 90)))).seen is Seen.YES


def line(short_queue: Histogram, long_work: float, seconds: float = 10.0) -> Seen:
    figures = Figures(
        server="prefillwatch",
        seconds=seconds,
        queue={"0-512": short_queue},
        prefill={"0-512": parts((12, 0.05)), "8k-32k": parts((1, long_work))},
        trust=TRUST,
    )
    return head_of_line(figures).seen


def test_short_prompts_behind_long_ones() -> None:
    assert line(parts((12, 3.0)), long_work=8.0) is Seen.YES
    assert line(parts((12, 3.0)), long_work=0.5) is Seen.NO
    assert line(parts((12, 0.2)), long_work=8.0) is Seen.NO
    assert line(parts((3, 3.0)), long_work=8.0) is Seen.UNKNOWN
    assert head_of_line(Figures(server="vllm", queue={"": parts((12, 3.0))})).seen is Seen.UNKNOWN


def test_what_lasts_right_now() -> None:
    def of(moment: Moment) -> list[str]:
        return [finding.symptom for finding in now(Figures(server="prefillwatch", moments=(moment,), trust=TRUST))]

    assert of(Moment(decoding=6, frozen=6, open_gap=7.0)) == ["frozen_now"]
    assert of(Moment(decoding=6, frozen=0, open_gap=0.02, oldest_wait=300.0)) == ["stuck_now"]
    assert of(Moment(decoding=6, frozen=0, open_gap=0.02, oldest_wait=3.0)) == []
