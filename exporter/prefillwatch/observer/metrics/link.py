"""What the plugin inside vLLM reports, as metrics. Without a plugin there are none."""

from __future__ import annotations

from prefillwatch.core.view import EngineLinkNow
from prefillwatch.export import table
from prefillwatch.export.registry import Labels, Registry
from prefillwatch.export.spec import window_name


def publish_link(registry: Registry, link: EngineLinkNow) -> None:
    registry.gauge(table.ENGINE_LINKS).set((), link.connected)
    registry.counter(table.ENGINE_LINK_STEPS).set_total((), link.steps)
    registry.counter(table.ENGINE_LINK_DROPPED).set_total((), link.dropped)
    registry.counter(table.ENGINE_LINK_UNUSED).set_total((), link.unused)
    for phase, tokens in link.tokens.items():
        registry.counter(table.ENGINE_LINK_TOKENS).set_total((phase,), tokens)
    registry.counter(table.ENGINE_LINK_FINISHED).set_total((), link.finished)
    registry.counter(table.ENGINE_LINK_QUEUE_SECONDS).set_total((), link.queued_s)
    registry.counter(table.UNPARSED_EVENTS).set_total(("engine_link",), link.unreadable)
    parts: dict[Labels, float | None] = {
        (window_name(seconds), part): value for (seconds, part), value in link.parts.items()
    }
    registry.gauge(table.INTER_TOKEN_LATENCY_PART).replace(parts)
