"""The soak itself: a crowd that goes on, and one fault after the other."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import ssl
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import httpx
from tests.fakes.certificate import self_signed
from tests.kit.processes import is_alive
from tests.soak.clients import Crowd
from tests.soak.plans import plans
from tests.soak.records import Records, counted, growth
from tests.soak.seen import Seen
from tests.soak.stage import Sidecar, SmallDisk, SoakError, Upstream, WallClock, until

#: Seconds between two tokens of a stream: 2,000 of them make 2,500 tokens a second, which two cores can also read.
_GAP_S: Final = 0.8
_RELAYS: Final = 2
#: A mute relay is ended by the supervisor after 10 s; the rest is for a busy machine.
_MUTE_LIMIT_S: Final = 40.0
_BETWEEN_S: Final = 2.0
#: The stretch whose requests are counted on both sides.
_COUNTED_S: Final = 15.0

#: Clients of the sidecar that serves TLS, and connections after which every relay has shown its certificate.
_TLS_STREAMS: Final = 50
_LOOKS: Final = 12

Fault = Callable[[], Awaitable[None]]


class Soak:
    """One run; see the package's `__main__`."""

    def __init__(self, folder: Path, seed: int, streams: int, say: Callable[[str], None]) -> None:
        self.folder = folder
        self.seed = seed
        self.streams = streams
        self.say = say
        self.records = Records()
        self.samples: list[dict[str, list[Any]]] = []
        self.chance = random.Random(seed)

    async def run(self, seconds: float) -> list[str]:
        """What went wrong, in words."""
        self.loop = asyncio.get_running_loop()
        self.upstream = await asyncio.to_thread(Upstream, self.folder)
        self.clock = WallClock(self.folder)
        self.disk = SmallDisk(self.folder)
        try:
            self.sidecar = await asyncio.to_thread(self._start_sidecar)
            try:
                await self._all(seconds)
            finally:
                self.sidecar.kill()
        finally:
            self.disk.remove()
            self.upstream.stop()
        return self.records.told()

    def _start_sidecar(self) -> Sidecar:
        arguments = ["--relays", str(_RELAYS), "--flight-recorder-dir", str(self.disk.folder), "--log-format", "json"]
        return Sidecar(self.folder, self.upstream.url, *arguments, environment=self.clock.environment())

    def log_end(self) -> str:
        """The last lines of the sidecar's log, for whoever has to find out why."""
        logs = sorted(self.folder.glob("sidecar-*.log"))
        return "\n".join(line for log in logs for line in log.read_text(errors="replace").splitlines()[-40:])

    async def _all(self, seconds: float) -> None:
        began = self.loop.time()
        crowd = Crowd(self.sidecar.url, plans(self.seed, gap_s=_GAP_S), self.records.add)
        self.say(f"{self.streams} streams, seed {self.seed}")
        idle = await asyncio.to_thread(self.sidecar.samples)
        keeping = asyncio.create_task(self._keep(crowd))
        try:
            await self._until_full(crowd)
            cycle = 0
            while not cycle or self.loop.time() - began < seconds - 60:
                cycle += 1
                await self._cycle(cycle)
        finally:
            keeping.cancel()
        await crowd.drain()
        self.records.judge()
        for what in growth(self.samples):
            self.records.blame(what)
        await self._books(crowd)
        await self._back_to_nothing(idle)
        await self._end_of_the_supervisor()
        self.say(f"{sum(self.records.ends.values())} requests, {self.records.tokens} tokens: {dict(self.records.ends)}")

    async def _keep(self, crowd: Crowd) -> None:
        while True:
            await crowd.keep(self.streams, 3600.0)

    async def _until_full(self, crowd: Crowd) -> None:
        while len(crowd.running) < 0.9 * self.streams:
            await asyncio.sleep(0.1)
        self.say(f"{len(crowd.running)} clients are there")

    async def _cycle(self, number: int) -> None:
        """Every fault once, in an order of its own."""
        order: list[Fault] = [
            self._observer_stopped,
            self._observer_ended,
            self._relay_stopped,
            self._relay_ended,
            self._relay_mute,
            self._supervisor_stopped,
            self._upstream_restarted,
            self._disk_full,
            self._clock_stepped,
            self._certificates_renewed,
        ]
        self.chance.shuffle(order)
        for fault in order:
            began = self.loop.time()
            await fault()
            await asyncio.sleep(_BETWEEN_S)
            await self._sample()
            seen = self.records.judge()
            worst = max((one.worst_gap_s for one in seen if not self.records.is_excused(one)), default=0.0)
            name = fault.__name__.strip("_").replace("_", " ")
            self.say(
                f"cycle {number}, {name}: {self.loop.time() - began:.0f} s, {len(seen)} requests ended, "
                f"longest silence of those not hit {worst:.1f} s, {len(self.records.wrong)} wrong so far"
            )

    async def _sample(self) -> None:
        self.samples.append(await asyncio.to_thread(self.sidecar.samples))

    async def _pids(self, role: str) -> list[int]:
        return await asyncio.to_thread(self.sidecar.pids, role)

    async def _until(self, condition: Callable[[], bool], what: str, limit_s: float = 30.0) -> None:
        try:
            await asyncio.to_thread(until, condition, what, limit_s)
        except SoakError as error:
            self.records.blame(str(error))

    async def _value(self, name: str, **labels: str) -> float:
        metrics = await asyncio.to_thread(self.sidecar.metrics)
        return metrics.value(name, **labels)

    # Faults that no client may notice
    # -----------------------------------------------------------------------------------------------------------------

    async def _observer_stopped(self) -> None:
        (pid,) = await self._pids("observer")
        os.kill(pid, signal.SIGSTOP)
        await asyncio.sleep(3.0)
        os.kill(pid, signal.SIGCONT)
        await self._until(lambda: self.sidecar.status("/metrics") == 200, "the observer answers after a stop")

    async def _observer_ended(self) -> None:
        (pid,) = await self._pids("observer")
        os.kill(pid, signal.SIGKILL)
        await self._until(lambda: self._has_another("observer", {pid}), "another observer answers")
        await self._until(lambda: self.sidecar.state()["decoding"] > 0, "the new observer knows streams that go on")

    def _has_another(self, role: str, known: set[int]) -> bool:
        return len(set(self.sidecar.pids(role)) - known) > 0

    async def _relay_stopped(self) -> None:
        """For a moment, as a host that is busy does it."""
        pid = self.chance.choice(await self._pids("relay"))
        os.kill(pid, signal.SIGSTOP)
        await asyncio.sleep(2.0)
        os.kill(pid, signal.SIGCONT)

    async def _supervisor_stopped(self) -> None:
        os.kill(self.sidecar.pid, signal.SIGSTOP)
        await asyncio.sleep(3.0)
        os.kill(self.sidecar.pid, signal.SIGCONT)
        await self._until(self.sidecar.is_ready, "ready after the supervisor was stopped")

    async def _disk_full(self) -> None:
        """For the flight recorder; with room again it writes again."""
        await asyncio.to_thread(self.disk.fill)
        before = set(self.disk.files())
        await asyncio.to_thread(self._ask_for_flight)
        await asyncio.sleep(2.0)
        healthy = await asyncio.to_thread(self.sidecar.status, "/healthz") == 200
        self.records.expect(healthy, "healthy while the disk is full")
        broken = sorted(path.name for path in set(self.disk.files()) - before)
        self.records.expect(not broken, f"a full disk left half a recording behind: {broken}")
        self.disk.empty()
        await self._until(self._writes_flights, "a recording is written when there is room again")

    def _ask_for_flight(self) -> None:
        httpx.post(f"{self.sidecar.admin}/api/flight", timeout=10)

    def _writes_flights(self) -> bool:
        before = set(self.disk.files())
        self._ask_for_flight()
        time.sleep(1.0)
        return bool(set(self.disk.files()) - before)

    async def _clock_stepped(self) -> None:
        for step in (3600.0, -7200.0, 0.0):
            self.clock.step(step)
            await asyncio.sleep(2.0)
        longest = max((seen.worst_gap_s for seen in self.records.seen), default=0.0)
        told = await self._value("inter_token_latency_max_seconds", window="10s", population="all")
        self.records.expect(told < longest + 60, f"a step of the clock became a gap of {told:.0f} s")

    async def _certificates_renewed(self) -> None:
        """On a sidecar of its own: streams go on, new connections get the new one."""
        folder = self.folder / f"tls-{self.chance.randrange(10**9)}"
        folder.mkdir()
        files = await asyncio.to_thread(self_signed, folder)
        arguments = ["--relays", str(_RELAYS), "--tls-cert", str(files[0]), "--tls-key", str(files[1])]
        sidecar = await asyncio.to_thread(Sidecar, self.folder, self.upstream.url, *arguments)
        try:
            crowd = Crowd(sidecar.url, plans(self.seed + 1, gap_s=_GAP_S / 4, calm=True), self.records.add)
            keeping = asyncio.create_task(crowd.keep(_TLS_STREAMS, 6.0))
            await asyncio.sleep(2.0)
            await asyncio.to_thread(self_signed, folder)
            renewed = files[0].read_text()
            os.kill(sidecar.pid, signal.SIGHUP)
            await self._until(lambda: _served(sidecar.port) == {renewed}, "all relays serve the renewed certificate")
            await keeping
            await crowd.drain()
        finally:
            await asyncio.to_thread(sidecar.stop)

    # Faults that break what they hit, and must not lie about it
    # -----------------------------------------------------------------------------------------------------------------

    async def _relay_ended(self) -> None:
        await self._without_a_relay(signal.SIGKILL, "the relay is started again", 30.0)

    async def _relay_mute(self) -> None:
        await self._without_a_relay(signal.SIGSTOP, "a mute relay is ended and started again", _MUTE_LIMIT_S)

    async def _without_a_relay(self, number: signal.Signals, what: str, limit_s: float) -> None:
        known = await self._pids("relay")
        pid = self.chance.choice(known)
        before = await asyncio.to_thread(self._lost)
        began = self.loop.time()
        os.kill(pid, number)
        await self._until(lambda: self._has_another("relay", set(known)), what, limit_s)
        await self._until(self.sidecar.is_ready, f"ready after {what}")
        if is_alive(pid):
            os.kill(pid, signal.SIGCONT)
        self.records.excuse(began, self.loop.time())
        await self._until(lambda: self._lost() > before, "the streams of the relay that ended are told to be lost")
        lost = await asyncio.to_thread(self._lost) - before
        for what in self.records.lost_since(began, lost):
            self.records.blame(what)

    def _lost(self) -> float:
        return self.sidecar.metrics().value("relay_lost_streams_total")

    async def _upstream_restarted(self) -> None:
        began = self.loop.time()
        await asyncio.to_thread(self.upstream.restart)
        await self._until(self.sidecar.is_ready, "ready after upstream is back")
        self.records.excuse(began, self.loop.time())

    # The end
    # -----------------------------------------------------------------------------------------------------------------

    async def _books(self, crowd: Crowd) -> None:
        """A stretch in which no process is touched: outcomes and tokens must be equal on both sides."""
        before = await self._outcomes()
        await crowd.keep(self.streams // 2, _COUNTED_S)
        await crowd.drain()
        await asyncio.sleep(1.0)
        after = await self._outcomes()
        seen: list[Seen] = self.records.judge()
        dropped = await self._value("tap_dropped_total")
        outcomes = {
            name: after[name] - before[name] for name in after if name != "tokens" and after[name] != before[name]
        }
        for what in counted(seen).against(outcomes, after["tokens"] - before["tokens"]):
            self.records.blame(f"{what} ({dropped:.0f} tap packets were dropped)")
        self.say(f"books of {len(seen)} requests: {outcomes}")

    async def _outcomes(self) -> dict[str, float]:
        metrics = await asyncio.to_thread(self.sidecar.metrics)
        names = ("ok", "error", "error_in_stream", "upstream_truncated", "client_closed", "empty", "rejected")
        found = {name: metrics.value("requests_total", outcome=name, endpoint="chat_completions") for name in names}
        return {**found, "tokens": metrics.value("generated_tokens_total")}

    async def _back_to_nothing(self, idle: dict[str, list[Any]]) -> None:
        """Nobody is there any more: no gauge says otherwise, and descriptors are back."""
        await asyncio.sleep(3.0)
        metrics = await asyncio.to_thread(self.sidecar.metrics)
        for name in ("decoding_streams", "prefilling_requests", "prefilling_tokens", "frozen_streams"):
            self.records.expect(metrics.value(name) == 0, f"{name} is {metrics.value(name):.0f} with nobody there")
        await asyncio.sleep(5.0)  # idle connections to upstream are kept for some seconds
        for role, now in (await asyncio.to_thread(self.sidecar.samples)).items():
            held, at_first = (max(one.descriptors for one in side) for side in (now, idle[role]))
            self.records.expect(
                held <= at_first + 4, f"a {role} holds {held} descriptors with nobody there, {at_first} before"
            )

    async def _end_of_the_supervisor(self) -> None:
        """Ended the hard way it takes everything with it, and leaves its addresses free."""
        pids = [process["pid"] for process in (await asyncio.to_thread(self.sidecar.state))["processes"]]
        self.sidecar.kill()
        await self._until(lambda: not any(map(is_alive, pids)), f"all of {pids} end with their supervisor", 10.0)
        self.sidecar = await asyncio.to_thread(self._start_sidecar)
        self.records.expect(await asyncio.to_thread(self.sidecar.stop) == 0, "SIGTERM ends an idle sidecar with code 0")


def _served(port: int) -> set[str]:
    """The certificates that new connections get."""
    return {ssl.get_server_certificate(("127.0.0.1", port)) for _ in range(_LOOKS)}
