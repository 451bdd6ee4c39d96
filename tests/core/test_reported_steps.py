"""Steps on their way from the plugin into the prefill timeline. Times in milliseconds."""

from __future__ import annotations

from prefillwatch.analysis.steps.timeline import PrefillTimeline
from prefillwatch.core.reported_steps import ReportedSteps
from prefillwatch.engine.step_report import StepReport
from prefillwatch.units import MS


class Story:
    def __init__(self) -> None:
        self.timeline = PrefillTimeline()
        self.told = ReportedSteps(self.timeline)

    def step(self, start: float, end: float, tokens: int = 0, now: float | None = None, **more: int) -> None:
        """Told 20 ms after its end, unless ``now`` says otherwise."""
        report = StepReport(
            more.pop("engine", 0),
            round(end * MS),
            round(end * MS),
            round((end - start) * MS),
            prefill_tokens=tokens,
            prefill_requests=int(tokens > 0),
            decode_requests=2,
            **more,  # type: ignore[arg-type]
        )
        self.told.add(report, round((end + 20 if now is None else now) * MS))

    def steps(self, now: float) -> list[tuple[float, float, int]]:
        """What the timeline makes of it."""
        self.told.hand_over(round(now * MS))
        self.timeline.settle(round(now * MS))
        return [(each.start_ns / MS, each.end_ns / MS, each.prefill_tokens) for each in self.timeline.drain_final()]


def test_steps_reach_the_timeline() -> None:
    story = Story()
    story.timeline.sent("a", 1000 * MS, 600)
    story.timeline.first_token("a", 1101 * MS)
    story.step(1000, 1100, 600)
    story.step(1100, 1110)
    assert story.steps(1500) == [(1000, 1100, 600), (1100, 1110, 0)]
    (split,) = story.timeline.drain_splits()
    assert split.prefill_ns == 101 * MS


def test_two_api_servers_tell_the_steps_of_one_engine_out_of_order() -> None:
    story = Story()
    story.step(1010, 1020)
    story.step(1000, 1010, now=1050)
    assert story.steps(1065) == []  # another may still come
    story.step(1020, 1030)
    assert [end for _, end, _ in story.steps(1500)] == [1010, 1020, 1030]


def test_a_step_that_comes_after_its_successor_was_handed_over_is_left_out() -> None:
    story = Story()
    story.step(1010, 1020)
    assert len(story.steps(1500)) == 1
    story.step(1000, 1010, now=1500)
    assert (story.steps(2000), story.told.unused) == ([], 1)


def test_steps_do_not_overlap() -> None:
    story = Story()
    story.step(1000, 1020)
    story.step(1015, 1030)  # its duration was measured where it was taken in
    assert story.steps(1500) == [(1000, 1020, 0), (1020, 1030, 0)]


def test_a_clock_of_another_machine_is_noticed() -> None:
    story = Story()
    story.step(1000, 1010, now=99_000)
    story.step(99_000, 99_010, now=1000)
    assert (story.steps(99_100), story.told.unused) == ([], 2)


def test_what_is_no_step_or_tells_no_tokens_is_not_taken_for_one() -> None:
    story = Story()
    story.step(1000, 1010, -1)
    story.step(1000, 1010, is_step=False)
    assert (story.steps(1500), story.told.unused) == ([], 0)


def test_with_two_engines_the_wire_goes_on() -> None:
    story = Story()
    story.step(1000, 1010)
    assert len(story.steps(1100)) == 0
    story.step(1500, 1510, engine=1)
    story.step(1510, 1520)
    story.steps(1600)
    story.step(2000, 2010)
    assert story.steps(2500) == []
