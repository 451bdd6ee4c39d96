"""llhttp's answers as upstream's: none becomes complete with a meaning that nobody gives it, and only HTTP passes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from tests.foreign.http import data
from tests.foreign.http.judges import by_h11, meanings
from tests.foreign.http.machines import hear_answer

from prefillwatch.relay.exchange.commands import Farewell
from prefillwatch.relay.exchange.state import State

RUNS = list(itertools.product((b"GET", b"HEAD"), (0, 1), (False, True), (False, True)))


def client_reads(method: bytes, heard: tuple[Any, ...]) -> Any:
    """What the client makes of what it got; None where it can see that the answer is not complete."""
    client, _, end, state = heard
    if end and end[0] is Farewell.RESET:
        return None
    return by_h11(client, method, closed=state is State.ENDING or bool(end))


def faults(case: data.Case) -> Iterator[str]:
    for method, minor, closes, bytewise in RUNS:
        request = b"%b / HTTP/1.%d\r\nHost: a\r\n\r\n" % (method, minor)
        pieces = [case.data[at : at + 1] for at in range(len(case.data))] if bytewise else [case.data]
        heard = hear_answer(request, pieces, closes=closes)
        wanted = meanings(case.data, method, closed=closes)
        got = client_reads(method, heard)
        run = f"{case.name} to {method.decode()} of HTTP/1.{minor}, {closes=}, {bytewise=}"
        if got is not None and got not in wanted:
            yield f"{run}: became {got}, others find {wanted or 'nothing'}"
        if heard[0] and not heard[0].startswith(b"HTTP/1.1 "):
            yield f"{run}: passed on {heard[0][:40]!r}"


def test_an_answer_means_what_somebody_finds_in_it() -> None:
    cases = data.llhttp("response")
    assert len(cases) * len(RUNS) > 1300
    assert [fault for case in cases for fault in faults(case)] == []


def test_many_of_them_are_answers_and_pass() -> None:
    request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
    passed = [
        case.name
        for case in data.llhttp("response")
        if client_reads(b"GET", hear_answer(request, [case.data], closes=True)) is not None
    ]
    assert len(passed) > 25
