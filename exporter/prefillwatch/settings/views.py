"""The settings of each process, by name: those that `declared.Settings` marks for it, and those that the supervisor
adds. A name that a process does not know, or that it lacks, is a TypeError: a name stands on both sides or on neither.

Whatever a process does not know, and whatever it lacks, is a TypeError here: a name stands on both sides or on none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prefillwatch.analysis.settings import AnalysisSettings, Slo, StallRule, WaitRule
from prefillwatch.relay.settings import RelaySettings
from prefillwatch.settings.declared import Settings
from prefillwatch.settings.processes import ANALYSIS, OBSERVER, RELAY, FlightSettings, ObserverSettings, OtlpSettings


def relay_view(settings: Settings, **added: Any) -> RelaySettings:
    """What a relay gets; ``added`` are the sockets and names of this one, or other values than those set."""
    return RelaySettings(**settings.of(RELAY) | added)


def observer_view(settings: Settings, **added: Any) -> ObserverSettings:
    """What the observer gets; ``added`` are its sockets and upstream, or other values than those set."""
    flight, rest = _section(settings.of(OBSERVER), "flight_recorder_")
    otlp, rest = _section(rest, "otlp_")
    sections = {
        "analysis": analysis_view(settings),
        "flight": FlightSettings(**flight) if flight["dir"] is not None else None,
        "otlp": OtlpSettings(**otlp),
    }
    return ObserverSettings(**rest | sections | added)


def analysis_view(settings: Settings) -> AnalysisSettings:
    """The part of the settings that the analysis knows."""
    values = settings.of(ANALYSIS)
    if not settings.tenant_header and not settings.tenant_from:
        values["max_tenants"] = 0
    stall, rest = _section(values, "stall_")
    wait, rest = _section(rest, "wait_")
    slo, rest = _section(rest, "slo_")
    return AnalysisSettings(stall=StallRule(**stall), wait=WaitRule(**wait), slo=Slo(**slo), **rest)


def _section(values: Mapping[str, Any], prefix: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The values whose names begin with the prefix, without it, and the others."""
    section = {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)}
    return section, {name: value for name, value in values.items() if not name.startswith(prefix)}
