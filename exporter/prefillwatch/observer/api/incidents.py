"""Incidents for people and programs: JSON as `/api/incidents` shows it, a bounded history, one log line for each."""

from __future__ import annotations

import json
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

from prefillwatch.analysis.delays import Incident, Tally
from prefillwatch.analysis.requests import ModelNames
from prefillwatch.units import MS, NS

MOST_KEPT: Final = 1000
#: Culprits listed; `culprit_count` and `culprit_tokens` are of all.
MOST_CULPRITS: Final = 10

log = logging.getLogger(__name__)


def wall_offset() -> float:
    """Unix seconds less seconds of the monotonic clock."""
    return time.time() - time.monotonic()


class IncidentHistory:
    """The incidents that are over, the latest first. ``prefix`` sets the ids of one observer apart from another's."""

    def __init__(self, names: ModelNames, prefix: str = "", wall_offset: Callable[[], float] = wall_offset) -> None:
        self.prefix = prefix or f"{time.time_ns() // MS:x}"
        self.log = True
        #: Is told of each incident that is over.
        self.heard: Callable[[dict[str, Any]], None] | None = None
        #: The same, with the incident itself.
        self.closed: Callable[[Incident, dict[str, Any]], None] | None = None
        self._names = names
        self._wall_offset = wall_offset
        #: With when each began and its number: moments on the wall are too coarse to tell what began together.
        self._closed: deque[tuple[int, int, dict[str, Any]]] = deque(maxlen=MOST_KEPT)

    def add(self, incident: Incident) -> None:
        """It is over: keep it, and log it. Nothing of it is the text of a prompt or an answer."""
        document = self._document(incident, incident.ended_ns, ongoing=False)
        if self.closed is not None:
            self.closed(incident, document)
        self._closed.append((incident.started_ns, incident.number, document))
        if self.log:
            log.info("incident %s", json.dumps(document))
        if self.heard is not None:
            self.heard(document)

    def newest(self, ongoing: Iterable[Incident], now_ns: int, limit: int) -> list[dict[str, Any]]:
        """Those that last and those that are over, by their beginning, the newest first."""
        lasting = [(each.started_ns, each.number, self.document(each, now_ns)) for each in ongoing]
        ordered = sorted([*self._closed, *lasting], key=lambda each: (-each[0], each[1]))
        return [document for _, _, document in ordered[:limit]]

    def document(self, incident: Incident, now_ns: int) -> dict[str, Any]:
        """One that lasts, as it is now."""
        return self._document(incident, now_ns, ongoing=True)

    def _document(self, incident: Incident, now_ns: int, *, ongoing: bool) -> dict[str, Any]:
        tally = incident.tally(now_ns)
        until_ns = incident.until_ns(now_ns)
        return {
            "id": f"{self.prefix}-{incident.number}",
            "kind": incident.kind,
            "cause": incident.cause,
            "model": self._names.labels[incident.model],
            "started_at": incident.started_ns / NS + self._wall_offset(),
            "duration_seconds": (until_ns - incident.started_ns) / NS,
            "ongoing": ongoing,
            "victims": len(tally.victims),
            "decoding": tally.decoding,
            "stall_seconds": tally.excess_ns / NS,
            "worst_gap_seconds": tally.worst_ns / NS,
            "baseline_gap_seconds": tally.baseline_ns / NS or None,
            **_culprits(tally),
            "evidence": {"delays": tally.delays, **tally.evidence},
        }


def _culprits(tally: Tally) -> dict[str, Any]:
    total = sum(tally.blame_ns.values())
    ordered = sorted(tally.blame_ns.items(), key=lambda pair: -pair[1])
    return {
        "culprits": [
            {
                "request_id": request.request_id,
                "prompt_tokens": request.prompt_tokens,
                "uncached_prompt_tokens": request.uncached_tokens,
                "prompt_tokens_source": "usage" if request.prompt_exact else "estimate",
                "share": round(part / total, 4),
            }
            for request, part in ordered[:MOST_CULPRITS]
        ],
        "culprit_count": len(ordered),
        "culprit_tokens": sum(request.prompt_tokens for request, _ in ordered),
    }
