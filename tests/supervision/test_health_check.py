"""One health check over real sockets: what each way of not answering is called."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from prefillwatch.supervision.health_check import HealthCheck
from prefillwatch.supervision.upstream_health import Check, Outcome

Serve = Callable[..., str]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """A server that says the same to everybody and closes; b"" closes at once, None says nothing."""
    opened: list[socket.socket] = []
    over = threading.Event()

    def answer(listener: socket.socket, says: bytes | None) -> None:
        while not over.is_set():
            try:
                client, _ = listener.accept()
            except OSError:
                return
            if says is None:
                opened.append(client)
                continue
            if says:
                client.recv(4096)
                client.sendall(says)
            client.close()

    def serve(says: bytes | None, family: int = socket.AF_INET) -> str:
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.bind(str(tmp_path / "s") if family == socket.AF_UNIX else ("127.0.0.1", 0))
        listener.listen()
        opened.append(listener)
        threading.Thread(target=answer, args=(listener, says), daemon=True).start()
        name = listener.getsockname()
        return f"unix:{name}" if family == socket.AF_UNIX else f"http://127.0.0.1:{name[1]}"

    yield serve
    over.set()
    for each in opened:
        if each.type == socket.SOCK_STREAM:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        each.close()


def ask(upstream: str, limit_s: float = 10.0) -> Check:
    return asyncio.run(HealthCheck(upstream, limit_s=limit_s).ask())


def says(status: bytes) -> bytes:
    return b"HTTP/1.1 %b\r\nContent-Length: 0\r\n\r\n" % status


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (b"200 OK", Outcome.ANSWERED),
        (b"404 Not Found", Outcome.ANSWERED),
        (b"401 Unauthorized", Outcome.ANSWERED),
        (b"307 Temporary Redirect", Outcome.ANSWERED),
        (b"500 Internal Server Error", Outcome.ILL),
        (b"503 Service Unavailable", Outcome.ILL),
    ],
)
def test_any_answer_is_one_but_one_that_says_the_server_is_ill(serve: Serve, status: bytes, outcome: Outcome) -> None:
    check = ask(serve(says(status)))
    assert (check.outcome, check.detail) == (outcome, f"it says {status[:3].decode()}")


def test_a_server_that_hangs_is_late_and_the_time_is_told(serve: Serve) -> None:
    check = ask(serve(None), limit_s=0.2)
    assert check.outcome is Outcome.LATE
    assert check.seconds >= 0.2


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200", b"what?\r\n\r\n", b"x" * 200_000])
def test_a_connection_that_breaks_off_is_lost(serve: Serve, answer: bytes) -> None:
    assert ask(serve(answer)).outcome is Outcome.LOST


def test_a_port_that_nobody_has_is_refused() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        assert ask(f"http://127.0.0.1:{nobody.getsockname()[1]}").outcome is Outcome.REFUSED


def test_a_socket_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert ask(f"unix:{tmp_path}/none").outcome is Outcome.REFUSED


def test_over_a_unix_socket(serve: Serve) -> None:
    assert ask(serve(says(b"200 OK"), socket.AF_UNIX)).outcome is Outcome.ANSWERED


def test_a_name_is_tried_on_all_its_addresses(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    port = int(serve(says(b"200 OK")).rpartition(":")[2])
    found = [(socket.AF_INET, 1, 6, "", (host, port)) for host in ("127.0.0.2", "127.0.0.1")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **more: found)
    assert ask(f"http://localhost:{port}").outcome is Outcome.ANSWERED


def test_a_name_that_is_not_known_is_lost() -> None:
    assert ask("http://no.such.name.invalid:80").outcome is Outcome.LOST
    assert ask(f"http://{'x' * 70}.invalid:80").outcome is Outcome.LOST  # no name at all
