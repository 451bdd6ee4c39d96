"""Incidents for people and programs: JSON as `/api/incidents` shows it, a bounded history, one log line for each."""

from __future__ import annotations

import json
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

from prefillwatch.contract.causes import ENGINE_PAUSE
from prefillwatch.core.view import IncidentNow
from prefillwatch.units import MS, NS

MOST_KEPT: Final = 1000
#: Culprits listed; `culprit_count` and `culprit_tokens` are of all.
MOST_CULPRITS: Final = 10
#: Tenants of victims that are listed.
MOST_VICTIM_TENANTS: Final = 10

log = logging.getLogger(__name__)


def wall_offset() -> float:
    """Unix seconds less seconds of the monotonic clock."""
    return time.time() - time.monotonic()


class IncidentHistory:
    """The incidents that are over, the latest first. ``prefix`` sets the ids of one observer apart from another's."""

    def __init__(self, prefix: str = "", wall_offset: Callable[[], float] = wall_offset) -> None:
        self.prefix = prefix or f"{time.time_ns() // MS:x}"
        self.log = True
        #: Hear of each incident that is over, and what is shown of it.
        self.heard: list[Callable[[IncidentNow, dict[str, Any]], None]] = []
        #: The same, before it is logged.
        self.closed: Callable[[IncidentNow, dict[str, Any]], None] | None = None
        self._wall_offset = wall_offset
        #: With when each began and its number: moments on the wall are too coarse to say what began together.
        self._closed: deque[tuple[int, int, dict[str, Any]]] = deque(maxlen=MOST_KEPT)

    def add(self, incident: IncidentNow) -> None:
        """It is over: keep it, and log it. Nothing of it is the text of a prompt or an answer."""
        document = self.document(incident)
        if self.closed is not None:
            self.closed(incident, document)
        self._closed.append((incident.started_ns, incident.number, document))
        if self.log:
            log.info("incident %s", json.dumps(document))
        for heard in self.heard:
            heard(incident, document)

    def newest(self, ongoing: Iterable[IncidentNow], limit: int) -> list[dict[str, Any]]:
        """Those that last and those that are over, by their beginning, the newest first."""
        lasting = [(each.started_ns, each.number, self.document(each)) for each in ongoing]
        ordered = sorted([*self._closed, *lasting], key=lambda each: (-each[0], each[1]))
        return [document for _, _, document in ordered[:limit]]

    @staticmethod
    def _tenants(incident: IncidentNow) -> dict[str, Any]:
        """Nothing where tenants are not told apart."""
        suffered = [
            {"tenant": tenant, "stall_seconds": seconds}
            for tenant, seconds in incident.victim_tenants[:MOST_VICTIM_TENANTS]
        ]
        return {"victim_tenants": suffered} if suffered else {}

    def document(self, incident: IncidentNow) -> dict[str, Any]:
        """What is shown of it."""
        return {
            "id": f"{self.prefix}-{incident.number}",
            "kind": incident.kind,
            "cause": incident.cause,
            "reason": (incident.evidence.get("pause_reason") if incident.cause == ENGINE_PAUSE else None) or None,
            "model": incident.model,
            "started_at": incident.started_ns / NS + self._wall_offset(),
            "duration_seconds": (incident.until_ns - incident.started_ns) / NS,
            "ongoing": incident.ongoing,
            "victims": incident.victims,
            "decoding": incident.decoding,
            "stall_seconds": incident.excess_ns / NS,
            "worst_gap_seconds": incident.worst_ns / NS,
            "baseline_gap_seconds": incident.baseline_ns / NS or None,
            "culprits": [
                {
                    "request_id": each.request_id,
                    "prompt_tokens": each.prompt_tokens,
                    "uncached_prompt_tokens": each.uncached_tokens,
                    "prompt_tokens_source": "usage" if each.prompt_exact else "estimate",
                    "share": round(each.share, 4),
                    **({"tenant": each.tenant} if each.tenant else {}),
                }
                for each in incident.culprits[:MOST_CULPRITS]
            ],
            "culprit_count": len(incident.culprits),
            "culprit_tokens": sum(each.prompt_tokens for each in incident.culprits),
            **self._tenants(incident),
            "evidence": {"delays": incident.delays, **incident.evidence},
        }
