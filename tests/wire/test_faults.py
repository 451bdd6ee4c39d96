"""An error of ours is told by its place, and what it happened in is given up."""

from __future__ import annotations

from typing import Any

import pytest

from prefillwatch.wire import request
from prefillwatch.wire.answer import AnswerReader
from prefillwatch.wire.faults import place_of
from prefillwatch.wire.request import read_request

CHAT = "/v1/chat/completions"
EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'


def fails(*_: Any) -> None:
    raise RecursionError("with words of the prompt")


def test_a_place_without_the_words_of_the_error() -> None:
    with pytest.raises(RecursionError) as caught:
        fails()
    place = place_of(caught.value)
    assert place.startswith("RecursionError in fails (")
    assert "words" not in place


def test_what_is_left_of_an_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = AnswerReader("chat_completions", "text/event-stream", templates=False)
    assert reader.feed(EVENT) == 1
    assert not reader.is_blind
    with monkeypatch.context() as patched:
        patched.setattr(AnswerReader, "_event", fails)
        assert reader.feed(EVENT) == 0
    assert reader.feed(EVENT) == 0
    reader.finish()
    assert reader.is_blind
    assert reader.usual is None
    assert reader.events == 1
    assert reader.unparsed == {"internal": 1}
    assert reader.fault.startswith("RecursionError in fails (")


def test_the_end_of_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = AnswerReader("chat_completions", "application/json")
    reader.feed(b'{"choices": []}')
    monkeypatch.setattr(reader, "_read_document", fails)
    reader.finish()
    assert reader.unparsed == {"internal": 1}
    assert not reader.shows_text


def test_a_request_stays_one_of_its_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request, "_facts", fails)
    facts = read_request(CHAT, "", b'{"model": "m"}')
    assert facts is not None
    assert (facts.endpoint, facts.complete) == ("chat_completions", False)
    assert facts.fault.startswith("RecursionError in fails (")
