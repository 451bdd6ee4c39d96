"""Answers as a real vLLM 0.32 sent them, read by read, from all four endpoints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prefillwatch.wire.answer import AnswerReader
from prefillwatch.wire.routes import endpoint_of

ANSWERS = Path(__file__).parents[1] / "data" / "answers"


def replay(name: str, **options: Any) -> tuple[AnswerReader, list[tuple[Any, ...]]]:
    recorded = json.loads((ANSWERS / f"{name}.json").read_text(encoding="utf-8"))
    answer = AnswerReader(endpoint_of(recorded["path"]), recorded["content_type"], **options)
    brought = []
    for read in recorded["reads"]:
        events = answer.feed(read.encode())
        brought.append((events, answer.chars_in_read, answer.tokens_in_read, answer.others, answer.others_tokens))
    answer.finish()
    return answer, brought


@pytest.mark.parametrize("name", sorted(path.stem for path in ANSWERS.glob("*.json")))
def test_both_ways_agree_on_every_read(name: str) -> None:
    quick, brought = replay(name)
    long, expected = replay(name, templates=False)
    assert brought == expected
    assert quick.frame() == long.frame()
    assert (quick.unparsed, quick.complete, quick.finished) == ({}, True, True)


def test_a_chat_stream_without_usage() -> None:
    answer, brought = replay("chat")
    assert [read[0] for read in brought] == [0, *[1] * 40, 0]
    assert (answer.prompt_tokens, answer.completion_tokens, answer.finish_reason) == (None, None, "length")


def test_usage_per_choice() -> None:
    answer, brought = replay("chat_two_choices_with_usage")
    assert sum(read[2] for read in brought) == 40
    assert sum((read[4] or {}).get(1, 0) for read in brought) == 40
    assert (answer.prompt_tokens, answer.completion_tokens, answer.cached_tokens) == (17, 80, 0)


def test_two_prompts_in_one_request() -> None:
    answer, brought = replay("completions_two_prompts_with_usage")
    assert sum(read[0] for read in brought) == 40
    assert sum((read[3] or {}).get(1, 0) for read in brought) == 40
    assert (answer.prompt_tokens, answer.completion_tokens) == (9, 80)


@pytest.mark.parametrize(
    ("name", "prompt", "reason"),
    [
        ("chat_log_probabilities", 17, "length"),
        ("messages", 17, "max_tokens"),
        ("responses", 15, "completed"),
        ("chat_json", 17, "length"),
        ("responses_json", 15, "max_output_tokens"),
        ("messages_json", 17, "max_tokens"),
    ],
)
def test_usage_and_the_way_it_ended(name: str, prompt: int, reason: str) -> None:
    answer, brought = replay(name)
    assert (answer.prompt_tokens, answer.completion_tokens, answer.finish_reason) == (prompt, 40, reason)
    assert (answer.error, answer.model) == (None, "tiny")
    if not name.endswith("_json"):
        assert 38 <= sum(read[0] for read in brought) <= 40  # a token in the middle of a character has no text yet


def test_a_refused_request() -> None:
    answer, _ = replay("chat_refused")
    assert answer.error == "BadRequestError"
