"""When the engine stood still because somebody asked for it, through us."""

from __future__ import annotations

from collections import deque
from typing import Final

_MOST: Final = 256
_STILL: Final = 1 << 62


class ControlLog:
    """Stretches of time with a reason: from a request until its answer, or until the request that lifts it."""

    def __init__(self) -> None:
        self._over: deque[tuple[int, int, str]] = deque(maxlen=_MOST)
        self._open: dict[str, tuple[int, str, frozenset[str]]] = {}

    def sent(self, control: str, reason: str, ended_by: frozenset[str], time_ns: int) -> None:
        if reason and control not in self._open:
            self._open[control] = (time_ns, reason, ended_by)

    def answered(self, control: str, time_ns: int, *, done: bool) -> None:
        """The request is over; ``done``: the server did as it was asked."""
        for name, (since_ns, reason, ended_by) in list(self._open.items()):
            # A pause that the server refused is none.
            if control in ended_by or (name == control and (not ended_by or not done)):
                del self._open[name]
                if done or not ended_by:
                    self._over.append((since_ns, time_ns, reason))

    def during(self, start_ns: int, end_ns: int) -> tuple[str, int]:
        """The reason for most of this time, and for how much of it."""
        spans = [*self._over, *((since, _STILL, reason) for since, reason, _ in self._open.values())]
        parts: dict[str, int] = {}
        for since, until, reason in spans:
            parts[reason] = parts.get(reason, 0) + max(0, min(until, end_ns) - max(since, start_ns))
        most = max(parts, key=lambda reason: parts[reason], default="")
        return (most, parts[most]) if most and parts[most] else ("", 0)
