"""What the live page costs: CPU of the observer's process while nobody, one or five watch 256 streams, in one run.

The observer and its admin server run in this process, fed as relays would; viewers are threads that read `/api/live`
over sockets. Counted is the CPU time of the observer's thread alone, less what feeding it took.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import statistics
import threading
import time
from collections.abc import Iterator

import uvloop
from tests.bench.observer import DATA, STEP_NS, STREAMS, chunk, open_streams
from tests.bench.programs import BenchError

from prefillwatch.core.inputs import Models, TapPacket
from prefillwatch.export.admin import create_app
from prefillwatch.export.admin_server import serve_admin
from prefillwatch.observer.observation import Observation
from prefillwatch.observer.process import BEAT_S
from prefillwatch.settings.declared import DEFAULTS
from prefillwatch.settings.views import analysis_view
from prefillwatch.units import NS
from prefillwatch.wire.tap import PacketBuilder

VIEWERS = (0, 1, 5)
PATIENCE_S = 30.0


def measure(seconds: float, rounds: int) -> dict[str, float]:
    """Microseconds of CPU per second, by viewers: medians of so many rounds, in each of which all have their turn."""
    return uvloop.run(_measure(seconds, rounds))


async def _measure(seconds: float, rounds: int) -> dict[str, float]:
    listener, stop = socket.create_server(("127.0.0.1", 0)), asyncio.Event()
    port = listener.getsockname()[1]
    observed = Observed()
    server = asyncio.create_task(serve_admin(create_app(observed.observation), [listener], stop))
    feeding = asyncio.create_task(observed.feed())
    turns: dict[int, list[float]] = {viewers: [] for viewers in VIEWERS}
    try:
        for _ in range(rounds):
            for viewers in VIEWERS:
                with watching(port, viewers) as seen:
                    if not all(await asyncio.gather(*(asyncio.to_thread(each.wait, PATIENCE_S) for each in seen))):
                        raise BenchError("a viewer of the live page was shown nothing")
                    turns[viewers].append(await observed.cpu_us_per_second(seconds))
                while observed.observation.viewers:
                    await asyncio.sleep(0.01)
    finally:
        feeding.cancel()
        stop.set()
        await asyncio.gather(feeding, server, return_exceptions=True)
    figures = {name_of(viewers): statistics.median(turn) for viewers, turn in turns.items()}
    return {f"µs of CPU per second, {name}": value for name, value in figures.items()}


def name_of(viewers: int) -> str:
    return {0: "nobody watches", 1: "1 viewer"}.get(viewers, f"{viewers} viewers")


class Observed:
    """An observer of streams that have 40 tokens a second each, a step of the engine at a time."""

    def __init__(self) -> None:
        self.observation = Observation(analysis_view(DEFAULTS))
        self.observation.feed(Models(("bench",)))
        self._builder = PacketBuilder(relay=0, epoch=1)
        self._feeding_ns = 0

    async def feed(self) -> None:
        for record in open_streams(time.monotonic_ns(), range(1, STREAMS + 1)):
            self._builder.add(*record)
        due, beat_due, number = time.monotonic(), 0.0, 0
        while True:
            number += 1
            packets = self._step(number)
            for packet in packets:
                self.observation.feed(TapPacket(packet))
            if time.monotonic() >= beat_due:
                self.observation.beat()
                beat_due = time.monotonic() + BEAT_S
            due = max(due + STEP_NS / NS, time.monotonic())
            await asyncio.sleep(due - time.monotonic())

    def _step(self, number: int) -> list[bytes]:
        began = time.thread_time_ns()
        for stream in range(1, STREAMS + 1):
            self._builder.add(time.monotonic_ns(), stream, DATA, chunk(stream, number))
        packets = self._builder.take_all()
        self._feeding_ns += time.thread_time_ns() - began
        return packets

    async def cpu_us_per_second(self, seconds: float) -> float:
        began, spent = time.monotonic(), self._own_ns()
        await asyncio.sleep(seconds)
        return (self._own_ns() - spent) / 1000 / (time.monotonic() - began)

    def _own_ns(self) -> int:
        return time.thread_time_ns() - self._feeding_ns


@contextlib.contextmanager
def watching(port: int, viewers: int) -> Iterator[list[threading.Event]]:
    """So many viewers; the events are set as they are shown something new."""
    leave = threading.Event()
    seen = [threading.Event() for _ in range(viewers)]
    threads = [threading.Thread(target=_watch, args=(port, leave, frames), daemon=True) for frames in seen]
    for thread in threads:
        thread.start()
    try:
        yield seen
    finally:
        leave.set()  # each looks at it with every frame, so that nobody here need wait


def _watch(port: int, leave: threading.Event, frames: threading.Event) -> None:
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as connection:
        connection.sendall(b"GET /api/live HTTP/1.1\r\nHost: bench\r\n\r\n")
        while not leave.is_set() and (data := connection.recv(1 << 20)):
            if b"event: frame" in data:
                frames.set()
