"""What the sidecar said of a scenario: its metrics before and after, and its incidents; times as in the recording."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.real.sidecar import Metrics

STALL_SECONDS = "prefillwatch_stall_seconds_total"
STALLS = "prefillwatch_stalls_total"


@dataclass(frozen=True, slots=True)
class Incident:
    start_ns: int
    end_ns: int
    cause: str
    kind: str
    seconds: float
    document: dict[str, Any]

    @property
    def density(self) -> float:
        """Stall seconds per second; what belongs to several incidents belongs rather to the denser one."""
        return max(self.seconds, 1e-6) / max(self.end_ns - self.start_ns, 1_000_000) * 1e9

    def shares(self) -> dict[str, float]:
        """Blame by request; of the culprits listed, so that it adds up to 1."""
        listed = {each["request_id"]: each["share"] for each in self.document["culprits"]}
        total = sum(listed.values()) or 1.0
        return {request: share / total for request, share in listed.items()}


@dataclass
class Said:
    """`scrapes`: our pages with the monotonic time at which they had come."""

    gained: Metrics
    scrapes: list[tuple[int, Metrics]]
    incidents: list[Incident]

    def seconds(self) -> dict[str, float]:
        return self._by_cause(STALL_SECONDS)

    def stalls(self) -> dict[str, float]:
        return self._by_cause(STALLS)

    def _by_cause(self, name: str) -> dict[str, float]:
        found: dict[str, float] = {}
        for (each, labels), value in self.gained.samples.items():
            if each == name and value:
                cause = dict(labels)["cause"]
                found[cause] = found.get(cause, 0.0) + value
        return found

    def freezes(self) -> list[Incident]:
        return [each for each in self.incidents if each.kind == "freeze"]


def read_said(path: Path, started_ns: int) -> Said:
    said = json.loads(path.read_text())
    offset = said["wall_offset"]
    before, after = (Metrics.parse(said[when]["text"]) for when in ("before", "after"))
    found = [_incident(each, offset, started_ns) for each in said["incidents"]]
    scrapes = [(each["at"], Metrics.parse(each["text"])) for each in said["scrapes"]]
    return Said(after.since(before), scrapes, [each for each in found if each.start_ns > 0])


def _incident(document: dict[str, Any], offset: float, started_ns: int) -> Incident:
    start_ns = round((document["started_at"] - offset) * 1e9) - started_ns
    end_ns = start_ns + round(document["duration_seconds"] * 1e9)
    return Incident(start_ns, end_ns, document["cause"], document["kind"], document["stall_seconds"], document)
