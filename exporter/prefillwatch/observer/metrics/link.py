"""What the plugin inside vLLM tells, as metrics. Without a plugin there are none."""

from __future__ import annotations

from prefillwatch.analysis.ledger import Ledger
from prefillwatch.core.engine_steps import EngineSteps
from prefillwatch.core.inputs import EngineLinks
from prefillwatch.export import table
from prefillwatch.export.registry import Labels, Registry
from prefillwatch.export.spec import window_name


def publish_link(registry: Registry, link: EngineLinks, steps: EngineSteps, ledger: Ledger, now_ns: int) -> None:
    registry.gauge(table.ENGINE_LINKS).set((), link.connected)
    registry.counter(table.ENGINE_LINK_STEPS).set_total((), steps.steps)
    registry.counter(table.ENGINE_LINK_DROPPED).set_total((), link.dropped)
    registry.counter(table.UNPARSED_EVENTS).set_total(("engine_link",), link.unreadable)
    steps.advance(now_ns)
    wire = [books.all_gaps for books in ledger.models.values()]
    parts: dict[Labels, float | None] = {}
    for seconds in ledger.settings.windows:
        for part, value in steps.parts(wire, seconds).items():
            parts[(window_name(seconds), part)] = value
    registry.gauge(table.INTER_TOKEN_LATENCY_PART).replace(parts)
