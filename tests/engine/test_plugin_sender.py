"""The plugin's end of the link: a sidecar that is not there, does not read or goes away costs only reports."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from prefillwatch.engine.plugin.sender import RETRY_NS, Sender
from prefillwatch.engine.step_report import StepReport, decode

STEP = StepReport(0, 1, 1)


class Clock:
    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sender(tmp_path: Path, clock: Clock) -> Iterator[Sender]:
    sender = Sender(str(tmp_path / "engine.sock"), clock)
    yield sender
    sender.close()


class Listener:
    """A sidecar's end."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "engine.sock"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.bind(str(self.path))
        self.socket.listen(4)

    def accept(self) -> socket.socket:
        return self.socket.accept()[0]

    def close(self) -> None:
        self.socket.close()
        self.path.unlink()


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[Listener]:
    listener = Listener(tmp_path)
    yield listener
    listener.close()


def test_steps_arrive(sender: Sender, listener: Listener) -> None:
    steps = [StepReport(0, 2, 3, gaps=[(0.5, 2)]), StepReport(1, 4, 5, prefill_tokens=0)]
    sender.send(steps)
    with listener.accept() as link:
        assert decode(link.recv(1 << 17)).steps == steps


def test_many_steps_are_sent_in_parts(sender: Sender, listener: Listener) -> None:
    sender.send([STEP] * 40)
    with listener.accept() as link:
        assert [len(decode(link.recv(1 << 17)).steps) for _ in range(3)] == [16, 16, 8]


def test_nobody_there(sender: Sender) -> None:
    sender.send([STEP] * 3)
    assert sender.dropped == 3


def test_one_that_comes_later_is_found_and_told_what_it_missed(sender: Sender, tmp_path: Path, clock: Clock) -> None:
    sender.send([STEP])
    listener = Listener(tmp_path)
    sender.send([STEP])  # not looked for again so soon
    clock.now_ns += RETRY_NS
    sender.send([STEP])
    with listener.accept() as link:
        assert decode(link.recv(1 << 17)).dropped == 2
    listener.close()


def test_one_that_goes_away_and_comes_back(sender: Sender, tmp_path: Path, clock: Clock) -> None:
    first = Listener(tmp_path)
    sender.send([STEP])
    first.accept().close()
    first.close()
    sender.send([STEP])
    assert sender.dropped == 1
    second = Listener(tmp_path)
    clock.now_ns += RETRY_NS
    sender.send([STEP])
    with second.accept() as link:
        assert len(decode(link.recv(1 << 17)).steps) == 1
    second.close()


def test_one_that_does_not_read(sender: Sender, listener: Listener) -> None:
    for _ in range(5000):
        sender.send([STEP] * 16)
    assert 0 < sender.dropped < 5000 * 16
    with listener.accept() as link:
        link.recv(1 << 17)
        sender.send([STEP])
        told = sender.dropped
        link.setblocking(False)
        last = None
        while (packet := _receive(link)) is not None:
            last = packet
        assert last is not None
        assert decode(last).dropped == told


def _receive(link: socket.socket) -> bytes | None:
    try:
        return link.recv(1 << 17)
    except BlockingIOError:
        return None


def test_a_path_that_cannot_be_a_socket(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / ("long" * 40), tmp_path / "missing" / "engine.sock"):
        sender = Sender(str(path))
        sender.send([STEP])
        assert sender.dropped == 1


def test_a_packet_that_is_too_large_is_dropped_and_the_link_stays(sender: Sender, listener: Listener) -> None:
    sender.send([StepReport(0, 1, 1, gaps=[(index * 1e-7, 1) for index in range(20_000)])])
    sender.send([STEP])
    assert sender.dropped == 1
    with listener.accept() as link:
        assert decode(link.recv(1 << 17)).steps == [STEP]
