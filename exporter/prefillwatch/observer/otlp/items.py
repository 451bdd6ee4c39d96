"""What goes from the loop that keeps the books to the threads that send: copies, and nothing of OpenTelemetry yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from prefillwatch.core.view import LinkNow
from prefillwatch.export.registry import Snapshot
from prefillwatch.observer.metrics import StandardCounts


@dataclass(frozen=True, slots=True)
class Origin:
    """Who sends. ``started_ns`` is when counting began, in Unix nanoseconds; the server is the one that is watched."""

    version: str
    instance: str
    started_ns: int
    server_address: str
    server_port: int | None


@dataclass(frozen=True, slots=True)
class MetricsNow:
    """All metrics at one moment, in Unix nanoseconds. ``server``: the kind of server that is watched, where known."""

    at_ns: int
    snapshot: Snapshot
    standard: StandardCounts
    server: str | None


@dataclass(frozen=True, slots=True)
class IncidentSpan:
    """An incident that is over, as the API shows it, and the traces of those who had to do with it."""

    document: dict[str, Any]
    links: tuple[LinkNow, ...]
