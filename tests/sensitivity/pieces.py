"""Pieces of recordings of a real engine, read once, to be judged many times by different tunings."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.core.script import Observed, Relay, ns
from tests.judges.truth import Seen, from_recording
from tests.judges.verdicts import (
    PACKET_MS,
    RECORDINGS,
    Teller,
    Verdicts,
    faults_of,
    hold_against,
    listening,
)

from prefillwatch.analysis.tuning import Tuning
from prefillwatch.analysis.verdicts.evidence import EnginePage
from prefillwatch.units import MS

#: The pieces that are judged by default, and how many seconds of each: enough to learn the engine, and what follows.
PIECES = {
    "busy/mixed": 44,
    "busy/short-300": 14,
    "twelve-at-once": 22,
    "shared-prefix": 20,
    "preemption": 15,
    "frontend-stopped": 14,
    "engine-stopped-300": 14,
}
#: So long after the end of a piece the last verdicts have come: a beat every 100 ms for a while, then one far ahead.
_TAIL_MS, _AT_LAST_MS = 4_000, 36_000


@dataclass
class Piece:
    """What a relay told of the time, packet by packet, and what the engine's own log says of it."""

    name: str
    inputs: list[tuple[float, bytes | EnginePage]]
    seen: Seen
    faults: list[tuple[int, int, str]]

    def judged(self, tuning: Tuning) -> Verdicts:
        observed, stalls = listening(tuning)
        for at_ms, what in self.inputs:
            observed.advance(at_ms)
            if isinstance(what, bytes):
                observed.taps.feed(what, ns(at_ms))
            else:
                observed.ledger.page(what)
        observed.advance(observed.now_ms + _TAIL_MS)
        observed.ledger.advance(ns(observed.now_ms + _AT_LAST_MS))
        return hold_against(self.seen, self.faults, stalls, observed)


class _Noting(Relay):
    """A relay whose packets are noted and go nowhere."""

    def __init__(self, observed: Observed) -> None:
        super().__init__(observed)
        self.now_ms = 0.0
        self.inputs: list[tuple[float, bytes | EnginePage]] = []

    def flush(self, *, lose: bool = False) -> None:
        assert not lose
        if len(self._builder):
            self.inputs.append((self.now_ms, self._builder.take()))

    def page(self, page: EnginePage) -> None:
        self.inputs.append((self.now_ms, page))


def read(name: str, seconds: float | None = None) -> Piece:
    """A recording, or its first seconds."""
    path = RECORDINGS / f"{name}.jsonl.gz"
    until_ns = round(seconds * 1000 * MS) if seconds is not None else 1 << 62
    return Piece(name, _inputs(path, until_ns), _cut(from_recording(path), until_ns), faults_of(path))


def _inputs(path: Path, until_ns: int) -> list[tuple[float, bytes | EnginePage]]:
    observed, _ = listening()
    relay = _Noting(observed)
    teller = Teller(observed, relay)
    observed.ledger.page = relay.page  # type: ignore[method-assign]
    with gzip.open(path, "rt", encoding="utf-8") as file:
        lines: list[dict[str, Any]] = [json.loads(line) for line in file]
    for line in lines[1:]:
        if "at" not in line or line["kind"] not in teller.kinds or line["at"] > until_ns:
            continue
        at_ms = line["at"] / MS
        if at_ms > relay.now_ms + PACKET_MS:
            relay.flush()
            relay.now_ms = at_ms
        teller.kinds[line["kind"]](at_ms, line)
    relay.flush()
    return relay.inputs


def _cut(seen: Seen, until_ns: int) -> Seen:
    """Without the reads that come later."""
    reads: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for rid, its in seen.reads.items():
        reads[rid] = [each for each in its if each[0] <= until_ns]
    return replace(seen, reads=dict(reads))


def all_pieces() -> list[Piece]:
    """All recordings, whole."""
    names = (path.relative_to(RECORDINGS).as_posix() for path in sorted(RECORDINGS.rglob("*.jsonl.gz")))
    return [read(name.removesuffix(".jsonl.gz")) for name in names]
