"""Child processes that never outlive us: started with a death signal, reaped on SIGCHLD."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import functools
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from prefillwatch.own_process import ends_with_us

_PR_SET_CHILD_SUBREAPER: Final = 36
#: Thousandths of the machine's memory by which a process seems larger to the kernel than it is: proc(5), oom_score_adj.
_EXPENDABLE: Final = 200
_MOST_EXPENDABLE: Final = 1000
_libc: Final = ctypes.CDLL(None, use_errno=True)  # loaded before any fork: the child must not load libraries


class Child:
    """A process we started. ``exited`` is done when it has ended, with its code (negative: the signal's number)."""

    __slots__ = ("_process", "exited", "started_at")

    def __init__(self, process: subprocess.Popen[bytes], loop: asyncio.AbstractEventLoop) -> None:
        self._process = process
        self.started_at = loop.time()
        self.exited: asyncio.Future[int] = loop.create_future()

    @property
    def pid(self) -> int:
        return self._process.pid

    def signal(self, number: int) -> None:
        """Signal the process; nothing happens when it has ended."""
        if not self.exited.done():
            # Not Popen.send_signal: it collects an exit code that was not reported yet. Until `reap` has collected
            # it, the number cannot belong to another process.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def signal_group(self, number: int) -> bool:
        """Signal the process and its descendants that stayed in its group. False: there are none left."""
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    def reap(self) -> None:
        """Collect the exit code of the process, which has ended."""
        code = self._process.poll()
        if code is not None and not self.exited.done():
            self.exited.set_result(code)


class Children:
    """All our child processes. One per event loop; the loop's SIGCHLD belongs to it until `close`."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._children: dict[int, Child] = {}
        self._loop.add_signal_handler(signal.SIGCHLD, self._reap)
        # Orphans come to us instead of to process 1: in a container that is we anyway, elsewhere it may be slow to
        # collect them, and until then their group would seem to be running.
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # undone by `close`, after which orphans are not collected

    def start(
        self,
        argv: Sequence[str],
        *,
        death_signal: int,
        stdin: bytes | None = None,
        pass_fds: Sequence[int] = (),
        ignored: Sequence[int] = (),
        env: Mapping[str, str] | None = None,
        expendable: bool = False,
    ) -> Child:
        """Start a process in a group of its own, so that a Ctrl-C reaches it only through us.

        ``stdin`` is written to it whole; None gives it ours, or nothing when ours is a terminal (a background group
        must not read from one). ``death_signal`` is what the kernel sends it when we die. ``ignored`` signals do it no
        harm until it listens for them. ``expendable``: where memory runs out, the kernel ends it before the others.
        Raises OSError.
        """
        process = subprocess.Popen(  # noqa: S603 (the command is ours, or what the user asked us to run)
            argv,
            stdin=subprocess.PIPE if stdin is not None else _inherited_stdin(),
            pass_fds=pass_fds,
            env=env,
            preexec_fn=functools.partial(_before_exec, ends_with_us(death_signal), ignored),
        )
        child = Child(process, self._loop)
        self._children[process.pid] = child
        if expendable:
            _offer_to_the_kernel(process.pid)
        if process.stdin is not None:
            _write_and_close(process.stdin, stdin or b"")
        return child

    def close(self) -> None:
        """Kill what still runs and stop watching."""
        for child in self._children.values():
            child.signal_group(signal.SIGKILL)
        self._loop.remove_signal_handler(signal.SIGCHLD)
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)

    def _reap(self) -> None:
        """Collect every ended process that is ours to collect: those we started, and the orphans that they left."""
        with contextlib.suppress(ChildProcessError):  # there are none at all
            while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
                child = self._children.pop(ended.si_pid, None)
                if child is not None:
                    child.reap()
                else:
                    os.waitpid(ended.si_pid, 0)


def _before_exec(end_with_us: Callable[[], None], ignored: Sequence[int]) -> None:
    os.setpgid(0, 0)
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)
    end_with_us()


def _offer_to_the_kernel(pid: int) -> None:
    """Raise the chance that the kernel ends it when memory runs out. Without a /proc that allows it, size alone
    decides."""
    with contextlib.suppress(OSError, ValueError):
        path = Path(f"/proc/{pid}/oom_score_adj")
        path.write_text(str(min(_MOST_EXPENDABLE, int(path.read_text()) + _EXPENDABLE)))


def _inherited_stdin() -> int | None:
    try:
        return subprocess.DEVNULL if os.isatty(0) else None
    except OSError:
        return subprocess.DEVNULL


def _write_and_close(pipe: IO[bytes], data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError):  # it ended at once: its exit code tells
        pipe.write(data)
    with contextlib.suppress(BrokenPipeError):
        pipe.close()
