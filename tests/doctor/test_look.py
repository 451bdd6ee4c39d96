from __future__ import annotations

import json

import pytest

from prefillwatch.doctor.figures import Advice, Culprit
from prefillwatch.doctor.look import read_advice, read_incidents, read_time


def incident(started: float, seconds: float, **more: object) -> dict[str, object]:
    return {"kind": "freeze", "cause": "prefill", "started_at": started, "duration_seconds": seconds, **more}


def test_advice_by_model() -> None:
    state = {"time": 7.5, "advice": {"m": {"words": "less", "advised_max_batched_tokens": 512, "chunked": False}}}
    assert read_advice(json.dumps(state).encode()) == (Advice("m", "less", 512, chunked=False),)
    assert read_time(json.dumps(state).encode()) == 7.5


def test_incidents_that_were_over_before_are_left_out() -> None:
    before, during, lasting = incident(10.0, 1.0), incident(10.0, 3.0, victims=5), incident(1.0, 2.0, ongoing=True)
    told = json.dumps([before, during, lasting]).encode()
    assert [each.victims for each in read_incidents(told, since=12.0)] == [5, 0]
    assert len(read_incidents(told, since=None)) == 3


def test_an_incident_is_whole_if_all_of_it_was_watched() -> None:
    earlier, within, lasting = incident(10.0, 3.0), incident(12.5, 1.0), incident(12.5, 1.0, ongoing=True)
    told = json.dumps([earlier, within, lasting]).encode()
    assert [each.whole for each in read_incidents(told, since=12.0)] == [False, True, False]
    assert [each.whole for each in read_incidents(told, since=None)] == [True, True, False]


def test_culprits_of_an_incident() -> None:
    culprits = [{"prompt_tokens": 6000, "share": 0.9, "request_id": "r", "prompt_tokens_source": "estimate"}]
    (found,) = read_incidents(json.dumps([incident(1.0, 1.0, culprits=culprits)]).encode(), None)
    assert found.culprits == (Culprit(6000, 0.9, "r", estimated=True),)


@pytest.mark.parametrize("text", [b"", b"<html>", b'{"advice": 3}', b"[1, 2]"])
def test_what_cannot_be_read_is_left_out(text: bytes) -> None:
    assert read_advice(text) == ()
    assert read_time(text) is None
    assert read_incidents(text, None) == ()
