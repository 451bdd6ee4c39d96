"""Whether upstream is up, judged from health checks and from answers that flow. Pure: it asks no server.

A server is busiest exactly when it answers its health check late. So one that is late says little, and nothing while
tokens arrive; several in a row without a token say that it is gone. A refused connection and a server that calls itself
ill leave nothing to judge.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

#: Tokens count as a sign of life for this long: relays report them every second.
HEARD_FOR_S: Final = 3.0


class Outcome(enum.Enum):
    """How a health check went; the value is the label of the metric."""

    ANSWERED = "answered"  # whatever it says but 5xx: not every server has a /health
    ILL = "status"  # 5xx
    REFUSED = "refused"  # no server listens there
    LATE = "timeout"
    LOST = "lost"  # the connection could not be made or broke off


@dataclass(frozen=True, slots=True)
class Check:
    """``detail`` is in words and holds nothing of an answer but its status."""

    outcome: Outcome
    seconds: float
    detail: str


class UpstreamHealth:
    """Times are seconds of one monotonic clock. ``misses`` is how many late or lost checks in a row count."""

    def __init__(self, misses: int) -> None:
        self.last: Check | None = None
        self.failures: dict[str, int] = {}
        self._allowed = misses
        self._missed = misses  # until it has answered once, nothing speaks for it
        self._heard_at = float("-inf")

    def checked(self, check: Check) -> None:
        """A check is over."""
        self.last = check
        if check.outcome is Outcome.ANSWERED:
            self._missed = 0
            return
        self.failures[check.outcome.value] = self.failures.get(check.outcome.value, 0) + 1
        if check.outcome in (Outcome.LATE, Outcome.LOST):
            self._missed += 1
        else:
            self._missed = self._allowed

    def heard(self, now: float) -> None:
        """A byte of an answer came from it."""
        self._heard_at = now

    def up(self, now: float) -> bool | None:
        """None: it was not asked yet."""
        if self.last is None:
            return None
        return self._missed < self._allowed or self._spared(self.last, now)

    def reason(self, now: float) -> str:
        """Why, in words."""
        check = self.last
        if check is None:
            return "upstream was not asked yet"
        if check.outcome is Outcome.ANSWERED:
            return "upstream is healthy"
        if not self.up(now):
            return f"upstream does not answer its health check: {check.detail}"
        because = "answers arrive" if self._spared(check, now) else f"{self._missed} of {self._allowed} in a row"
        return f"upstream is taken to be healthy ({because}), but its health check failed: {check.detail}"

    def _spared(self, check: Check, now: float) -> bool:
        return check.outcome in (Outcome.LATE, Outcome.LOST) and now - self._heard_at <= HEARD_FOR_S
