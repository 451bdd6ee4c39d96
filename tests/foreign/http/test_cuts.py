"""Where bytes are cut on their way is chance; what becomes of them must not be."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

import pytest
from tests.foreign.http import data
from tests.foreign.http.machines import Receiver, hear_answer, pieces_of
from tests.foreign.http.mutations import ANSWERS, REQUESTS, mutated, some_cuts
from tests.foreign.http.stage import stage

from prefillwatch.relay.exchange.commands import Farewell

#: Set it, and every cut of every input is tried (minutes); else every one of the short inputs, a sample of the others.
ALL = bool(os.environ.get("PWTEST_FOREIGN_ALL_CUTS"))
_SHORT = 200
_SAMPLE = 40


def cuts_of(message: bytes) -> Iterator[list[int]]:
    step = 1 if ALL or len(message) <= _SHORT else max(1, len(message) // _SAMPLE)
    for at in range(1, len(message), step):
        yield [at]
    if len(message) <= 2000:
        yield list(range(len(message)))


def requests(name: str) -> list[bytes]:
    if name == "mutations":
        return list(mutated(REQUESTS, 1, 400))
    return [case.data for case in (data.h2o() if name == "h2o" else data.llhttp("request") + data.llhttp("response"))]


@pytest.mark.parametrize("name", ["h2o", "llhttp", "mutations"])
def test_what_is_heard_of_a_client_does_not_depend_on_the_cuts(name: str) -> None:
    receiver = Receiver()
    tried = 0
    for message in requests(name):
        whole = receiver.hear([message])
        for cuts in cuts_of(message):
            assert receiver.hear(pieces_of(message, cuts)) == whole, (message, cuts)
            tried += 1
    print(f"{name}: {tried} cuts")
    assert tried > 10_000


@pytest.mark.parametrize("inject", [False, True])
def test_what_a_client_gets_of_an_answer_does_not_depend_on_the_cuts(inject: bool) -> None:
    path = b"/v1/chat/completions" if inject else b"/"
    for request in (b"POST %b HTTP/1.1\r\nHost: a\r\n\r\n" % path, b"HEAD / HTTP/1.0\r\n\r\n"):
        for answer in [*(case.data for case in data.llhttp("response")), *mutated(ANSWERS, 2, 300)]:
            for closes in (False, True):
                whole = hear_answer(request, [answer], closes=closes, inject=inject)
                for cuts in cuts_of(answer):
                    got = hear_answer(request, pieces_of(answer, cuts), closes=closes, inject=inject)
                    assert same(got, whole, inject=inject), (answer, cuts, closes)


def same(got: tuple[Any, ...], whole: tuple[Any, ...], *, inject: bool) -> bool:
    """What turns out to be no answer is told in a 502 where nothing of it has left, and broken off where it has."""
    if got == whole:
        return True
    if all(end and end[0] in (Farewell.CLOSE, Farewell.BREAK_OFF, Farewell.RESET) for *_, end, _ in (got, whole)):
        return True
    return inject and got[1:] == whole[1:] and unchunked(got[0]) == unchunked(whole[0])


def unchunked(message: bytes) -> bytes:
    """Where something is stripped, chunks are made anew from what each read brought."""
    head, _, body = message.partition(b"\r\n\r\n")
    payload = b""
    while body:
        size, _, rest = body.partition(b"\r\n")
        length = int(size, 16)
        payload += rest[:length]
        body = rest[length + 2 :] if length else b""
    return head + payload


def test_nor_over_sockets() -> None:
    with stage() as opened:
        for number, message in enumerate(mutated(REQUESTS, 3, 150)):
            whole = opened.run(message)
            cut = opened.run(message, some_cuts(message, number))
            assert undated(cut.answers) == undated(whole.answers), message
            assert (cut.ended, cut.requests) == (whole.ended, whole.requests), message


def undated(answers: bytes) -> bytes:
    """Our own errors tell the time, and the second may change between two of them."""
    return re.sub(rb"\r\nDate: [^\r]*", b"", answers)
