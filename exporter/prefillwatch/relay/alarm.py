"""A descriptor that wakes when a moment has come: timerfd_create(2), which Python has from 3.13 on.

The loop waits for descriptors alone then. A wait with a timeout would have to work it out anew for each token, and the
kernel to set a timer and take it back: a tenth of what Python adds to a token.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Final

#: No moment at all.
NEVER: Final = 2**63 - 1

if sys.version_info >= (3, 13):

    def _create() -> int:
        return os.timerfd_create(time.CLOCK_MONOTONIC, flags=os.TFD_NONBLOCK | os.TFD_CLOEXEC)

    def _set(fd: int, due_ns: int) -> None:
        os.timerfd_settime_ns(fd, flags=os.TFD_TIMER_ABSTIME, initial=due_ns)

else:
    import ctypes

    _ABSOLUTE: Final = 1
    _libc: Final = ctypes.CDLL(None, use_errno=True)

    class _Setting(ctypes.Structure):
        """struct itimerspec: how often again (never), and when."""

        _fields_ = tuple((name, ctypes.c_long) for name in ("again_s", "again_ns", "due_s", "due_ns"))

    def _create() -> int:
        fd = int(_libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC))
        _check(fd)
        return fd

    _setting: Final = _Setting()
    _setting_at: Final = ctypes.byref(_setting)
    _settime: Final = _libc.timerfd_settime

    def _set(fd: int, due_ns: int) -> None:
        _setting.due_s, _setting.due_ns = divmod(due_ns, 1_000_000_000)
        _check(_settime(fd, _ABSOLUTE, _setting_at, None))

    def _check(result: int) -> None:
        if result < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))


class Alarm:
    """``fd``, to be watched edge-triggered, is readable from the moment that was `set` last, until another one is."""

    def __init__(self) -> None:
        """Raises OSError."""
        self.fd = _create()

    def set(self, due_ns: int) -> None:
        """At ``due_ns`` of the monotonic clock; at once if that has passed, and not at all for `NEVER`."""
        _set(self.fd, 0 if due_ns == NEVER else max(1, due_ns))

    def close(self) -> None:
        os.close(self.fd)
