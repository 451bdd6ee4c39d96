"""Good requests and answers with something wrong in them: nothing is smuggled, mixed up or left behind."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.certificate import self_signed
from tests.foreign.http import data
from tests.foreign.http.judges import meanings
from tests.foreign.http.machines import hear_answer
from tests.foreign.http.mutations import ANSWERS, REQUESTS, mutated, some_cuts
from tests.foreign.http.readings import faults
from tests.foreign.http.stage import Origin, Stage
from tests.foreign.http.test_answers import client_reads
from tests.kit.eventually import eventually

from prefillwatch.relay.certificate import shared_memory, write_shared

#: Ways in and out of a relay beside plain TCP, and how many cases each gets.
WAYS = {"plain": 1000, "usage injected": 250, "TLS": 150, "unix socket": 150}


@pytest.fixture
def open_stage(tmp_path: Path) -> Iterator[Callable[[str], Stage]]:
    with ExitStack() as stack:

        def open_stage(way: str) -> Stage:
            options: dict[str, Any] = {}
            origin = Origin(path=str(tmp_path / "origin")) if way == "unix socket" else None
            if way == "usage injected":
                options["usage"] = "inject"
            if way == "TLS":
                certificate, key = self_signed(tmp_path)
                server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                server.load_cert_chain(certificate, key)
                origin = Origin(context=server)
                options["context"] = ssl.create_default_context(cafile=str(certificate))
                memory = shared_memory()
                stack.callback(os.close, memory)
                write_shared(memory, key.read_bytes() + certificate.read_bytes())
                options |= {"tls_fd": memory, "upstream_ca": str(certificate)}
            opened = Stage(origin, **options)
            stack.callback(opened.close)
            return opened

        yield open_stage


@pytest.mark.parametrize("way", WAYS)
def test_mutated_requests_reach_upstream_as_they_are_or_not_at_all(
    open_stage: Callable[[str], Stage], way: str
) -> None:
    opened = open_stage(way)
    opened.run(REQUESTS[0])
    descriptors = open_descriptors()
    reached = 0
    for number, message in enumerate(mutated(REQUESTS, 10, WAYS[way])):
        outcome = opened.run(message, some_cuts(message, number) if number % 3 == 0 else ())
        assert faults(data.Case(f"{way} {number}", message), outcome, injected=way == "usage injected") == [], message
        reached += len(outcome.requests)
    assert reached > WAYS[way] // 10
    opened.settle()
    assert eventually(lambda: open_descriptors() <= descriptors)
    assert not opened.relay.relay.exchanges


def open_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_mutated_answers_mean_what_somebody_finds_in_them() -> None:
    complete = 0
    for number, answer in enumerate(mutated(ANSWERS, 20, 4000)):
        method, closes = (b"GET", b"HEAD")[number % 7 == 0], number % 2 == 0
        heard = hear_answer(b"%b / HTTP/1.1\r\nHost: a\r\n\r\n" % method, [answer], closes=closes)
        got = client_reads(method, heard)
        assert got is None or got in meanings(answer, method, closed=closes), (method, closes, answer)
        assert heard[0] == b"" or heard[0].startswith(b"HTTP/1.1 "), answer
        complete += got is not None
    assert complete > 500


@pytest.mark.parametrize("answer", ANSWERS)
def test_an_answer_that_breaks_off_anywhere_is_not_complete(answer: bytes) -> None:
    whole = hear_answer(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", [answer], closes=True)
    assert client_reads(b"GET", whole) is not None
    for at in range(len(answer)):
        heard = hear_answer(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", [answer[:at]], closes=True)
        got = client_reads(b"GET", heard)
        assert got is None or got in meanings(answer[:at], b"GET", closed=True), at
