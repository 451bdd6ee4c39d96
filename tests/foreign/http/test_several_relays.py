"""The whole sidecar with two relays that ask for usage, and many clients at once that send what nobody should."""

from __future__ import annotations

import contextlib
import socket
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from urllib.parse import urlsplit

from tests.e2e.processes import Sidecar
from tests.foreign.http.machines import pieces_of
from tests.foreign.http.mutations import REQUESTS, mutated, some_cuts
from tests.foreign.http.readings import origin_form
from tests.foreign.http.stage import Origin, Read, read_all
from tests.kit.eventually import eventually

COUNT = 400
#: What the sidecar asks of upstream itself.
_ITS_OWN = (b"/health", b"/metrics", b"/v1/models", b"/version", b"/server_info", b"/props", b"/slots")


def send(address: tuple[str, int], data: bytes, seed: int) -> bytes:
    """The answers that come within a while."""
    received = b""
    with socket.create_connection(address, timeout=0.5) as opened, contextlib.suppress(OSError):
        for piece in pieces_of(data, some_cuts(data, seed)):
            opened.sendall(piece)
        while part := opened.recv(1 << 16):
            received += part
    return received


def key(read: Read) -> tuple[bytes, bytes]:
    return read.method, origin_form(read)


def test_what_reaches_upstream_was_sent_by_somebody() -> None:
    messages = list(mutated(REQUESTS, 40, COUNT))
    meant = Counter(key(read) for message in messages for read in read_all(message)[0])
    with closing(Origin()) as origin:
        sidecar = Sidecar(
            "serve", "--upstream", origin.url, "--relays", "2", "--usage", "inject", "--gpu", "off", ready=False
        )
        try:
            parts = urlsplit(sidecar.url)
            address = (parts.hostname or "", parts.port or 0)
            with ThreadPoolExecutor(16) as clients:
                answers = list(clients.map(lambda item: send(address, item[1], item[0]), enumerate(messages)))
            assert all(answer == b"" or answer.startswith(b"HTTP/1.1 ") for answer in answers)
            eventually(lambda: not sidecar.value("prefilling_requests") and not sidecar.value("decoding_streams"))
            assert len(sidecar.pids("relay")) == 2
            for stream in origin.streams:
                reads, refused = read_all(bytes(stream))
                assert not refused, bytes(stream)
                for read in reads:
                    assert meant[key(read)] or read.target in _ITS_OWN, read
            assert sum(len(read_all(bytes(stream))[0]) for stream in origin.streams) > COUNT // 10
        finally:
            sidecar.kill()
