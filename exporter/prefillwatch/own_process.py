"""Child processes: ourselves again, such as must not outlive us, and how one ended."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_libc: Final = ctypes.CDLL(None, use_errno=True)  # loaded before any fork: the child must not load libraries

#: What ``-P`` is since Python 3.11: the folder that we happen to be in, which comes first, is taken from the search
#: path before anything is imported from there.
_WITHOUT_FOLDER: Final = (
    "import sys; del sys.path[0]; import runpy; runpy.run_module({module!r}, None, '__main__', True)"
)

#: What else to say of a signal that is not sent by hand.
_WHY: Final = {
    signal.SIGSYS: "a filter of system calls forbids one that it makes; have the filter answer with an error instead "
    "(systemd: SystemCallErrorNumber=EPERM)",
}


def python_module(module: str, *arguments: str, version: tuple[int, ...] = sys.version_info[:2]) -> tuple[str, ...]:
    """The command that runs a module of ours as ``python -m`` does, but never imports what lies in the working folder:
    others may write there, and we may be root."""
    if version >= (3, 11):
        return (sys.executable, "-P", "-m", module, *arguments)
    return (sys.executable, "-c", _WITHOUT_FOLDER.format(module=module), *arguments)


def ends_with_us(death_signal: int = signal.SIGTERM) -> Callable[[], None]:
    """For ``preexec_fn``: the kernel sends the process this signal when we die, whatever of. To be made before the
    fork, in the thread that starts the process: it is this thread's end that counts."""
    parent = os.getpid()

    def before_exec() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, death_signal, 0, 0, 0)
        if os.getppid() != parent:  # it died before the line above
            os._exit(1)

    return before_exec


def how_it_ended(code: int) -> str:
    """An exit code in words: ``ended with code 1``, ``was killed by SIGKILL``."""
    if code >= 0:
        return f"ended with code {code}"
    try:
        number = signal.Signals(-code)
    except ValueError:
        return f"was killed by signal {-code}"
    why = _WHY.get(number)
    return f"was killed by {number.name}" + (f" ({why})" if why else "")
