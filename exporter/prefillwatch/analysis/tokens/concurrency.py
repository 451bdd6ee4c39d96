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

import numpy as np

from prefillwatch.analysis.arrays import IntArray
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


#: The most streams of each level but the last.
_MOST: Final = np.array((0, *(1 << power for power in range(_LAST_DOUBLING + 1))), np.int64)


def _add_by_level(totals: list[int], decoding: IntArray, amounts: IntArray) -> None:
    """Add each amount to the total of the level at which so many streams decode."""
    sums = np.bincount(_MOST.searchsorted(decoding), weights=amounts)
    for number in np.flatnonzero(sums).tolist():
        totals[number] += int(sums[number])


class LevelTotals(NamedTuple):
    label: str
    seconds: float
    tokens: int
    requests: int


class ConcurrencyMeter:
    """Running totals per level, of one model. Times are monotonic nanoseconds; a clock that steps back adds nothing.

    What happened is noted in any order and counted by `settle`, in order of time: a stream counts from its first token
    to its last, whichever of both is heard of first.
    """

    __slots__ = (
        "_begun",
        "_counts",
        "_decoding",
        "_ended",
        "_finished",
        "_nanoseconds",
        "_requests",
        "_since_ns",
        "_times",
        "_tokens",
    )

    def __init__(self) -> None:
        levels = len(LEVEL_LABELS)
        self._nanoseconds = [0] * levels
        self._tokens = [0] * levels
        self._requests = [0] * levels
        self._decoding = 0
        self._since_ns: int | None = None
        self._begun: list[int] = []
        self._ended: list[int] = []
        self._finished: list[int] = []
        self._times: list[IntArray] = []
        self._counts: list[IntArray] = []

    def begun(self, at_ns: int, streams: int = 1) -> None:
        """The first token of a stream came, or of so many."""
        self._begun += [at_ns] * streams

    def ended(self, at_ns: int, streams: int = 1) -> None:
        """A stream is over, or so many are."""
        self._ended += [at_ns] * streams

    def tokens(self, times_ns: IntArray, counts: IntArray) -> None:
        """Reads with so many tokens each."""
        self._times.append(times_ns)
        self._counts.append(counts)

    def finished(self, at_ns: int) -> None:
        """A request finished; at the level that it was part of."""
        self._finished.append(at_ns)

    def settle(self, now_ns: int) -> None:
        """Account for what happened until now. All of it must have been noted."""
        if not (self._begun or self._ended):
            self._spend(self._decoding, now_ns)
            self._tokens[level(self._decoding)] += sum(int(counts.sum()) for counts in self._counts)
            self._requests[level(self._decoding)] += len(self._finished)
        else:
            self._settle_changes()
            self._spend(self._decoding, now_ns)
        for noted in (self._begun, self._ended, self._finished, self._times, self._counts):
            noted.clear()

    def _settle_changes(self) -> None:
        begun, ended = np.sort(np.array(self._begun, np.int64)), np.sort(np.array(self._ended, np.int64))
        if self._times:
            times, counts = np.concatenate(self._times), np.concatenate(self._counts)
            # What comes with the first token or the last is of a stream that decodes.
            decoding = self._decoding + begun.searchsorted(times, "right") - ended.searchsorted(times, "left")
            _add_by_level(self._tokens, decoding, counts)
        if self._finished:
            times = np.array(self._finished, np.int64)
            decoding = self._decoding + begun.searchsorted(times, "right") - ended.searchsorted(times, "left")
            _add_by_level(self._requests, decoding, np.ones_like(times))
        times = np.concatenate((ended, begun))
        order = np.argsort(times, kind="stable")  # of one moment the ends come first
        changes = np.repeat((-1, 1), (len(ended), len(begun)))[order]
        since_ns = int(times[order[0]]) if self._since_ns is None else self._since_ns
        moments = np.maximum(times[order], since_ns)
        _add_by_level(
            self._nanoseconds, self._decoding + changes.cumsum() - changes, np.diff(moments, prepend=since_ns)
        )
        self._decoding += int(changes.sum())
        self._since_ns = int(moments[-1])

    def _spend(self, decoding: int, until_ns: int) -> None:
        """The first call begins the time watched."""
        if self._since_ns is None:
            self._since_ns = until_ns
        elif until_ns > self._since_ns:
            self._nanoseconds[level(decoding)] += until_ns - self._since_ns
            self._since_ns = until_ns

    def totals(self) -> Iterator[LevelTotals]:
        """The totals of every level that was ever reached, in order."""
        for label, nanoseconds, tokens, requests in zip(
            LEVEL_LABELS, self._nanoseconds, self._tokens, self._requests, strict=True
        ):
            if nanoseconds or tokens or requests:
                yield LevelTotals(label, nanoseconds / NS, tokens, requests)
