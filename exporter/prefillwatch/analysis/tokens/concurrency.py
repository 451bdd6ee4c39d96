"""Token and request throughput at each level of concurrency.

The number of decoding streams is cut into levels that double. For each level the meter knows the seconds spent at it
and the tokens made and requests finished meanwhile, all as running totals, so that over any span

    tokens per second at a level = increase of its tokens / increase of its seconds

and the same for requests. Level ``0`` is included: its seconds are the time without a decoding stream, and the
seconds of all levels together are the time watched.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from prefillwatch.units import NS

#: Powers of two that end a level; beyond the last there is one more.
_LAST_DOUBLING: Final = 9
LEVEL_LABELS: Final[tuple[str, ...]] = (
    "0",
    "1",
    "2",
    *(f"{(1 << power) + 1}-{2 << power}" for power in range(1, _LAST_DOUBLING)),
    f"{(1 << _LAST_DOUBLING) + 1}+",
)


def level(decoding: int) -> int:
    """The number of the level, an index into LEVEL_LABELS, at which so many streams decode."""
    if decoding <= 2:
        return max(decoding, 0)
    return min((decoding - 1).bit_length() + 1, len(LEVEL_LABELS) - 1)


class LevelTotals(NamedTuple):
    label: str
    seconds: float
    tokens: int
    requests: int


class ConcurrencyMeter:
    """Running totals per level, of one model. Times are monotonic nanoseconds; a clock that steps back adds nothing."""

    __slots__ = ("_level", "_nanoseconds", "_requests", "_since_ns", "_tokens")

    def __init__(self) -> None:
        levels = len(LEVEL_LABELS)
        self._nanoseconds = [0] * levels
        self._tokens = [0] * levels
        self._requests = [0] * levels
        self._level = 0
        self._since_ns: int | None = None

    def change(self, now_ns: int, decoding: int) -> None:
        """From now on so many streams decode. The first call begins the time watched."""
        self.settle(now_ns)
        self._level = level(decoding)

    def settle(self, now_ns: int) -> None:
        """Account for the time until now, so that totals read next are up to date."""
        if self._since_ns is None:
            self._since_ns = now_ns
        elif now_ns > self._since_ns:
            self._nanoseconds[self._level] += now_ns - self._since_ns
            self._since_ns = now_ns

    def tokens(self, count: int) -> None:
        """So many tokens came at the present level. For a first token, call `change` before."""
        self._tokens[self._level] += count

    def finished(self, requests: int = 1) -> None:
        """Requests finished at the present level. Call `change` after."""
        self._requests[self._level] += requests

    def totals(self) -> Iterator[LevelTotals]:
        """The totals of every level that was ever reached, in order."""
        for label, nanoseconds, tokens, requests in zip(
            LEVEL_LABELS, self._nanoseconds, self._tokens, self._requests, strict=True
        ):
            if nanoseconds or tokens or requests:
                yield LevelTotals(label, nanoseconds / NS, tokens, requests)
