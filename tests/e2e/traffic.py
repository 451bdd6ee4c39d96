"""Traffic for tests that watch a sidecar from afar: readers, documents, and clients that read slowly."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import socket
import threading
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

from prefillwatch.lab.client import Answer, ask
from prefillwatch.lab.load import Kind, LoadSettings, request_body, run_load

#: Longer than any test here, patience included.
LIMIT_S = 400.0
JOIN_S = 30.0


@contextlib.contextmanager
def readers(url: str, count: int, *kinds: Kind, model: str = "sim-4b") -> Iterator[None]:
    """So many streams all the time, and requests of other kinds in between, until the end of the block."""
    settings = LoadSettings(url, model, duration_seconds=LIMIT_S, victims=count, kinds=kinds)
    loop = asyncio.new_event_loop()
    task = loop.create_task(run_load(settings))
    thread = threading.Thread(target=_run, args=(loop, task), daemon=True)
    thread.start()
    try:
        yield
    finally:
        _cancel(loop, task, thread)
        assert not thread.is_alive()


def _cancel(loop: asyncio.AbstractEventLoop, task: asyncio.Task[object], thread: threading.Thread) -> None:
    """More than once: before Python 3.12 a wait that is over at that moment swallows it."""
    deadline = time.monotonic() + JOIN_S
    while thread.is_alive() and time.monotonic() < deadline:
        with contextlib.suppress(RuntimeError):  # the loop is closed already
            loop.call_soon_threadsafe(task.cancel)
        thread.join(1.0)


def _run(loop: asyncio.AbstractEventLoop, task: asyncio.Task[object]) -> None:
    with contextlib.suppress(asyncio.CancelledError), contextlib.closing(loop):
        loop.run_until_complete(task)


def paste_document(url: str, tokens: int, model: str = "sim-4b", traceparent: str = "") -> Answer:
    """One long prompt, from being sent until it is answered, in a trace if one is given."""
    body = request_body(model, Kind("document", (tokens, tokens), (5, 5)), tokens, random.Random(tokens))
    headers = {"traceparent": traceparent} if traceparent else {}
    return asyncio.run(ask(url, body, headers=headers, timeout_seconds=LIMIT_S))


@contextlib.contextmanager
def slow_reader(url: str, tokens: int, model: str = "sim-4b") -> Iterator[None]:
    """A client that reads a long answer in sips, so that whoever writes to it is held up.

    Small segments keep the kernel's buffer small at the other end too: on loopback it would take megabytes.
    """
    address = urlsplit(url)
    body = {
        "model": model,
        "stream": True,
        "max_tokens": tokens,
        "ignore_eos": True,
        "messages": [{"role": "user", "content": "Tell me everything."}],
    }
    payload = json.dumps(body).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Length: {len(payload)}\r\n"
    enough = threading.Event()
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
        connection.connect((address.hostname, address.port))
        connection.sendall(f"{head}Content-Type: application/json\r\n\r\n".encode() + payload)
        thread = threading.Thread(target=_sip, args=(connection, enough), daemon=True)
        thread.start()
        try:
            yield
        finally:
            enough.set()
            thread.join(JOIN_S)


def _sip(connection: socket.socket, enough: threading.Event) -> None:
    while not enough.wait(1.5):
        with contextlib.suppress(BlockingIOError):
            connection.recv(4000, socket.MSG_DONTWAIT)
