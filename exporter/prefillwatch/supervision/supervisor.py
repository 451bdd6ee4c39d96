"""Starts, restarts and drains the processes: relays, the observer and, for ``run``, the server itself.

It holds what must survive a process of ours: the listening sockets and both ends of every tap. So a relay or observer
that dies is started again on the same sockets, and the other side does not notice more than a pause.

It watches what it started: relays show that they live every second, upstream is asked for its health, and what comes of
it is what ``/healthz`` and ``/readyz`` say, which are answered here, by the process with the least to do. All else that
the admin listener is asked goes on to the observer.

Signals: SIGTERM and SIGINT drain and end; a second one cuts the draining short. SIGHUP has certificates read again, and
SIGUSR1 and SIGUSR2 are ignored. With ``run``, these, SIGQUIT and SIGWINCH go to the command; without, SIGQUIT ends
everything at once.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import signal
from collections.abc import Callable, Sequence
from math import ceil
from typing import Any, Final

from prefillwatch.door.conversation import Page, Pages
from prefillwatch.door.door import Door
from prefillwatch.door.hosts import Hosts
from prefillwatch.door.observer_link import ObserverLink
from prefillwatch.errors import CommandError, ListenError, StartError
from prefillwatch.listening import bind_listeners, close_all, port_of
from prefillwatch.own_process import how_it_ended
from prefillwatch.relay.supervisor_line import Pulse
from prefillwatch.settings.control import Control, ProcessNow, RelayNow, Restarts, UpstreamNow
from prefillwatch.supervision.certificates import Certificate, Certificates
from prefillwatch.supervision.children import Child, Children
from prefillwatch.supervision.control import ControlChannel
from prefillwatch.supervision.engine_socket import EngineSocket
from prefillwatch.supervision.health_check import HealthCheck
from prefillwatch.supervision.keeper import Keeper
from prefillwatch.supervision.launch import Launch
from prefillwatch.supervision.notify import SystemdNotify
from prefillwatch.supervision.relay_line import RelayLine
from prefillwatch.supervision.relay_watch import RelayState, RelayWatch
from prefillwatch.supervision.tap_pair import tap_pair
from prefillwatch.supervision.undertaker import Undertaker
from prefillwatch.supervision.upstream_health import Check, Outcome, UpstreamHealth
from prefillwatch.supervision.wellbeing import readiness, unwell

log = logging.getLogger(__name__)

#: Seconds that a process gets beyond its limit to end by itself before it is killed.
_GRACE_S: Final = 5.0
_SAME_SIGNAL_S: Final = 0.2
#: Seconds that a process gets to end by itself once the user has lost patience.
_CUT_S: Final = 2.0
#: The observer says when it is ready; after this long it is taken to be.
_READY_LIMIT_S: Final = 3.0
_TICK_S: Final = 1.0
#: After this many failures in a row an observer is no longer waited for: requests for metrics are refused at once.
_OBSERVER_FAILURES: Final = 3
_FORWARDED: Final = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT, signal.SIGWINCH)


class Supervisor:
    """One life of prefillwatch: `run` returns the exit code."""

    def __init__(self, launch: Launch) -> None:
        """Binds the addresses. Raises ListenError, and ConfigError for certificates that cannot be used."""
        settings = launch.settings
        self._launch = launch
        self._certificates = Certificates(settings)
        self._listeners = bind_listeners(settings.listen, settings.relays, "listen")
        try:
            (self._admin,) = bind_listeners(settings.admin, 1, "admin")
        except ListenError:
            close_all(itertools.chain(*self._listeners))
            raise
        self._taps = [tap_pair() for _ in range(settings.relays)]
        self._lines = [RelayLine() for _ in range(settings.relays)]
        self.port = port_of(self._listeners[0])
        self.admin_port = port_of(self._admin)
        self._watches = [RelayWatch(f"relay {index}", ceil(settings.mute_limit)) for index in range(settings.relays)]
        self._upstream = UpstreamHealth(settings.health_misses)
        self._check = HealthCheck(
            launch.upstream,
            ca_file=settings.upstream_ca,
            insecure=settings.upstream_insecure,
        )
        self._observer_link = ObserverLink()
        self._engine_socket = EngineSocket(settings.engine_socket, private=launch.command is not None)
        self._systemd = SystemdNotify(os.environ, os.getpid())
        self._draining = False
        self._signalled_at = 0.0
        self._control: ControlChannel | None = None
        self._command: Child | None = None
        self._undertaker: Undertaker | None = None
        self._is_our_server = False

    async def run(self, started: Callable[[], None] = lambda: None) -> int:
        """Run until a signal or the end of the command says to stop. ``started`` is called when the command, if there
        is one, could be started. Raises StartError."""
        self._children = Children()
        self._signals: asyncio.Queue[int] = asyncio.Queue()
        self._cut = asyncio.Event()
        self._observer = Keeper("observer", self._start_observer, self._observer_changed)
        self._relays = [Keeper(watch.name, self._starter(i), self._changed(i)) for i, watch in enumerate(self._watches)]
        self._listen_for_signals()
        pulse = asyncio.create_task(self._systemd.live(lambda: not unwell(self._watches)))
        renewals = asyncio.create_task(self._certificates.watch(self._renewed))
        self._door = self._make_door()
        try:
            self._door.open()
            for line, watch in zip(self._lines, self._watches, strict=True):
                line.listen(self._on_pulse(watch))
            self._command = self._start_command()
            started()
            self._tasks = {
                keeper: asyncio.create_task(keeper.run(), name=keeper.name)
                for keeper in (self._observer, *self._relays)
            }
            self._watching = [asyncio.create_task(each) for each in (self._watch_processes(), self._watch_upstream())]
            number = await self._until_end()
            code = await self._shut_down(number)
        finally:
            pulse.cancel()
            renewals.cancel()
            await self._door.close()
            self._close()
        if any(relay.hopeless.done() for relay in self._relays):
            raise StartError("the relay processes do not stay up; the lines above say why")
        return code

    # --- What is started ---

    def _start_command(self) -> Child | None:
        command = self._launch.command
        if command is None:
            return None
        self._undertaker = Undertaker()
        self._undertaker.of_folder(self._engine_socket.folder)
        try:
            env = {**os.environ, **self._engine_socket.environment(), **self._launch.command_environment()}
            child = self._children.start(command.argv, death_signal=signal.SIGTERM, env=env)
        except OSError as error:
            found = not isinstance(error, FileNotFoundError)
            question = "is it a program that you may run?" if found else "is it installed, and in PATH?"
            raise CommandError(f"cannot start {command.argv[0]!r}: {error.strerror}; {question}", found) from None
        self._undertaker.of_group(child.pid)
        return child

    def _starter(self, index: int) -> Callable[[], Child]:
        def start() -> Child:
            listen_fds = [opened.fileno() for opened in self._listeners[index]]
            tap_fd = self._taps[index][0].fileno()
            tls_fds = (self._certificates.data.fd,) if self._certificates.data else ()
            line = self._lines[index]
            line_fd = line.theirs.fileno()
            line.renew()
            child = self._children.start(
                self._launch.relay_argv,
                death_signal=signal.SIGKILL,
                stdin=self._launch.relay_settings(index, listen_fds, tap_fd, line_fd, *tls_fds),
                pass_fds=(*listen_fds, tap_fd, line_fd, *tls_fds),
                # A new relay may be asked to report again, or get a certificate, before it handles the signal.
                ignored=(signal.SIGUSR2, signal.SIGHUP),
                env=self._launch.environment(),
            )
            self._watches[index].started()
            return child

        return start

    def _start_observer(self) -> Child:
        if self._control is not None:
            self._control.close()
        self._control = control = ControlChannel(self._ask_to_tell_again)
        tap_fds = [observers_end.fileno() for _, observers_end in self._taps]
        admin_fd = self._observer_link.new_channel()
        control_fd = control.theirs.fileno()
        child = self._children.start(
            self._launch.observer_argv,
            death_signal=signal.SIGKILL,
            stdin=self._launch.observer_settings(tap_fds, control_fd, admin_fd, self._engine_socket.path),
            pass_fds=(*tap_fds, control_fd, admin_fd),
            env=self._launch.environment(),
            expendable=True,  # relays carry the tokens, and go on without it
        )
        control.handed_over()
        self._observer_link.handed_over()
        asyncio.get_running_loop().call_later(_READY_LIMIT_S, control.assume_ready)
        return child

    # --- What is watched ---

    def _changed(self, index: int) -> Callable[[], None]:
        """Relay ``index`` was started, or has ended."""

        def changed() -> None:
            if self._relays[index].child is None:
                self._watches[index].ended()
            self._cover()
            self._tell()

        return changed

    def _observer_changed(self) -> None:
        observer = self._observer
        if observer.child is None:
            why = f"there is no observer: it {observer.ending}"
            self._observer_link.lost(why, hopeless=observer.failures >= _OBSERVER_FAILURES)
        self._tell()

    def _on_pulse(self, watch: RelayWatch) -> Callable[[Pulse], None]:
        def pulsed(pulse: Pulse) -> None:
            before = watch.state
            watch.pulsed(pulse)
            if pulse.hearing:
                self._upstream.heard(asyncio.get_running_loop().time())
            if watch.state is not before:
                self._noticed(watch, before)

        return pulsed

    async def _watch_processes(self) -> None:
        """Once a second: which relays have shown no sign of life?"""
        while not self._draining:
            await asyncio.sleep(_TICK_S)
            for watch, keeper in zip(self._watches, self._relays, strict=True):
                before = watch.state
                to_kill = watch.tick()
                if watch.state is not before:
                    self._noticed(watch, before)
                if to_kill and not self._draining:
                    keeper.kill(watch.words())
            if self._control is not None and self._control.tick():
                self._observer.kill("it takes nothing any more of what it is sent")

    def _noticed(self, watch: RelayWatch, before: RelayState) -> None:
        """A relay serves again, or does not any more."""
        if watch.state in (RelayState.MUTE, RelayState.REFUSING):
            log.error("%s", watch.words())
        elif before in (RelayState.MUTE, RelayState.REFUSING):
            log.info("%s serves again", watch.name)
        self._cover()
        self._tell()

    def _cover(self) -> None:
        """Relays that serve welcome the clients of those that do not: the kernel would let them wait."""
        serving = [watch.state is RelayState.SERVING for watch in self._watches]
        away = [self._listeners[index] for index, serves in enumerate(serving) if not serves]
        listeners = [] if self._draining else list(itertools.chain.from_iterable(away))
        for line, serves in zip(self._lines, serving, strict=True):
            if serves:
                line.cover(listeners)

    async def _watch_upstream(self) -> None:
        interval_s = self._launch.settings.scrape_interval
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            self._upstream.checked(self._unless_of_a_stranger(await self._check.ask()))
            self._tell()
            due = max(due + interval_s, loop.time())
            await asyncio.sleep(due - loop.time())

    def _unless_of_a_stranger(self, check: Check) -> Check:
        """Prompts and keys are for the server that we started, not for one that had its port first."""
        held = self._launch.held
        if held is None or check.outcome is not Outcome.ANSWERED or self._is_our_server:
            return check
        stranger = held.stranger()
        self._is_our_server = stranger is None
        if stranger is None:
            return check
        detail = f"port {held.port}, which the command was told to take, belongs to another user ({stranger})"
        log.error("%s; end that process, and start again", detail)
        return Check(Outcome.REFUSED, check.seconds, detail)

    # --- What is answered at the door ---

    def _make_door(self) -> Door:
        settings = self._launch.settings
        own: dict[str, Page] = {"/healthz": self._healthz, "/readyz": self._readyz}
        guarded = settings.admin_bearer_token_file is not None or settings.admin_basic_auth_file is not None
        hosts = None if guarded else Hosts((settings.admin.host, *settings.admin_hosts))
        certificate = self._certificates.admin
        tls = certificate.context if certificate else None
        return Door(self._admin, Pages(self._observer_link, own, hosts), tls)

    def _healthz(self) -> tuple[int, object]:
        reason = unwell(self._watches)
        if reason:
            return 503, {"status": "unwell", "reason": reason}
        if self._observer.child is None and self._observer.failures:
            return 200, {"status": "ok", "observer": self._observer.ending}
        return 200, {"status": "ok"}

    def _readyz(self) -> tuple[int, object]:
        ready, reason = self._ready()
        return (200, {"ready": True}) if ready else (503, {"ready": False, "reason": reason})

    def _ready(self) -> tuple[bool, str]:
        now = asyncio.get_running_loop().time()
        return readiness(self._draining, self._watches, self._upstream.up(now), self._upstream.reason(now))

    # --- What the others are notified of ---

    def _tell(self) -> None:
        if self._control is not None:
            self._control.tell(self._state())

    def _state(self) -> Control:
        processes = [ProcessNow(role="supervisor", pid=os.getpid())]
        processes += [
            ProcessNow(role="relay", pid=keeper.child.pid, index=index)
            for index, keeper in enumerate(self._relays)
            if keeper.child is not None
        ]
        if self._observer.child is not None:
            processes.append(ProcessNow(role="observer", pid=self._observer.child.pid))
        if self._command is not None and not self._command.exited.done():
            processes.append(ProcessNow(role="upstream", pid=self._command.pid))
        restarts = Restarts(relay=sum(keeper.restarts for keeper in self._relays), observer=self._observer.restarts)
        ready, reason = self._ready()
        return Control(
            processes=tuple(processes),
            draining=self._draining,
            restarts=restarts,
            relays=tuple(RelayNow(index=i, state=watch.state.value) for i, watch in enumerate(self._watches)),
            upstream=self._upstream_now(),
            ready=ready,
            reason=reason,
            certificates=self._certificates.expiry,
        )

    def _upstream_now(self) -> UpstreamNow | None:
        check = self._upstream.last
        if check is None:
            return None
        up = self._upstream.up(asyncio.get_running_loop().time())
        return UpstreamNow(up=up, check_seconds=check.seconds, failures=dict(self._upstream.failures))

    def _renewed(self, certificate: Certificate) -> None:
        if certificate is self._certificates.data:
            for relay in self._relays:
                relay.signal(signal.SIGHUP)
        else:
            self._door.tls = certificate.context
        self._tell()

    def _ask_to_tell_again(self) -> None:
        """A new observer is ready: the relays report the exchanges that are running. After the first, all is up."""
        self._systemd.ready()
        if not self._observer.restarts:  # the first has missed nothing: the taps were there before it
            return
        for relay in self._relays:
            relay.signal(signal.SIGUSR2)

    # --- The end ---

    def _listen_for_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._end_by, number)
        for number in _FORWARDED:
            if number == signal.SIGQUIT and self._launch.command is None:
                signal.signal(number, signal.SIG_DFL)  # shells make the jobs of a script ignore it
            else:
                loop.add_signal_handler(number, self._forward, number)

    def _end_by(self, number: int) -> None:
        now = asyncio.get_running_loop().time()
        if self._draining:
            # timeout(1) and others signal the process and its group: one wish, delivered twice.
            if now - self._signalled_at > _SAME_SIGNAL_S:
                log.warning("second signal: running answers are cut now")
                self._cut.set()
            return
        self._signalled_at = now
        self._signals.put_nowait(number)

    def _forward(self, number: int) -> None:
        if number == signal.SIGHUP:
            self._certificates.look(self._renewed, asked=True)
        if self._command is not None:
            self._command.signal(number)

    async def _until_end(self) -> int | None:
        """The signal that ends us; None when the command ended by itself or the relays do not stay up."""
        signalled = asyncio.create_task(self._signals.get())
        ends: list[asyncio.Future[Any]] = [signalled, *(relay.hopeless for relay in self._relays)]
        if self._command is not None:
            ends.append(self._command.exited)
        try:
            await asyncio.wait([*ends, *self._tasks.values()], return_when=asyncio.FIRST_COMPLETED)
        finally:
            signalled.cancel()
        return signalled.result() if signalled.done() and not signalled.cancelled() else None

    async def _shut_down(self, number: int | None) -> int:
        """Readiness off, relays drain, the command ends, the observer ends last. Returns the exit code."""
        self._draining = True
        self._systemd.stopping()
        self._tell()
        self._cover()
        close_all(
            itertools.chain.from_iterable(self._listeners)
        )  # otherwise the kernel would go on accepting connections
        limit_s = self._launch.settings.drain_timeout
        if any(relay.hopeless.done() for relay in self._relays):
            log.error("a relay does not stay up: all is ended, so that whoever watches over us starts anew")
        elif number is None:
            self._say_that_command_ended()
            limit_s = 0.0  # their upstream is gone: nothing is left to finish
        else:
            log.info("%s: no new connections; running answers have %g s", signal.Signals(number).name, limit_s)
        await self._end(self._relays, limit_s)
        code = await self._end_command(number)
        if self._control is not None:
            self._control.close()  # which tells the observer that all others are gone
            self._control = None
        await self._end([self._observer], 0.0)
        return code

    def _say_that_command_ended(self) -> None:
        command, child = self._launch.command, self._command
        if command is not None and child is not None and child.exited.done():
            log.error("%s %s; prefillwatch ends with it", command.name, how_it_ended(child.exited.result()))

    async def _end(self, keepers: Sequence[Keeper], limit_s: float) -> None:
        for keeper in keepers:
            keeper.stop(signal.SIGTERM)
        tasks = [self._tasks[keeper] for keeper in keepers]
        if await self._patience(tasks, limit_s + _GRACE_S):
            return
        if self._cut.is_set():
            for keeper in keepers:
                keeper.signal(signal.SIGTERM)  # a relay that gets it again cuts what still runs, and says so
            await asyncio.wait(tasks, timeout=_CUT_S)
        for keeper in keepers:
            keeper.signal(signal.SIGKILL)
        await asyncio.wait(tasks)

    async def _end_command(self, number: int | None) -> int:
        child = self._command
        if child is None:
            return 0
        child.signal(signal.SIGTERM if number is None else number)
        limit_s = self._launch.settings.stop_timeout
        if not await self._patience([child.exited], limit_s):
            await asyncio.wait([child.exited], timeout=_CUT_S if self._cut.is_set() else 0)
            if not child.exited.done():
                log.error("the command did not end; it is killed")
            child.signal(signal.SIGKILL)
        code = await child.exited
        await self._end_leftovers(child)
        return code if code >= 0 else 128 - code

    async def _end_leftovers(self, child: Child) -> None:
        """Processes that the command left behind would keep its port and memory."""
        loop = asyncio.get_running_loop()
        limit = loop.time() + _GRACE_S
        child.signal_group(signal.SIGTERM)
        while child.signal_group(0):
            if self._cut.is_set() or loop.time() > limit:
                child.signal_group(signal.SIGKILL)
                return
            await asyncio.sleep(0.05)

    async def _patience(self, futures: Sequence[asyncio.Future[Any]], limit_s: float) -> bool:
        """Wait for all of them, as long as the limit and the user allow."""
        cut = asyncio.create_task(self._cut.wait())
        together = asyncio.ensure_future(asyncio.wait(futures))
        await asyncio.wait([cut, together], timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        cut.cancel()
        together.cancel()
        return all(future.done() for future in futures)

    def _close(self) -> None:
        """Leave nothing behind, whatever happened."""
        for task in (*getattr(self, "_tasks", {}).values(), *getattr(self, "_watching", ())):
            task.cancel()
        self._children.close()
        if self._control is not None:
            self._control.close()
        for number in (signal.SIGTERM, signal.SIGINT, *_FORWARDED):
            asyncio.get_running_loop().remove_signal_handler(number)
        close_all(itertools.chain(*self._listeners, self._admin, *self._taps))
        self._observer_link.lost("it has ended")
        for line in self._lines:
            line.close()
        self._engine_socket.close()
        if self._launch.held is not None:
            self._launch.held.close()
        if self._undertaker is not None:
            self._undertaker.dismiss()
        self._systemd.close()
        self._certificates.close()
