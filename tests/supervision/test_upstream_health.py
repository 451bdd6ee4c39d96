"""Whether upstream is up, as timelines of checks and tokens."""

from __future__ import annotations

import pytest

from prefillwatch.supervision.upstream_health import HEARD_FOR_S, Check, Outcome, UpstreamHealth


class Story:
    """One check a second."""

    def __init__(self, misses: int = 3) -> None:
        self.health = UpstreamHealth(misses)
        self.now = 100.0

    def check(self, outcome: Outcome, *, tokens: bool = False) -> bool | None:
        self.now += 1.0
        if tokens:
            self.health.heard(self.now)
        self.health.checked(Check(outcome, 0.1, "in words"))
        return self.health.up(self.now)


def test_before_the_first_check_nothing_is_known() -> None:
    story = Story()
    assert story.health.up(story.now) is None
    assert story.health.reason(story.now) == "upstream was not asked yet"


@pytest.mark.parametrize("outcome", [Outcome.LATE, Outcome.LOST, Outcome.ILL, Outcome.REFUSED])
def test_who_has_never_answered_is_not_up(outcome: Outcome) -> None:
    assert Story().check(outcome) is False


@pytest.mark.parametrize("tokens", [False, True])
@pytest.mark.parametrize("outcome", [Outcome.ILL, Outcome.REFUSED])
def test_refused_or_ill_is_down_at_once_whatever_still_flows(outcome: Outcome, tokens: bool) -> None:
    story = Story()
    assert story.check(Outcome.ANSWERED)
    assert story.check(outcome, tokens=tokens) is False
    assert "in words" in story.health.reason(story.now)
    assert story.check(Outcome.ANSWERED) is True


@pytest.mark.parametrize("outcome", [Outcome.LATE, Outcome.LOST])
def test_late_checks_count_when_there_are_enough_in_a_row(outcome: Outcome) -> None:
    story = Story(misses=3)
    story.check(Outcome.ANSWERED)
    assert [story.check(outcome) for _ in range(4)] == [True, True, False, False]
    assert story.check(Outcome.ANSWERED) is True


def test_while_tokens_flow_late_checks_do_not_count() -> None:
    story = Story(misses=3)
    story.check(Outcome.ANSWERED)
    assert all(story.check(Outcome.LATE, tokens=True) for _ in range(25))
    assert "answers arrive" in story.health.reason(story.now)
    story.now += HEARD_FOR_S + 0.1  # and when they have stopped, they do
    assert story.health.up(story.now) is False


def test_every_second_check_lost_makes_nobody_flap() -> None:
    story = Story(misses=2)
    turns = [Outcome.ANSWERED, Outcome.LOST] * 20
    assert all(story.check(outcome) for outcome in turns)


def test_a_healthy_server_without_a_token_stays_up() -> None:
    story = Story()
    assert all(story.check(Outcome.ANSWERED) for _ in range(60))


def test_after_a_refusal_lateness_alone_brings_nobody_back() -> None:
    story = Story(misses=3)
    story.check(Outcome.ANSWERED)
    assert [story.check(outcome) for outcome in (Outcome.REFUSED, Outcome.LATE)] == [False, False]


def test_with_one_miss_allowed_none_is_forgiven() -> None:
    story = Story(misses=1)
    story.check(Outcome.ANSWERED)
    assert story.check(Outcome.LATE) is False


def test_failures_are_counted_by_reason() -> None:
    story = Story()
    for outcome in (Outcome.ANSWERED, Outcome.LATE, Outcome.LATE, Outcome.ILL):
        story.check(outcome)
    assert story.health.failures == {"timeout": 2, "status": 1}
