"""How long to wait before a process that ended is started again."""

from __future__ import annotations

from typing import Final

FIRST_DELAY_S: Final = 0.1
LONGEST_DELAY_S: Final = 5.0
HEALTHY_S: Final = 60.0


class Backoff:
    """Delays that double from 0.1 s to 5 s; a process that stayed up for a minute begins at 0.1 s again."""

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next = FIRST_DELAY_S

    def delay_after(self, lived_s: float) -> float:
        """Seconds to wait before the next start, for a process that lived this long."""
        if lived_s >= HEALTHY_S:
            self._next = FIRST_DELAY_S
        delay = self._next
        self._next = min(delay * 2, LONGEST_DELAY_S)
        return delay
