"""Work of the server that shows in no prompt: requests on endpoints that nobody reads. What happens meanwhile may be
theirs, so no step meanwhile is clear, and no silence is a pause of the engine.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

import numpy as np

from prefillwatch.analysis.arrays import BoolArray, IntArray

if TYPE_CHECKING:
    from collections.abc import Hashable

_MOST: Final = 4096


class UnreadWork:
    """When there was some."""

    __slots__ = ("_going", "_spans")

    def __init__(self) -> None:
        self._going: dict[Hashable, int] = {}
        self._spans: deque[tuple[int, int]] = deque(maxlen=_MOST)  # in order of their ends, none within another

    def begin(self, rid: Hashable, time_ns: int) -> None:
        self._going[rid] = time_ns

    def end(self, rid: Hashable, time_ns: int) -> None:
        start_ns = self._going.pop(rid, None)
        if start_ns is None:
            return
        while self._spans and self._spans[-1][1] >= start_ns:  # one after another, as a stream of such requests is
            start_ns = min(start_ns, self._spans.pop()[0])
        self._spans.append((start_ns, time_ns))

    def during(self, start_ns: int, end_ns: int) -> bool:
        if self._going and min(self._going.values()) < end_ns:
            return True
        for since, until in reversed(self._spans):
            if until <= start_ns:
                return False
            if since < end_ns:
                return True
        return False

    def during_many(self, starts_ns: IntArray, ends_ns: IntArray) -> BoolArray:
        """`during` for many times at once."""
        found = np.zeros(len(starts_ns), np.bool_)
        if not len(starts_ns):
            return found
        if self._going:
            found |= ends_ns > min(self._going.values())
        first_ns = starts_ns.min()
        for since, until in reversed(self._spans):
            if until <= first_ns:
                break
            found |= (starts_ns < until) & (ends_ns > since)
        return found

    def forget(self, before_ns: int) -> None:
        while self._spans and self._spans[0][1] < before_ns:
            self._spans.popleft()
