"""The soak's judge finds what it is there to find."""

from __future__ import annotations

import json

import pytest
from tests.soak.plans import Answer, Leave, Plan, Toxic
from tests.soak.seen import Seen, faults

DONE = b"data: [DONE]\n\n"


def event(text: str) -> bytes:
    return b"data: " + json.dumps({"choices": [{"delta": {"content": text}}]}).encode() + b"\n\n"


def answered(plan: Plan, *texts: str, done: bool = True) -> Seen:
    seen = Seen(plan, status=200)
    for text in texts:
        seen.feed(event(text), 1.0)
    if done:
        seen.feed(DONE, 1.0)
    return seen


def plan(tokens: int = 3, toxic: Toxic = Toxic.NONE, leave: Leave = Leave.NEVER) -> Plan:
    return Plan(Answer(7, tokens, 0.1, toxic=toxic), leave=leave)


def test_an_answer_as_planned_is_right() -> None:
    seen = answered(plan(), "7.0 ", "7.1 ", "7.2 ")
    seen.complete(2.0)
    assert faults(seen, excused=False) == []


@pytest.mark.parametrize("excused", [False, True])
@pytest.mark.parametrize(
    "texts",
    [
        ("7.0 ", "7.2 "),  # lost
        ("7.0 ", "7.1 ", "7.1 ", "7.2 "),  # told twice
        ("7.0 ", "8.1 ", "7.2 "),  # somebody else's
        ("7.0 ", "7.1 ", "7.2 ", "7.3 "),  # made up
    ],
)
def test_a_token_lost_or_made_up_is_found_whatever_happened_meanwhile(texts: tuple[str, ...], excused: bool) -> None:
    seen = answered(plan(), *texts)
    seen.complete(2.0)
    assert "its tokens are not those that upstream sent" in faults(seen, excused=excused)


@pytest.mark.parametrize("done", [False, True])
def test_a_false_clean_end_is_found_even_where_a_broken_one_would_be_excused(done: bool) -> None:
    seen = answered(plan(), "7.0 ", done=done)
    seen.complete(2.0)
    assert faults(seen, excused=True) == ["it ended as if whole with 1 of 3 tokens"]


def test_a_last_event_that_is_missing_makes_a_clean_end_false() -> None:
    seen = answered(plan(), "7.0 ", "7.1 ", "7.2 ", done=False)
    seen.complete(2.0)
    assert faults(seen, excused=True) == ["it ended as if whole with 3 of 3 tokens"]


def test_a_broken_answer_is_excused_only_while_something_was_done() -> None:
    seen = answered(plan(), "7.0 ", done=False)
    seen.broke_off(2.0)
    assert faults(seen, excused=True) == []
    assert faults(seen, excused=False) == ["it was to be clean and was broken (status 200)"]


@pytest.mark.parametrize("toxic", [Toxic.RESET, Toxic.CUT])
def test_what_upstream_breaks_off_must_be_seen_to_be_broken(toxic: Toxic) -> None:
    broken = answered(plan(4, toxic), "7.0 ", "7.1 ", done=False)
    broken.broke_off(2.0)
    assert faults(broken, excused=False) == []
    whole = answered(plan(4, toxic), "7.0 ", "7.1 ", done=False)
    whole.complete(2.0)
    assert faults(whole, excused=False) == ["it ended as if whole with 2 of 4 tokens"]


def test_a_refusal_without_a_reason_is_found() -> None:
    seen = Seen(plan(), status=503)
    seen.feed(b'{"error":{}}', 1.0)
    seen.complete(2.0)
    assert faults(seen, excused=False) == ["it was to be clean and was refused (status 503)"]
    assert faults(seen, excused=True) == []


def test_a_body_that_arrived_otherwise_is_found() -> None:
    seen = answered(plan(), "7.0 ", "7.1 ", "7.2 ")
    seen.body_digest, seen.expected_digest = "a", "b"
    seen.complete(2.0)
    assert faults(seen, excused=True) == ["upstream got another body than was sent"]


def test_what_never_ends_is_found() -> None:
    assert faults(answered(plan(), "7.0 ", done=False), excused=True) == ["it never ended"]


def test_a_client_that_leaves_as_planned_is_right() -> None:
    seen = answered(plan(leave=Leave.STREAMING), "7.0 ", done=False)
    seen.left(2.0)
    assert faults(seen, excused=False) == []


def test_an_answer_in_one_piece_is_compared_token_by_token() -> None:
    answer = Answer(7, 2, 0.1, stream=False)
    seen = Seen(Plan(answer), status=200)
    seen.feed(json.dumps({"choices": [{"message": {"content": "7.0 7.1 "}}]}).encode(), 1.0)
    seen.complete(2.0)
    assert faults(seen, excused=False) == []


def test_a_plan_reaches_upstream_as_it_is() -> None:
    answer = Answer(7, 3, 0.5, padding=9, toxic=Toxic.SLICING, hold_s=1.0)
    assert Answer.from_header(answer.header()) == answer
