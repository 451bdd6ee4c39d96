"""Exemplars: slow values of a histogram with the request and the trace that they were of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from prefillwatch.analysis.requests import Request
from prefillwatch.export.registry import Exemplar, HistogramChild
from prefillwatch.units import NS

#: OpenMetrics allows that many characters for all names and values of an exemplar together.
_MOST_CHARACTERS: Final = 128


class Exemplars:
    """``late_s``: a first token that takes less is not worth one."""

    def __init__(self, late_s: float, wall_offset: Callable[[], float]) -> None:
        """``wall_offset`` gives Unix seconds less seconds of the clock."""
        self.late_s = late_s
        self._wall_offset = wall_offset

    def note(self, child: HistogramChild, seconds: float, request: Request, at_ns: int) -> None:
        """A value that was observed. Of a request of which nobody could find anything, none is made."""
        labels = exemplar_labels(request)
        if labels:
            span_id = request.trace.span_id if request.trace else ""
            child.exemplify(Exemplar(seconds, labels, at_ns / NS + self._wall_offset(), span_id))


def exemplar_labels(request: Request) -> dict[str, str]:
    """An id that does not fit is left out, since half of one finds nothing; the trace comes first."""
    found = {"trace_id": request.trace.trace_id if request.trace else "", "request_id": request.request_id}
    labels: dict[str, str] = {}
    room = _MOST_CHARACTERS
    for name, value in found.items():
        if value and len(name) + len(value) <= room:
            labels[name] = value
            room -= len(name) + len(value)
    return labels
