"""The admin listener's door against those who are silent, endless, many or slow, and against what lies behind it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.certificate import self_signed
from tests.kit.eventually import soon

from prefillwatch.door import conversation, door, observer_link
from prefillwatch.door.conversation import NotThereError, Pages
from prefillwatch.door.door import Door
from prefillwatch.door.hosts import Hosts
from prefillwatch.relay.certificate import context_of

LIMIT_S = 20.0
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
BEHIND = b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


class Backstage:
    """What is behind the door: plays one script for every connection."""

    def __init__(self) -> None:
        self.script: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]] = answer(b"figures")
        self.why_not = ""
        self.opened = 0
        self.heads: list[bytes] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self.why_not:
            raise NotThereError(self.why_not)
        self.opened += 1
        ours, theirs = socket.socketpair()
        task = asyncio.create_task(self._play(theirs))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.open_connection(sock=ours)

    async def _play(self, opened: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=opened)
        try:
            self.heads.append(await reader.readuntil(b"\r\n\r\n"))
            await self.script(reader, writer)
        except (OSError, EOFError):
            pass
        finally:
            writer.transport.abort()

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def answer(body: bytes, status: bytes = b"200 OK") -> Callable[..., Awaitable[None]]:
    async def script(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 %b\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (status, len(body), body))
        await writer.drain()

    return script


async def nothing(*_: Any) -> None:
    await asyncio.sleep(3600)


async def end_at_once(*_: Any) -> None:
    """As a process that dies."""


class House:
    def __init__(self, port: int, backstage: Backstage, opened: Door) -> None:
        self.port = port
        self.behind = backstage
        self.door = opened
        self._writers: list[asyncio.StreamWriter] = []

    async def connect(self, **more: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Closed when the scene is over."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, **more)
        self._writers.append(writer)
        return reader, writer

    async def close(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.sleep(0.01)

    async def say(self, data: bytes, **more: Any) -> bytes:
        """All that is answered until the other side closes."""
        reader, writer = await self.connect(**more)
        try:
            writer.write(data)
            return await asyncio.wait_for(reader.read(), LIMIT_S)
        finally:
            writer.transport.abort()


def at_home(scene: Callable[[House], Awaitable[None]], **more: Any) -> None:
    async def go() -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        backstage = Backstage()
        own = {"/healthz": lambda: (200, {"status": "ok"}), "/readyz": lambda: (503, {"ready": False})}
        hosts = more.pop("hosts", None)
        opened = Door([listener], Pages(backstage, own, hosts), **more)
        house = House(listener.getsockname()[1], backstage, opened)
        opened.open()
        try:
            await asyncio.wait_for(scene(house), 60)
        finally:
            await house.close()
            await opened.close()
            await backstage.close()
            listener.close()

    asyncio.run(go())


def body_of(answered: bytes) -> Any:
    return json.loads(answered.partition(b"\r\n\r\n")[2])


# --- What is answered at the door, and what goes on


def test_health_is_answered_here_and_everything_else_goes_on() -> None:
    async def scene(house: House) -> None:
        healthy = await house.say(HEALTH)
        assert healthy.startswith(b"HTTP/1.1 200 ")
        assert body_of(healthy) == {"status": "ok"}
        assert b"X-Frame-Options: DENY" in healthy
        assert (await house.say(HEALTH.replace(b"health", b"ready"))).startswith(b"HTTP/1.1 503 ")
        assert house.behind.opened == 0
        assert (await house.say(BEHIND)).endswith(b"\r\n\r\nfigures")
        assert b"GET /metrics HTTP/1.1" in house.behind.heads[0]

    at_home(scene)


def test_only_looking_is_possible_at_the_doors_own_pages() -> None:
    async def scene(house: House) -> None:
        answered = await house.say(HEALTH.replace(b"GET", b"POST"))
        assert answered.startswith(b"HTTP/1.1 405 ")
        assert b"Allow: GET, HEAD" in answered
        head = await house.say(HEALTH.replace(b"GET", b"HEAD"))
        assert head.startswith(b"HTTP/1.1 200 ")
        assert head.endswith(b"\r\n\r\n")

    at_home(scene)


def test_a_connection_is_kept_for_the_next_request() -> None:
    async def scene(house: House) -> None:
        reader, writer = await house.connect()
        for _ in range(3):
            writer.write(BEHIND.replace(b"Connection: close\r\n", b""))
            assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
            assert await reader.readexactly(7) == b"figures"
        writer.write(BEHIND.replace(b"Connection: close\r\n", b"") * 5)  # pipelined
        assert (await reader.readuntil(b"figures")).count(b"200") == 1
        writer.transport.abort()

    at_home(scene)


def test_an_answer_in_pieces_comes_piece_by_piece() -> None:
    async def script(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
        await asyncio.sleep(0.2)
        writer.write(b"3\r\ntwo\r\n0\r\n\r\n")
        await writer.drain()

    async def scene(house: House) -> None:
        house.behind.script = script
        reader, writer = await house.connect()
        writer.write(BEHIND)
        assert (await reader.readuntil(b"one\r\n")).endswith(b"3\r\none\r\n")
        assert await reader.read() == b"3\r\ntwo\r\n0\r\n\r\n"
        writer.transport.abort()

    at_home(scene)


def test_an_answer_that_is_cut_off_behind_the_door_has_no_false_end() -> None:
    async def script(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
        await writer.drain()

    async def scene(house: House) -> None:
        house.behind.script = script
        reader, writer = await house.connect()
        writer.write(BEHIND)
        with pytest.raises(ConnectionResetError):
            await reader.read()
        writer.transport.abort()

    at_home(scene)


def test_no_piece_waits_for_the_one_before_to_be_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    class Watched(conversation.Conversation):
        async def run(self) -> None:
            opened = self._writer.get_extra_info("socket")
            seen.append(opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            await super().run()

    monkeypatch.setattr(door, "Conversation", Watched)

    async def scene(house: House) -> None:
        assert b" 200 " in await house.say(BEHIND)

    at_home(scene)
    assert seen == [1]


# --- Names


def test_a_name_that_is_not_ours_is_refused_but_for_the_probes() -> None:
    async def scene(house: House) -> None:
        evil = await house.say(BEHIND.replace(b"Host: a", b"Host: evil.example:9843"))
        assert evil.startswith(b"HTTP/1.1 421 ")
        assert "admin_hosts" in body_of(evil)["error"]
        assert house.behind.opened == 0
        assert b" 200 " in await house.say(HEALTH.replace(b"Host: a", b"Host: evil.example"))
        for name in (b"127.0.0.1:9843", b"[::1]:1", b"localhost", b"ours.example"):
            assert b" 200 " in await house.say(BEHIND.replace(b"Host: a", b"Host: " + name))

    at_home(scene, hosts=Hosts(["ours.example"]))


# --- Those who are silent, endless or slow


def test_silent_connections_keep_nobody_out(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(house: House) -> None:
        silent = [await house.connect() for _ in range(600)]
        for request in (HEALTH, BEHIND):
            assert b" 200 " in await house.say(request)
        left = [reader for reader, _ in silent if reader.at_eof() or reader.exception()]
        assert len(left) >= 500
        assert len(house.door._visits) <= 32
        for _, writer in silent:
            writer.transport.abort()

    with caplog.at_level(logging.WARNING):
        at_home(scene, most=32)
    assert len(caplog.records) == 1  # not one for each


def test_the_longest_silent_goes_first_and_who_is_answered_stays() -> None:
    async def scene(house: House) -> None:
        busy_reader, busy = await house.connect()
        house.behind.script = nothing
        busy.write(BEHIND)
        await soon(lambda: house.behind.opened)
        kept_reader, kept = await house.connect()  # older than all the silent, and asks now and then
        silent = [await house.connect() for _ in range(6)]
        kept.write(HEALTH.replace(b"Connection: close\r\n", b""))
        await kept_reader.readuntil(b'"ok"}')
        newest = [await house.connect() for _ in range(3)]

        def gone() -> list[bool]:
            return [reader.at_eof() or bool(reader.exception()) for reader, _ in silent]

        await soon(lambda: sum(gone()) >= 3)
        assert gone() == [True] * 3 + [False] * 3
        assert not kept_reader.at_eof()
        assert not busy_reader.at_eof()
        for _, writer in [*silent, *newest, (kept_reader, kept), (busy_reader, busy)]:
            writer.transport.abort()

    at_home(scene, most=8)


def test_when_all_are_being_answered_one_more_is_turned_away() -> None:
    async def scene(house: House) -> None:
        house.behind.script = nothing
        busy = [await house.connect() for _ in range(8)]
        for _, writer in busy:
            writer.write(BEHIND)
        await soon(lambda: house.behind.opened == 8)
        reader, _ = await house.connect()
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        for _, writer in busy:
            writer.transport.abort()

    at_home(scene, most=8)


def test_a_head_without_end_is_refused_when_it_is_too_long() -> None:
    async def scene(house: House) -> None:
        reader, writer = await house.connect()
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + b"ab:cd\r\n" * (conversation.MOST_HEAD_BYTES // 7))
        assert b" 431 " in await asyncio.wait_for(reader.readline(), LIMIT_S)
        sent = 0
        with contextlib.suppress(ConnectionError):
            while sent < 64 << 20:
                writer.write(b"ab:cd\r\n" * 1000)
                sent += 7000
                await asyncio.wait_for(writer.drain(), LIMIT_S)
        assert sent < 16 << 20  # what the sockets hold

    at_home(scene)


@pytest.mark.parametrize("beginning", [b"", b"GET /healthz HTTP/1.1\r\nHost: x\r\n"])
def test_who_does_not_come_to_the_point_is_let_go(beginning: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "REQUEST_LIMIT_S", 0.3)

    async def scene(house: House) -> None:
        reader, writer = await house.connect()
        writer.write(beginning)

        async def trickle() -> None:
            while beginning:
                writer.write(b"a")
                await asyncio.sleep(0.05)

        trickling = asyncio.create_task(trickle())
        answered = await asyncio.wait_for(reader.read(), LIMIT_S)
        assert answered.startswith(b"HTTP/1.1 408 " if beginning else b"")
        trickling.cancel()
        writer.transport.abort()

    at_home(scene)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"THIS IS NOT HTTP\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100), 400),
        (b"GET /healthz HTTP/1.1\r\n\r\n", 400),  # without Host
        (b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n" + bytes(100000), 413),
        (b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx", 400),
    ],
)
def test_what_is_no_request_is_told_so(request_: bytes, status: int) -> None:
    async def scene(house: House) -> None:
        answered = await house.say(request_)
        assert answered.startswith(b"HTTP/1.1 %d " % status)
        assert body_of(answered)["error"]
        assert b" 200 " in await house.say(HEALTH)

    at_home(scene)


def test_thousands_of_requests_at_once_let_others_have_their_turn() -> None:
    async def scene(house: House) -> None:
        _, writer = await house.connect()
        writer.write(HEALTH.replace(b"Connection: close\r\n", b"") * 20_000)
        await asyncio.sleep(0.05)
        before = len(house.door._visits)
        assert b" 200 " in await house.say(HEALTH)
        assert before == 1  # it is not through yet, and we were
        assert len(house.door._visits) >= 1
        writer.transport.abort()

    at_home(scene)


# --- What lies behind


def test_an_observer_that_is_not_there_is_said_and_why() -> None:
    async def scene(house: House) -> None:
        house.behind.why_not = "there is no observer: it (pid 7) was killed by SIGSYS"
        answered = await house.say(BEHIND)
        assert answered.startswith(b"HTTP/1.1 503 ")
        assert body_of(answered) == {"error": house.behind.why_not}
        assert b"Retry-After" in answered
        assert b" 200 " in await house.say(HEALTH)

    at_home(scene)


def test_an_observer_that_is_busy_keeps_nobody_waiting_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "ANSWER_LIMIT_S", 0.2)

    async def scene(house: House) -> None:
        house.behind.script = nothing
        answered = await house.say(BEHIND)
        assert answered.startswith(b"HTTP/1.1 503 ")
        assert "busy" in body_of(answered)["error"]

    at_home(scene)


def test_one_that_dies_before_it_answers_is_asked_again_and_does_nothing_twice() -> None:
    async def scene(house: House) -> None:
        house.behind.script = end_at_once
        asking = asyncio.create_task(house.say(BEHIND))
        await soon(lambda: house.behind.opened >= 2)
        house.behind.script = answer(b"at last")
        assert (await asking).endswith(b"at last")
        house.behind.script, house.behind.opened = end_at_once, 0
        written = await house.say(b"POST /api/flight HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert written.startswith(b"HTTP/1.1 503 ")
        assert house.behind.opened == 1

    at_home(scene)


def test_headers_of_one_connection_do_not_reach_the_other() -> None:
    async def scene(house: House) -> None:
        await house.say(
            b"POST /x HTTP/1.1\r\nHost: a\r\nX-Mine: yes\r\nConnection: close\r\nTE: trailers\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
        )
        (head,) = (head.lower() for head in house.behind.heads)
        assert b"x-mine: yes" in head
        assert b"content-length: 3" in head
        assert head.count(b"connection:") == 1
        assert b"chunked" not in head
        assert b"te:" not in head.replace(b"content-", b"")

    at_home(scene)


def test_who_stops_reading_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "PIECE_LIMIT_S", 0.3)

    async def script(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"10000\r\n" + bytes(65536) + b"\r\n")
            await writer.drain()

    async def scene(house: House) -> None:
        house.behind.script = script
        with socket.create_connection(("127.0.0.1", house.port)) as stuck:
            stuck.sendall(BEHIND)
            await soon(lambda: house.behind.opened)
            await soon(lambda: not house.door._visits)

    at_home(scene)


# --- TLS


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, Path]]:
    return [self_signed(tmp_path_factory.mktemp(f"tls{number}")) for number in range(2)]


def trusting(certificate: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificate))


def serving(pair: tuple[Path, Path]) -> ssl.SSLContext:
    return context_of(b"".join(path.read_bytes() for path in pair))


def test_silent_handshakes_keep_nobody_out(
    certificates: list[tuple[Path, Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "REQUEST_LIMIT_S", 0.5)
    certificate, _ = certificates[0]

    async def scene(house: House) -> None:
        silent = [await house.connect() for _ in range(60)]
        for request in (HEALTH, BEHIND):
            assert b" 200 " in await house.say(request, ssl=trusting(certificate))
        await asyncio.wait_for(asyncio.gather(*(reader.read() for reader, _ in silent), return_exceptions=True), 20)
        for _, writer in silent:
            writer.transport.abort()

    at_home(scene, most=16, tls=serving(certificates[0]))


def test_another_certificate_is_for_new_connections(certificates: list[tuple[Path, Path]]) -> None:
    async def scene(house: House) -> None:
        reader, writer = await house.connect(ssl=trusting(certificates[0][0]))
        house.door.tls = serving(certificates[1])
        assert b" 200 " in await house.say(HEALTH, ssl=trusting(certificates[1][0]))
        writer.write(HEALTH)
        assert b" 200 " in await reader.readline()
        writer.transport.abort()

    at_home(scene, tls=serving(certificates[0]))


# --- Faults of ours


def test_a_fault_of_ours_ends_one_connection_and_quotes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(house: House) -> None:
        async def broken() -> Any:
            raise RuntimeError("something secret")

        house.behind.open = broken  # type: ignore[method-assign]
        with pytest.raises(ConnectionResetError):
            await house.say(BEHIND)
        assert b" 200 " in await house.say(HEALTH)

    at_home(scene)
    assert "RuntimeError in broken" in caplog.text
    assert "secret" not in caplog.text


def test_a_client_that_has_gone_is_no_fault_of_ours(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def too_late(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()
        raise RuntimeError("unable to perform operation; the handler is closed")  # as uvloop says it

    monkeypatch.setattr(door, "_say_goodbye", too_late)

    async def scene(house: House) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", house.port)
        writer.write(HEALTH)
        await reader.read()
        writer.close()

    at_home(scene)
    assert caplog.text == ""


def test_without_descriptors_somebody_is_let_go_and_the_door_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    accept = socket.socket.accept
    full = iter([True, True, False])

    def accept_or_not(self: socket.socket) -> Any:
        if next(full, False):
            raise OSError(24, "Too many open files")
        return accept(self)

    async def scene(house: House) -> None:
        monkeypatch.setattr(socket.socket, "accept", accept_or_not)
        assert b" 200 " in await house.say(HEALTH)

    at_home(scene)


# --- The link to the observer


def test_what_is_passed_on_arrives_and_an_observer_that_ends_is_noticed() -> None:
    async def go() -> None:
        link = observer_link.ObserverLink()
        theirs = socket.socket(fileno=os.dup(link.new_channel()))
        theirs.setblocking(False)
        link.handed_over()
        reader, writer = await link.open()
        (passed,) = observer_link.take_passed(theirs) or []
        passed.sendall(b"hello")
        assert await reader.readexactly(5) == b"hello"
        waiting, other = await link.open()  # waits in the channel while the observer dies
        theirs.close()
        link.lost("it was killed", hopeless=True)
        assert await asyncio.wait_for(waiting.read(), LIMIT_S) == b""
        with pytest.raises(NotThereError, match="it was killed"):
            await link.open()
        passed.close()
        for each in (writer, other):
            each.transport.abort()

    asyncio.run(go())


def test_an_observer_that_takes_nothing_costs_a_bounded_number() -> None:
    async def go() -> None:
        link = observer_link.ObserverLink()
        theirs = socket.socket(fileno=os.dup(link.new_channel()))
        link.handed_over()
        opened: list[Any] = []
        with contextlib.suppress(NotThereError):
            while len(opened) < 1000:
                opened.append(await link.open())
        assert 16 <= len(opened) <= observer_link.MOST_AT_ONCE
        for _, writer in opened:
            writer.transport.abort()
        link.lost("it ends")
        theirs.close()

    asyncio.run(go())


def test_who_waits_for_an_observer_gets_the_next_one() -> None:
    async def go() -> None:
        link = observer_link.ObserverLink()
        waiting = asyncio.create_task(link.open())
        await asyncio.sleep(0.05)
        assert not waiting.done()
        theirs = socket.socket(fileno=os.dup(link.new_channel()))
        link.handed_over()
        _, writer = await asyncio.wait_for(waiting, LIMIT_S)
        writer.transport.abort()
        await asyncio.sleep(0.05)
        link.lost("it ends")
        (passed,) = observer_link.take_passed(theirs) or []
        assert passed.recv(1) == b""
        passed.close()
        assert observer_link.take_passed(theirs) is None
        theirs.close()

    asyncio.run(go())
