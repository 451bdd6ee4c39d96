"""The last minutes of a recording in memory: segments of frames, the oldest of which make room for new ones. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from prefillwatch.units import NS

#: A window is made of so many segments, so that it is never longer by more than one of them.
_SEGMENTS: Final = 8
_SHORTEST_NS: Final = 5 * NS


@dataclass(slots=True)
class _Segment:
    begun_ns: int
    ended_ns: int
    frames: list[bytes] = field(default_factory=list)
    size: int = 0


class Ring:
    """Holds at most ``most_bytes``, and drops what is older than the window. Call `begin` first."""

    def __init__(self, window_s: float, most_bytes: int) -> None:
        self._window_ns = int(window_s * NS)
        self._segment_ns = max(_SHORTEST_NS, self._window_ns // _SEGMENTS)
        self._most_bytes = most_bytes
        self._segments: deque[_Segment] = deque()
        self.size = 0

    def segment_due(self, now_ns: int) -> bool:
        """Whether the next frame should begin a segment."""
        last = self._segments[-1]
        return now_ns - last.begun_ns >= self._segment_ns or last.size >= self._most_bytes // _SEGMENTS

    def begin(self, now_ns: int) -> None:
        self._segments.append(_Segment(now_ns, now_ns))
        while self._segments[0].ended_ns < now_ns - self._window_ns:
            self._drop()

    def add(self, frame: bytes, now_ns: int) -> None:
        """A frame of the segment that began last."""
        last = self._segments[-1]
        last.frames.append(frame)
        last.size += len(frame)
        last.ended_ns = now_ns
        self.size += len(frame)
        while self.size > self._most_bytes and len(self._segments) > 1:
            self._drop()

    def frames(self) -> list[bytes]:
        return [frame for segment in self._segments for frame in segment.frames]

    def _drop(self) -> None:
        self.size -= self._segments.popleft().size
