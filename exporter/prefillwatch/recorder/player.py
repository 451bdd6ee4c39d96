"""Plays a recording at a given speed, and shows it meanwhile if asked to."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import time
from collections.abc import AsyncIterator, Sequence
from typing import Final

from prefillwatch.export.admin import create_app
from prefillwatch.export.admin_server import serve_admin
from prefillwatch.recorder.chunks import Kind
from prefillwatch.recorder.file import RecordingFile
from prefillwatch.recorder.replay import Replay, ReplayClock
from prefillwatch.recorder.summary import Played
from prefillwatch.units import NS

#: The speed that the live page gets when there is none.
_AS_FAST_AS_CAN_BE: Final = 1000.0
#: Waits shorter than this are left out.
_SHORTEST_WAIT_S: Final = 0.002


class Player:
    """``speed``: times as fast as it was; None: as fast as can be. ``admin``: where it is shown meanwhile. ``senders``:
    tenants and priorities are told apart, where the recording has them."""

    def __init__(
        self,
        file: RecordingFile,
        speed: float | None,
        admin: Sequence[socket.socket] = (),
        *,
        senders: bool = False,
    ) -> None:
        self.stop = asyncio.Event()
        self._file = file
        self._speed = speed
        self._clock = ReplayClock()
        self._admin = admin
        self.replay = Replay(file.header, self._clock, senders=senders)
        self.replay.observation.live.rate = speed or _AS_FAST_AS_CAN_BE
        self.replay.observation.live.recording = "playing"

    async def play(self) -> Played:
        """To its end, or until ``stop`` is set. Raises RecordingError where the file is damaged."""
        begun, first_ns = time.monotonic(), 0
        for entry in self._file.entries():
            first_ns = first_ns or entry.now_ns
            if entry.kind == Kind.BEAT:
                await self._wait(begun, (entry.now_ns - first_ns) / NS)
            if self.stop.is_set():
                break
            self.replay.play(entry)
        self.replay.end()
        seconds = (self._clock.now_ns - first_ns) / NS if first_ns else 0.0
        took, file = time.monotonic() - begun, self._file
        return Played(file.path.name, file.header, file.size, seconds, took, file.cut_at, self.stop.is_set())

    async def _wait(self, begun: float, seconds: float) -> None:
        """Until so many seconds of the recording have passed."""
        ahead = begun + seconds / self._speed - time.monotonic() if self._speed is not None else 0.0
        await asyncio.sleep(ahead if ahead > _SHORTEST_WAIT_S else 0)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Inside of the block Ctrl-C sets ``stop``, and what there is to see is shown if it shall be."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.stop.set)
        app = create_app(self.replay.observation)
        serving = asyncio.ensure_future(serve_admin(app, self._admin, self.stop)) if self._admin else None
        try:
            yield
        finally:
            self.stop.set()
            if serving is not None:
                await serving
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)
