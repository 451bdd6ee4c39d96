"""The observer process: sockets, timers and signals around an `Observation`."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import secrets
import signal
import socket
import sys
from collections.abc import Callable
from typing import Final, Protocol

import msgspec
import uvloop

from prefillwatch import logs
from prefillwatch.core.inputs import Gpus, Health, Look, Models, Page, TapPacket
from prefillwatch.engine.fetch import Fetcher
from prefillwatch.engine.kinds import PageSample
from prefillwatch.engine.nvml import GpuMemoryReader
from prefillwatch.engine.poller import UpstreamPoller
from prefillwatch.engine.upstream import Scrapes
from prefillwatch.export.admin import create_app
from prefillwatch.export.admin_auth import Credentials
from prefillwatch.export.admin_server import serve_passed
from prefillwatch.observer.intake import EngineLink
from prefillwatch.observer.observation import Observation
from prefillwatch.observer.otlp import OtlpPush
from prefillwatch.settings.control import READY_LINE, decode_control
from prefillwatch.settings.processes import ObserverSettings
from prefillwatch.wire.sender import TenantIds
from prefillwatch.wire.tap import MAX_PACKET_BYTES

#: How often the taps are read and what they brought is worked through. Whoever asks gets what is there by then, so more
#: often would show nothing sooner; and each time costs as much as some hundred tokens.
BEAT_S: Final = 0.2
#: The same while somebody looks at the live page, where things are to move smoothly.
WATCHED_BEAT_S: Final = 0.1
#: While a relay has more to report than its socket holds, it is looked at so often, and given up after so many looks in
#: vain. The beat waits for that not longer than this.
_CATCH_UP_S: Final = 0.002
_LOOKS_IN_VAIN: Final = 10
_LONGEST_CATCH_UP_S: Final = 0.5
#: Packets of one relay taken in a row, so that the admin server gets its turn when a backlog is worked off.
_PACKETS_IN_A_ROW: Final = 32
_GPU_INTERVAL_S: Final = 5.0
#: Within this time the supervisor has said that it drains, if the signal that we got was for all of us.
_TERM_PATIENCE_S: Final = 0.3


class Recording(Protocol):
    """Keeps what the core is fed with."""

    def beat(self) -> None:
        """After each beat of the observation."""

    def close(self) -> None:
        """There is no more."""


Recorders = Callable[[ObserverSettings, Observation], Recording | None]


class Observer:
    """Everything one observer process holds."""

    def __init__(self, settings: ObserverSettings, recorders: Recorders = lambda *_: None) -> None:
        """``recorders`` makes what the settings ask for, or nothing."""
        self._settings = settings
        self.observation = Observation(
            settings.analysis,
            plugin=bool(settings.engine_socket),
            scrape_interval_s=settings.scrape_interval,
            exemplars=settings.exemplars,
            exponential=bool(settings.otlp.endpoint),
        )
        self._feed = self.observation.feed
        self._core = self.observation.core
        if settings.tenant_from == "user":
            key = settings.tenant_key or secrets.token_hex()
            self._core.relays.bodies.name_user = TenantIds(key, plain=settings.tenant_names == "plain")
        self.observation.take_in = self._take_in
        self._recording = recorders(settings, self.observation)
        self._fetcher = Fetcher(
            settings.upstream,
            api_key=settings.upstream_api_key,
            ca_file=settings.upstream_ca,
            insecure=settings.upstream_insecure,
        )
        self._page_fetcher, page_path = Fetcher.of_page(
            settings.upstream,
            settings.upstream_metrics_url,
            api_key=settings.upstream_api_key,
            ca_file=settings.upstream_ca,
            insecure=settings.upstream_insecure,
        )
        self._poller = UpstreamPoller(
            self._fetcher,
            pages=self._page_fetcher,
            page_path=page_path,
            busy=lambda: settings.scrape_idle or self._core.in_flight > 0,
            interval_s=settings.scrape_interval,
            listener=self,
        )
        self._otlp = OtlpPush(settings.otlp, self.observation, settings.upstream)
        self._link = EngineLink(settings.engine_socket, self._feed)
        self._tap_sockets: list[socket.socket] = []

    # --- What happens, as inputs of the core ---

    def read_taps(self) -> bool:
        """Take what is there; True when there may be more."""
        # Each gets its turn, whatever the others have.
        return sum(map(self._read_tap, self._tap_sockets)) > 0

    def _read_tap(self, tap: socket.socket) -> bool:
        for _ in range(_PACKETS_IN_A_ROW):
            try:
                data = tap.recv(MAX_PACKET_BYTES)
            except (BlockingIOError, InterruptedError):
                return False
            if not data:
                return False
            self._feed(TapPacket(data))
        return True

    def _take_in(self) -> None:
        self.read_taps()
        self._note_links()

    def _note_links(self) -> None:
        links = self._link.counts()
        if links != self._core.engine_links:
            self._feed(links)

    def on_page(self, page: PageSample, at_ns: int) -> None:
        self._core.feed(Page(page, self.observation.wall_offset()), at_ns)

    def on_models(self, names: tuple[str, ...]) -> None:
        self._feed(Models(names))

    def on_scrapes(self, scrapes: Scrapes) -> None:
        self._feed(scrapes)

    def beat(self) -> None:
        """What is there is worked through, and relays are asked for what is missing."""
        for farewell in self._core.farewells(self.observation.clock()):
            self._feed(farewell)
        for index, tap in enumerate(self._tap_sockets):
            with contextlib.suppress(OSError):  # it does not listen: once it does, its list shows what else to ask
                for packet in self._core.questions(index, self.observation.clock()):
                    tap.send(packet)
        self._note_links()
        self.observation.beat()
        if self._recording is not None:
            self._recording.beat()

    # --- Running ---

    async def run(self) -> None:
        """Until the supervisor is gone, or SIGTERM comes for us alone."""
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        loop.add_signal_handler(signal.SIGTERM, loop.call_later, _TERM_PATIENCE_S, self._end_unless_draining, stop)
        self._tap_sockets = [socket.socket(fileno=descriptor) for descriptor in self._settings.tap_fds]
        for tap in self._tap_sockets:
            tap.setblocking(False)
        if self._settings.engine_socket:
            self._link.open()
        tasks = [
            asyncio.create_task(self._listen_to_supervisor(stop), name="control"),
            asyncio.create_task(self._beat_for_ever(), name="beat"),
            asyncio.create_task(self._poller.run(), name="poller"),
            asyncio.create_task(self._serve_admin(stop), name="admin"),
        ]
        self._otlp.start()
        if self._settings.otlp.endpoint:
            tasks.append(asyncio.create_task(self._otlp.run(), name="otlp"))
        if self._settings.gpu:
            tasks.append(asyncio.create_task(self._watch_gpus(), name="gpus"))
        waiting = asyncio.create_task(stop.wait(), name="stop")
        try:
            await asyncio.wait([*tasks, waiting], return_when=asyncio.FIRST_COMPLETED)
            failed = [task for task in tasks if task.done() and task.exception() is not None]
            for task in (*tasks, waiting):
                task.cancel()
            await asyncio.gather(*tasks, waiting, return_exceptions=True)
            self._link.close()
            self._otlp.push()
            await asyncio.to_thread(self._otlp.close)
            await self._fetcher.close()
            await self._page_fetcher.close()
            for task in failed:
                raise task.exception() or RuntimeError(f"{task.get_name()} failed")
        finally:
            self._finish_recording()

    def _finish_recording(self) -> None:
        """Take in and write what is left."""
        if self._recording is None:
            return
        while self.read_taps():
            pass
        self.beat()
        self._feed(Look())
        self._recording.close()

    def _end_unless_draining(self, stop: asyncio.Event) -> None:
        """SIGTERM may be for the whole group: then answers drain, and we watch until the supervisor goes."""
        if not self._core.control.draining:
            stop.set()

    async def _listen_to_supervisor(self, stop: asyncio.Event) -> None:
        channel = socket.socket(fileno=self._settings.control_fd)
        channel.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=channel)
        writer.write(READY_LINE)
        while line := await reader.readline():
            control = decode_control(line)
            self._feed(control)
            if control.upstream is not None and control.upstream.up is not None:
                self._feed(Health(control.upstream.up))
        stop.set()
        await asyncio.Event().wait()

    async def _beat_for_ever(self) -> None:
        while True:
            await asyncio.sleep(WATCHED_BEAT_S if self.observation.viewers else BEAT_S)
            await self._catch_up()
            self.beat()

    async def _catch_up(self) -> None:
        """Read what there is; while that is old there is more of it, and comes as fast as we read."""
        loop, relays = asyncio.get_running_loop(), self._core.relays
        until = loop.time() + _LONGEST_CATCH_UP_S
        vain = packets = 0
        while True:
            more = self.read_taps()
            before, packets = packets, relays.packets
            vain = 0 if packets > before else vain + 1
            behind = relays.is_behind(self.observation.clock())
            if not more and not (behind and vain < _LOOKS_IN_VAIN and loop.time() < until):
                return
            await asyncio.sleep(0 if more else _CATCH_UP_S)  # the admin server gets its turn

    async def _serve_admin(self, stop: asyncio.Event) -> None:
        channel = socket.socket(fileno=self._settings.admin_fd)
        credentials = Credentials(self._settings.admin_bearer_token or "", self._settings.admin_basic_auth or "")
        await serve_passed(create_app(self.observation, credentials), channel, stop)

    async def _watch_gpus(self) -> None:
        reader = await asyncio.to_thread(GpuMemoryReader)
        while reader.available:
            self._feed(Gpus(await asyncio.to_thread(reader.read)))
            await asyncio.sleep(_GPU_INTERVAL_S)
        await asyncio.Event().wait()


def main(recorders: Recorders = lambda *_: None) -> int:
    """Entry of the process: settings as one JSON document on stdin."""
    settings = msgspec.json.decode(sys.stdin.buffer.readline(), type=ObserverSettings)
    logs.configure(settings.log_level, settings.log_format, "observer")
    observer = Observer(settings, recorders)
    gc.freeze()  # what is loaded by now stays; collections need not look at it again
    uvloop.run(observer.run())
    return 0
