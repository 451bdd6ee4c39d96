"""The trace that a request belongs to, by its W3C `traceparent` (https://www.w3.org/TR/trace-context, section 3.2)."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

#: Version, trace id, parent id and flags; behind those a later version may have more, set off by a dash.
_TRACEPARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_NO_VERSION: Final = "ff"
_FIRST_VERSION: Final = "00"


class TraceParent(NamedTuple):
    """In hexadecimal, as they are sent."""

    trace_id: str
    #: The span of whoever sent the request.
    span_id: str
    flags: str


def trace_parent(header: str) -> TraceParent | None:
    """None for everything that the standard has receivers ignore."""
    found = _TRACEPARENT.fullmatch(header)
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    if version == _NO_VERSION or (version == _FIRST_VERSION and more is not None):
        return None
    return TraceParent(trace_id, span_id, flags) if trace_id.strip("0") and span_id.strip("0") else None
