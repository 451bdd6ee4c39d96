"""Holds what reached upstream against what h11 finds in the bytes that the client sent."""

from __future__ import annotations

from collections import Counter

from tests.foreign.http.data import Case
from tests.foreign.http.stage import Outcome, Read, read_all

#: Lines that a proxy writes itself.
_OURS = frozenset((b"host", b"via", b"x-forwarded-for", b"x-forwarded-proto", b"transfer-encoding", b"content-length"))


def faults(case: Case, outcome: Outcome, *, injected: bool = False) -> list[str]:
    """What is wrong, in words; nothing if all is well. ``injected``: bodies may have been added to."""
    theirs, _ = read_all(case.data)
    found = []
    if outcome.refused or outcome.rest:
        found.append(f"{case.name}: upstream was sent {outcome.rest[:200]!r}, which h11 refuses")
    if len(outcome.requests) > len(theirs):
        found.append(f"{case.name}: h11 finds {len(theirs)} requests, upstream got {outcome.requests[len(theirs)]}")
    for ours, wanted in zip(outcome.requests, theirs, strict=False):
        found += [f"{case.name}: {difference}" for difference in _differences(ours, wanted, injected=injected)]
    return found


def _differences(ours: Read, theirs: Read, *, injected: bool) -> list[str]:
    found = []
    if (ours.method, ours.target) != (theirs.method, origin_form(theirs)):
        found.append(f"{ours.method!r} {ours.target!r} instead of {theirs.method!r} {theirs.target!r}")
    if ours.body != theirs.body and not injected:
        found.append(f"a body of {ours.body[:100]!r} instead of {theirs.body[:100]!r}")
    made_up = Counter(line for line in ours.headers if line[0] not in _OURS) - Counter(theirs.headers)
    if made_up:
        found.append(f"headers that nobody sent: {dict(made_up)!r}")
    return found


def origin_form(read: Read) -> bytes:
    """Of a target in absolute form what a server gets."""
    scheme, separator, rest = read.target.partition(b"://")
    if not separator or scheme.lower() not in (b"http", b"https"):
        return read.target
    start = min((at for at in (rest.find(b"/"), rest.find(b"?")) if at >= 0), default=len(rest))
    path = rest[start:]
    if not path:
        return b"*" if read.method == b"OPTIONS" else b"/"
    return path if path.startswith(b"/") else b"/" + path
