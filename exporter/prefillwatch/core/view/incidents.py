"""Incidents as of one moment: those that last, and in the same form those that are over."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import msgspec

from prefillwatch.analysis.delays import Evidence, Incident
from prefillwatch.analysis.requests import Request
from prefillwatch.units import NS
from prefillwatch.wire.trace_context import TraceParent


class IncidentHead(msgspec.Struct, frozen=True):
    """Which one it is. Nothing had to be summed up for it."""

    #: What a part of a view about this one takes; nothing else is to be read from it.
    key: Hashable
    number: int
    kind: str
    cause: str
    started_ns: int

    @property
    def name(self) -> str:
        """In two words, as in the name of a flight recording."""
        return f"{self.kind}-{self.cause}"


class CulpritNow(msgspec.Struct, frozen=True):
    """A request whose prompt was in service, and its part of what the others lost."""

    request_id: str
    prompt_tokens: int
    prompt_exact: bool
    uncached_tokens: int
    share: float
    tenant: str  # empty: it did not say, or tenants are not told apart


class LinkNow(msgspec.Struct, frozen=True):
    """A request of an incident whose sender told which trace it is in."""

    culprit: bool
    trace: TraceParent
    #: What it lost, or what the others lost by it.
    excess_s: float


class IncidentNow(IncidentHead, frozen=True):
    """Times in nanoseconds. ``victims`` are never more than ``decoding`` while it is a freeze."""

    model: str
    until_ns: int
    ongoing: bool
    victims: int
    decoding: int
    delays: int
    excess_ns: float
    worst_ns: int
    baseline_ns: float
    evidence: Evidence
    #: The largest shares first.
    culprits: tuple[CulpritNow, ...]
    #: Stall seconds by the tenants of victims that said who they are, the most first.
    victim_tenants: tuple[tuple[str, float], ...] = ()


def incident_links(incident: IncidentNow, most: int) -> tuple[LinkNow, ...]:
    """So many culprits and so many victims that have traces, those that matter most first. Of an incident that is over;
    victims are those of the delays that were kept of it."""
    key = incident.key
    assert isinstance(key, Incident)
    lost: dict[Request, float] = {}
    for delay in key.kept:
        lost[delay.request] = lost.get(delay.request, 0.0) + delay.excess_ns
    found = []
    for culprit, part_ns in ((True, key.final.blame_ns), (False, lost)):
        traced = [(request.trace, ns) for request, ns in part_ns.items() if request.trace is not None]
        traced.sort(key=lambda pair: -pair[1])
        found += [LinkNow(culprit, trace, ns / NS) for trace, ns in traced[:most]]
    return tuple(found)


def incident_head(incident: Incident) -> IncidentHead:
    return IncidentHead(incident, incident.number, incident.kind, incident.cause, incident.started_ns)


def incident_now(incident: Incident, names: Sequence[str], now_ns: int, *, ongoing: bool) -> IncidentNow:
    """Of one that is over, ``now_ns`` is its end."""
    tally = incident.tally(now_ns)
    total = sum(tally.blame_ns.values())
    ordered = sorted(tally.blame_ns.items(), key=lambda pair: -pair[1])
    return IncidentNow(
        incident,
        incident.number,
        incident.kind,
        incident.cause,
        incident.started_ns,
        names[incident.model],
        incident.until_ns(now_ns),
        ongoing,
        len(tally.victims),
        tally.decoding,
        tally.delays,
        tally.excess_ns,
        tally.worst_ns,
        tally.baseline_ns,
        tally.evidence,
        tuple(
            CulpritNow(
                request.request_id,
                request.prompt_tokens,
                request.prompt_exact,
                request.uncached_tokens,
                part / total,
                request.tenant,
            )
            for request, part in ordered
        ),
        tuple(
            (tenant, excess_ns / NS) for tenant, excess_ns in sorted(tally.suffered_ns.items(), key=lambda its: -its[1])
        ),
    )
