"""Setting after setting: the server is started, measured and stopped, and its row is written."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from prefillwatch.errors import ConfigError, PrefillwatchError
from prefillwatch.lab.stopping import Stopped, cancelled, unless_stopped
from prefillwatch.lab.sweep.figures import MixFigures, Outcome, ProbeFigures, spread
from prefillwatch.lab.sweep.grid import Setting, command_with
from prefillwatch.lab.sweep.lag import LagWatch
from prefillwatch.lab.sweep.measure import Bound, Say
from prefillwatch.lab.sweep.redaction import without_secrets
from prefillwatch.lab.sweep.server import Server, ServerError
from prefillwatch.lab.sweep.store import Store
from prefillwatch.lab.target import Target, TargetError, reach
from prefillwatch.own_process import python_module
from prefillwatch.report import duration
from prefillwatch.settings.addresses import UNIX
from prefillwatch.supervision import UpstreamCommand, free_port, prepare

Measured = tuple[tuple[ProbeFigures, ...], MixFigures | None]
#: Does the measurement on a server that is up.
Measure = Callable[[Target, Say], Awaitable[Measured]]
T = TypeVar("T")

_OURSELVES: Final = "prefillwatch"
_LAST_BREATH_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class SweepSettings:
    """What is swept, and with how much patience. ``upstream`` and ``api_key`` only where the command does not tell."""

    command: tuple[str, ...]
    settings: tuple[Setting, ...]
    upstream: str | None = None
    model: str | None = None
    api_key: str | None = None
    start_limit_seconds: float = 900.0
    stop_limit_seconds: float = 30.0
    #: A folder for the whole output of each server.
    logs: Path | None = None

    def prepared(self, setting: Setting) -> UpstreamCommand:
        """The command of a setting with its port. Raises ConfigError where it cannot be told."""
        found = prepare(command_with(self.command, setting), self.upstream, free_port)
        if found.upstream.startswith(UNIX):
            raise ConfigError("a sweep talks to its server over TCP; leave --uds out of the command")
        return replace(found, argv=_findable(found.argv))

    def longest_seconds(self, each: Bound) -> float:
        """The most seconds that one setting can take."""
        return self.start_limit_seconds + each.longest_seconds + self.stop_limit_seconds


def row_label(setting: Setting) -> str:
    """What a setting is called in reports and files: its flags, without secrets."""
    return Setting(without_secrets(setting.flags)).label


class Sweep:
    """One sweep. ``stop`` ends it: the server at hand is stopped, and what was measured before is kept."""

    def __init__(
        self, settings: SweepSettings, measure: Measure, limit: Bound, store: Store, say: Say, stop: asyncio.Event
    ) -> None:
        self._settings = settings
        self._measure = measure
        self._limit = limit
        self._store = store
        self._say = say
        self._stop = stop

    async def run(self) -> bool:
        """Whether the sweep was completed. Raises ConfigError for a command that cannot be used, ResultsError."""
        for setting in self._settings.settings:
            self._settings.prepared(setting)
        for number, setting in enumerate(self._settings.settings, 1):
            label = row_label(setting)
            if self._store.measured(label):
                self._tell(number, label, "measured before")
                continue
            try:
                self._store.add(await unless_stopped(self._row(number, setting, label), self._stop))
            except Stopped:
                self._tell(number, label, "interrupted; its server is stopped")
                return False
        self._store.results.finished_at = time.time()
        self._store.write()
        return True

    def _tell(self, number: int, label: str, text: str) -> None:
        self._say(f"[{number}/{len(self._settings.settings)}] {label}: {text}")

    async def _row(self, number: int, setting: Setting, label: str) -> Outcome:
        """Never fails because of a server: the row then says what went wrong. Raises ConfigError."""

        def tell(text: str) -> None:
            self._tell(number, label, text)

        outcome = Outcome(flags=without_secrets(setting.flags), label=label)
        try:
            outcome = await self._with_server(number, setting, outcome, tell)
        except PrefillwatchError as error:
            if isinstance(error, ConfigError) and all(row.failure for row in self._store.results.settings):
                raise  # it would be the same with every other setting
            failure = " ".join(str(error).split())
            tell(f"FAILED: {failure}")
            return msgspec.structs.replace(outcome, failure=failure)
        tell("done")
        return outcome

    async def _with_server(self, number: int, setting: Setting, outcome: Outcome, tell: Say) -> Outcome:
        prepared, logs = self._settings.prepared(setting), self._settings.logs
        tell("starting the server")
        began = time.monotonic()
        async with Server(
            prepared.argv,
            prepared.upstream,
            log=logs / f"{number:02}.log" if logs else None,
            stop_seconds=self._settings.stop_limit_seconds,
        ) as server:
            await server.ready(self._settings.start_limit_seconds)
            took = time.monotonic() - began
            tell(f"ready after {duration(took)}")
            async with LagWatch() as lag:
                probes, mix, model = await _unless_it_dies(server, self._measured(prepared, tell))
        self._store.results.model = self._store.results.model or model
        return msgspec.structs.replace(
            outcome, start_seconds=took, probes=probes, mix=mix, client_lag=spread(lag.seconds)
        )

    async def _measured(
        self, prepared: UpstreamCommand, tell: Say
    ) -> tuple[tuple[ProbeFigures, ...], MixFigures | None, str]:
        key = prepared.api_key or self._settings.api_key
        # Our own child on our own machine: nobody else has to trust its certificate.
        target = await reach(prepared.upstream, api_key=key, model=self._settings.model, insecure=True)
        limit = self._limit.longest_seconds
        try:
            probes, mix = await asyncio.wait_for(self._measure(target, tell), limit)
        except asyncio.TimeoutError:
            raise ServerError(f"not measured within {duration(limit)}; the server is up but too slow") from None
        return probes, mix, target.model


async def _unless_it_dies(server: Server, work: Coroutine[Any, Any, T]) -> T:
    """The result of the work, unless the server ends first. Then it raises ServerError, whatever error the work ended
    with."""
    doing = asyncio.ensure_future(work)
    dying = asyncio.ensure_future(server.ended())
    try:
        await asyncio.wait((doing, dying), return_when=asyncio.FIRST_COMPLETED)
        if doing.done() and isinstance(doing.exception(), TargetError):
            # Clients see a dying server's closed connections a moment before we see its end.
            await asyncio.wait((dying,), timeout=_LAST_BREATH_S)
        if dying.done():
            raise ServerError(f"the server {dying.result()} (while it was measured)")
        return doing.result()
    finally:
        dying.cancel()
        await cancelled(doing)


def _findable(command: Sequence[str]) -> tuple[str, ...]:
    """Our own simulator can be run even where `prefillwatch` is not on the search path."""
    if command and command[0] == _OURSELVES and shutil.which(_OURSELVES) is None:
        return python_module(_OURSELVES, *command[1:])
    return tuple(command)
