"""Exchanges leave nothing for the garbage collector, which would hold up every stream while it looks for it."""

from __future__ import annotations

import gc
import ssl
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.fakes.certificate import in_one_file
from tests.kit.eventually import eventually
from tests.relay.peers import LAST_CHUNK, STREAM_HEAD, Peer, ScriptedUpstream, chunk, event, post
from tests.relay.running import RunningRelay

from prefillwatch.relay.certificate import shared_memory, write_shared

TIMES = 5
#: What upstream, then client, do once the answer has begun.
ENDS: dict[str, Callable[[Peer, Peer], object]] = {
    "it comes whole": lambda server, client: (server.send(LAST_CHUNK), client.until(LAST_CHUNK)),
    "the client leaves": lambda server, client: (client.close(), server.end()),
    "upstream leaves": lambda server, client: (server.reset(), client.end()),
    "upstream sends what is no chunk": lambda server, client: (server.send(b"no chunk\r\n"), client.end()),
}


@pytest.fixture(autouse=True)
def no_collection() -> Iterator[None]:
    gc.disable()
    yield
    gc.set_debug(0)
    gc.garbage.clear()
    gc.enable()


def left_behind(relay: RunningRelay, story: Callable[[], None]) -> list[object]:
    """Objects of ours in cycles that nobody holds any more, once the story has been told a few times."""
    story()  # what is made once only is made now
    gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)
    for _ in range(TIMES):
        story()
    assert eventually(lambda: not relay.relay.clients and not relay.relay.exchanges)
    gc.collect()
    return [each for each in gc.garbage if type(each).__module__.startswith("prefillwatch")]


@pytest.mark.parametrize("end", ENDS)
def test_an_answer_leaves_none_however_it_ends(relay: RunningRelay, upstream: ScriptedUpstream, end: str) -> None:
    def story() -> None:
        with closing(relay.connect()) as client:
            client.send(post())
            with closing(upstream.accept()) as server:
                server.head()
                server.exactly(15)
                server.send(STREAM_HEAD + chunk(event(1)))
                client.until(chunk(event(1)))
                ENDS[end](server, client)

    assert not left_behind(relay, story)


@pytest.mark.parametrize("sent", [b"rubbish\r\n\r\n", b""], ids=["no HTTP", "nothing"])
def test_an_upstream_that_does_not_answer_leaves_none(
    relay: RunningRelay, upstream: ScriptedUpstream, sent: bytes
) -> None:
    def story() -> None:
        with closing(relay.connect()) as client:
            client.send(post())
            with closing(upstream.accept()) as server:
                server.head()
                server.exactly(15)
                server.send(sent)
            client.head()

    assert not left_behind(relay, story)


def test_a_request_that_is_refused_leaves_none(relay: RunningRelay) -> None:
    def story() -> None:
        with closing(relay.connect()) as client:
            client.send(b"rubbish\r\n\r\n")
            client.end()

    assert not left_behind(relay, story)


def test_a_client_over_tls_leaves_none(
    start: Callable[..., RunningRelay], upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    pem, memory = in_one_file(tmp_path), shared_memory()
    write_shared(memory, pem.read_bytes())
    relay = start(tls_fd=memory)
    context = ssl.create_default_context(cafile=str(pem))

    def story() -> None:
        opened = context.wrap_socket(relay.connect().socket, server_hostname="127.0.0.1")
        with closing(Peer(opened)) as client:
            client.send(post())
            with closing(upstream.accept()) as server:
                server.head()
                server.exactly(15)
                server.send(STREAM_HEAD + LAST_CHUNK)
                client.until(LAST_CHUNK)

    assert not left_behind(relay, story)


def test_a_relay_collects_when_nothing_is_in_flight(
    start: Callable[..., RunningRelay], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Node:
        def __init__(self) -> None:
            self.itself = self

    monkeypatch.setattr("prefillwatch.relay.relay._COLLECT_IDLE", 100)
    start()
    nodes = [Node() for _ in range(1000)]
    one = weakref.ref(nodes[0])
    del nodes
    assert one() is not None
    assert eventually(lambda: one() is None)
