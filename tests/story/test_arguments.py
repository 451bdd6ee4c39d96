"""What speaks for and against a verdict."""

from __future__ import annotations

from typing import Any

import pytest
from tests.story.facts import EVIDENCE, WAITED

from prefillwatch.story.arguments import arguments, weighed


def sides(cause: str, kind: str = "freeze", **evidence: Any) -> tuple[str, str, str]:
    found = arguments(kind, (EVIDENCE if kind == "freeze" else WAITED) | evidence, 0.02)
    speaks_for, against, unknown = weighed(cause, found)
    return "\n".join(speaks_for), "\n".join(against), "\n".join(unknown)


def test_for_a_prefill_speak_its_tokens_and_what_others_would_have_shown() -> None:
    speaks_for, against, unknown = sides("prefill")
    assert "2,000 tokens of prompts were being read in the worst gap: they can fill 560 ms" in speaks_for
    assert "Not preemption: the server counted no preemption meanwhile, and its cache was 30 % full." in speaks_for
    assert "Not frontend: 14 tokens were due in the gap, and no bunch" in speaks_for
    assert (against, unknown) == ("", "")


@pytest.mark.parametrize(
    ("evidence", "words"),
    [
        ({"prefill_possible_seconds": 0.1}, "no more than 100 ms of 300 ms"),
        ({"prefill_tokens_in_service": 0}, "no prompt was being read"),
        ({"preemptions": 3.0}, "It might be preemption: the server counted 3 preemptions meanwhile"),
        ({"common_silence_seconds": 0.05, "engine_steps_inside": 12}, "12 steps of the engine went by inside the gap"),
        ({"tokens_caught_up": 13.0}, "13 came in a bunch at its end"),
        ({"client_blocked_seconds": 0.29}, "the client took nothing from us for 290 ms"),
        ({"own_lag_seconds": 0.2}, "prefillwatch itself did not run for 200 ms of 300 ms"),
        ({"recomputed_tokens": 900}, "900 tokens of streams that came back had to be read anew"),
    ],
)
def test_what_speaks_against_a_prefill(evidence: dict[str, Any], words: str) -> None:
    assert words in sides("prefill", **evidence)[1]


@pytest.mark.parametrize(
    ("evidence", "words"),
    [
        ({"prefill_guessed": True}, "did not show"),
        ({"engine_gauges_known": False}, "metrics from around then are not there"),
        ({"preemptions": None}, "does not count preemptions"),
    ],
)
def test_what_is_not_known_is_said(evidence: dict[str, Any], words: str) -> None:
    assert words in sides("prefill", **evidence)[2]


def test_what_came_in_a_bunch_speaks_for_the_frontend_and_for_a_buffer_alike() -> None:
    assert sides("frontend", tokens_caught_up=13.0)[0] == sides("buffering", tokens_caught_up=13.0)[0]
    assert "made in time, handed on late" in sides("frontend", tokens_caught_up=13.0)[0]


def test_a_few_tokens_of_many_at_once_are_no_bunch() -> None:
    assert "no bunch" in sides("prefill", tokens_caught_up=1.0)[0]


def test_a_wait() -> None:
    speaks_for, against, _ = sides("queueing", "wait")
    assert "8 s where its own prompt takes 100 ms, and 40,000 prompt tokens of others" in speaks_for
    assert "Not stuck: nobody who came later was served before." in speaks_for
    assert not against
    assert "3 requests sent later had their first token before" in sides("queueing", "wait", overtaken_by=3)[1]
    assert "It might be warmup" in sides("queueing", "wait", server_just_started=True)[1]
    assert "did not know of 2 requests" in sides("before_engine", "wait", requests_unknown_to_engine=2)[0]


def test_long_prompts_ahead_make_a_wait_a_prefill() -> None:
    assert "far longer than its own" in sides("prefill", "wait", long_prompt_tokens_ahead=39_000)[0]


def test_an_engine_that_stands_still_while_it_reads_a_prompt_is_no_riddle() -> None:
    still: dict[str, Any] = {"prompts_stood_still": True, "server_answered_meanwhile": True}
    speaks_for, against, _ = sides("prefill", **still)
    assert not against
    assert "Not frontend: the API server answered us" in speaks_for
    assert "waited through all of it" in sides("engine_pause", **still)[0]
    assert "It might be engine pause" in sides("unattributed", **still)[1]


def test_what_is_only_there_or_not() -> None:
    assert "a reason is known: sleep" in sides("engine_pause", pause_reason="sleep")[0]
    assert "a hop on the way holds tokens back" in sides("buffering", held_back_bursts=3)[0]
    assert "did not answer our question for metrics" in sides("engine_pause", page_of_metrics_did_not_come=True)[0]
    for name in ("unread_requests", "prompt_of_a_client_that_left", "server_knows_of_more_requests"):
        there: dict[str, Any] = {name: True}
        assert sides("unattributed", **there)[2], name
