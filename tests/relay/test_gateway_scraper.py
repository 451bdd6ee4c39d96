"""The endpoint picker of the Gateway API's inference extension reads vLLM's own page through the data port.

It is Go's HTTP client: these are the bytes that it sends, every 50 ms on a connection per pod that it keeps.
"""

from __future__ import annotations

from pathlib import Path

from tests.relay.peers import ScriptedUpstream
from tests.relay.running import RunningRelay

from prefillwatch.wire.tap import Kind

SCRAPE = (
    b"GET /metrics HTTP/1.1\r\nHost: 10.0.3.17:8000\r\nUser-Agent: Go-http-client/1.1\r\nAccept-Encoding: gzip\r\n\r\n"
)
PAGES = Path(__file__).parents[1] / "data" / "metrics"
VLLM = (PAGES / "vllm_0_33_two_engines.txt").read_bytes()


def answer(page: bytes) -> bytes:
    """As uvicorn sends it."""
    head = (
        b"HTTP/1.1 200 OK\r\ndate: Tue, 01 Dec 2026 12:00:00 GMT\r\nserver: uvicorn\r\n"
        b"content-length: %d\r\ncontent-type: text/plain; version=0.0.4; charset=utf-8\r\n\r\n"
    )
    return head % len(page) + page


def test_the_page_comes_byte_for_byte_over_one_connection_on_either_side(
    relay: RunningRelay, upstream: ScriptedUpstream
) -> None:
    gateway = relay.connect()
    server = None
    for number in range(20):
        gateway.send(SCRAPE)
        server = server or upstream.accept()
        asked = server.head()
        assert asked.replace(b"127.0.0.1:%d" % upstream.port, b"10.0.3.17:8000") == SCRAPE
        page = answer(VLLM.replace(b" 0.0\n", b" %d.0\n" % number))
        server.send(page)
        assert gateway.exactly(len(page)) == page
    assert len(upstream.peers) == 1


def test_nothing_of_the_page_is_shown_to_the_observer(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    gateway = relay.connect()
    gateway.send(SCRAPE)
    server = upstream.accept()
    server.head()
    server.send(answer(VLLM))
    gateway.exactly(len(answer(VLLM)))
    relay.tap.wait(Kind.END)
    assert relay.tap.request().path == "/metrics"
    assert not relay.tap.response().observed
    assert relay.tap.payload() == b""


def test_a_compressed_page_stays_compressed(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    compressed = bytes(range(256)) * 40
    page = answer(compressed).replace(b"content-type", b"content-encoding: gzip\r\ncontent-type")
    gateway = relay.connect()
    gateway.send(SCRAPE)
    server = upstream.accept()
    server.head()
    server.send(page)
    assert gateway.exactly(len(page)) == page
