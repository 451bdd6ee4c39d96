"""What each version of vLLM hands over after a step, and what is made of it. Times in milliseconds."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from prefillwatch.engine.plugin.steps import StepReader
from prefillwatch.engine.step_report import FinishedRequest, StepReport
from prefillwatch.units import MS


class Story:
    """An engine that tells its steps, one call each; ``at`` is when the API server took the output in."""

    def __init__(self, **options: Any) -> None:
        self.reader = StepReader(3, **options)
        self.index = 0

    def step(
        self,
        at: float,
        *,
        gaps: tuple[float, ...] = (),
        firsts: int = 0,
        prefill: int = 0,
        elapsed: float = 1,
        left: int = 1,
    ) -> StepReport | None:
        self.index += 1
        details = SimpleNamespace(
            iteration_index=self.index,
            num_ctx_requests=int(prefill > 0),
            num_ctx_tokens=prefill,
            num_generation_requests=len(gaps),
            num_generation_tokens=len(gaps),
            elapsed_ms=elapsed,
        )
        scheduler = SimpleNamespace(
            num_running_reqs=left, num_waiting_reqs=0, kv_cache_usage=0.25, iteration_details=details
        )
        return self.reader.read(round(at * MS), scheduler, outputs(gaps, firsts) if gaps or firsts else None)

    def took(self, at: float, **what: Any) -> float:
        report = self.step(at, **what)
        assert report is not None
        assert report.is_step
        return report.duration_ns / MS


def outputs(gaps: tuple[float, ...] = (), firsts: int = 0, **more: Any) -> SimpleNamespace:
    return SimpleNamespace(
        inter_token_latencies_iter=[gap / 1e3 for gap in gaps], time_to_first_tokens_iter=[0.1] * firsts, **more
    )


# --- How long a step took ---


def test_the_smallest_gap_is_the_step_however_late_it_was_taken_in() -> None:
    story = Story()
    story.step(1000, firsts=2, prefill=100)
    assert story.took(1011, gaps=(10, 10)) == 10
    assert story.took(1090, gaps=(10, 10)) == 10  # the API server was busy
    assert story.took(1091, gaps=(12, 12)) == 12  # and makes up for it


def test_a_request_that_was_left_out_for_a_while_does_not_make_the_step_longer() -> None:
    story = Story()
    story.step(1000, firsts=2)
    assert story.took(1010, gaps=(10, 250)) == 10


def test_the_wait_for_the_output_is_not_the_step() -> None:
    story = Story()
    story.step(1000, firsts=1)
    assert story.took(1010, gaps=(10,), elapsed=0.2) == 10


def test_chunks_of_a_prompt_without_anyone_decoding_are_timed_as_they_are_taken_in() -> None:
    story = Story()
    story.step(1000, prefill=2048, elapsed=400)
    assert story.took(1400, prefill=2048, elapsed=1) == 400
    assert story.took(1700, prefill=1000, firsts=1, elapsed=1) == 300


def test_after_a_pause_the_wait_for_the_output_is_the_step() -> None:
    story = Story()
    story.step(1000, firsts=1, prefill=30, left=0)
    assert story.took(9000, firsts=1, prefill=30, elapsed=25) == 25


def test_a_step_that_went_to_another_api_server_is_not_taken_for_a_long_one() -> None:
    story = Story()
    story.step(1000, prefill=2048, elapsed=400)
    story.index += 5
    assert story.took(3000, prefill=2048, elapsed=390) == 390


def test_a_stream_that_comes_back_after_steps_without_tokens_says_nothing_of_the_last_step() -> None:
    story = Story()
    story.step(1000, firsts=1)
    story.step(1300, prefill=2048, elapsed=1)
    assert story.took(1700, gaps=(700,), elapsed=1) == 400


def test_with_pipeline_parallelism_a_gap_spans_several_steps() -> None:
    story = Story(pipelined=True)
    story.step(1000, firsts=1)
    assert story.took(1005, gaps=(10,)) == 5


# --- When its output was ready ---


def ends(story: Story, *steps: tuple[float, float]) -> list[float]:
    return [report.end_ns / MS for at, gap in steps if (report := story.step(at, gaps=(gap,)))]


def test_outputs_taken_in_late_keep_the_time_at_which_they_were_ready() -> None:
    story = Story()
    story.step(1000, firsts=1)
    assert ends(story, (1010, 10), (1060, 10), (1061, 10), (1062, 10)) == [1010, 1020, 1030, 1040]


def test_an_output_is_never_taken_in_before_it_was_ready() -> None:
    story = Story()
    story.step(1030, firsts=1)  # taken in 30 ms late, which shows only later
    assert ends(story, (1031, 10), (1032, 10), (1033, 12), (1043, 10)) == [1031, 1032, 1033, 1043]


# --- What it carried ---


def test_all_that_is_told_of_a_step() -> None:
    story = Story()
    story.step(1000, firsts=1)
    assert story.step(1012, gaps=(12, 12, 40), prefill=700, left=4) == StepReport(
        engine=3,
        end_ns=1012 * MS,
        taken_ns=1012 * MS,
        duration_ns=12 * MS,
        prefill_tokens=700,
        prefill_requests=1,
        decode_requests=3,
        decode_tokens=3,
        gaps=[(0.012, 2), (0.04, 1)],
        running=4,
        waiting=0,
        kv_usage=0.25,
    )


def test_requests_that_ended_with_it() -> None:
    ended = SimpleNamespace(
        request_id="chatcmpl-7",
        queued_time=0.5,
        prefill_time=0.25,
        num_prompt_tokens=9,
        num_cached_tokens=4,
        num_preemptions=1,
    )
    report = StepReader(0).read(1, None, outputs((10,), finished_requests=[ended], num_preempted_reqs=2))
    assert report is not None
    assert report.finished == [FinishedRequest("chatcmpl-7", 0.5, 0.25, 9, 4, 1)]
    assert report.preemptions == 2


def test_a_rank_that_only_keeps_the_others_company_computes_nothing() -> None:
    details = SimpleNamespace(iteration_index=1, is_dummy=True)
    assert StepReader(0).read(1, SimpleNamespace(iteration_details=details), None) is None


def test_news_of_the_scheduler_alone_are_no_step() -> None:
    assert StepReader(0).read(1, SimpleNamespace(num_running_reqs=0, num_waiting_reqs=0), None) is None
    assert StepReader(0).read(1, None, None) is None


# --- Versions ---


def test_without_iteration_details_steps_are_told_but_not_what_they_carried() -> None:
    """vLLM before 0.27, or without the flag."""
    reader = StepReader(0)
    scheduler = SimpleNamespace(num_running_reqs=2, num_waiting_reqs=0, kv_cache_usage=0.5)
    reader.read(1000 * MS, scheduler, outputs(firsts=1))
    report = reader.read(1010 * MS, scheduler, outputs((10,)))
    assert report is not None
    assert (report.is_step, report.duration_ns, report.prefill_tokens) == (True, 10 * MS, -1)


def test_a_request_without_the_fields_of_later_versions() -> None:
    """FinishedRequestStats of vLLM 0.11.2."""
    ended = SimpleNamespace(queued_time=0.5, prefill_time=0.25, num_prompt_tokens=9)
    report = StepReader(0).read(1, None, outputs((10,), finished_requests=[ended]))
    assert report is not None
    assert report.finished == [FinishedRequest("", 0.5, 0.25, 9)]


def test_each_step_is_told_by_the_one_api_server_that_got_its_statistics() -> None:
    """With several API servers, each gets the tokens of its own requests, and one of them the scheduler's view."""
    reader = StepReader(0)
    reader.read(1000 * MS, None, outputs(firsts=1))
    report = reader.read(1010 * MS, None, outputs((10,)))
    assert report is not None
    assert not report.is_step
    assert report.gaps == [(0.01, 1)]


@pytest.mark.parametrize("missing", ["inter_token_latencies_iter", "time_to_first_tokens_iter"])
def test_what_a_version_lacks_is_unknown(missing: str) -> None:
    stats = outputs((10,))
    delattr(stats, missing)
    assert StepReader(0).read(1, None, stats) is not None
