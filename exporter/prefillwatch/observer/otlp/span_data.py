"""An incident as a span, with links to the traces of those who made it and of those who suffered most."""

from __future__ import annotations

from typing import Any, Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import Link, SpanContext, SpanKind, TraceFlags

from prefillwatch.core.view import LinkNow
from prefillwatch.export.otel_names import MODEL
from prefillwatch.observer.otlp.items import IncidentSpan, Origin
from prefillwatch.observer.otlp.resource import scope_of
from prefillwatch.units import NS
from prefillwatch.wire.printable import printable

_ids = RandomIdGenerator()
#: What of an incident is an attribute, under its own name; what is not known is none.
_SHOWN: Final = (
    *("id", "kind", "cause", "reason", "victims", "decoding", "stall_seconds", "worst_gap_seconds"),
    *("baseline_gap_seconds", "culprit_count", "culprit_tokens"),
)


def span_data(incident: IncidentSpan, origin: Origin, resource: Resource) -> ReadableSpan:
    """A trace of its own: it belongs to the traces of many requests, and to none more than to another."""
    document = incident.document
    attributes: dict[str, Any] = {MODEL: printable(document["model"])}
    for name in _SHOWN:
        if document[name] is not None:
            attributes[f"prefillwatch.incident.{name}"] = document[name]
    strength = document["evidence"].get("strength")
    if strength is not None:
        attributes["prefillwatch.incident.strength"] = strength
    culprits = [printable(culprit["request_id"]) for culprit in document["culprits"] if culprit["request_id"]]
    if culprits:
        attributes["prefillwatch.incident.culprits"] = culprits
    started_ns = round(document["started_at"] * NS)
    flags = TraceFlags(TraceFlags.SAMPLED)
    return ReadableSpan(
        name=f"{document['kind']} {document['cause']}",
        context=SpanContext(_ids.generate_trace_id(), _ids.generate_span_id(), is_remote=False, trace_flags=flags),
        resource=resource,
        attributes=attributes,
        links=[_link(link) for link in incident.links],
        kind=SpanKind.INTERNAL,
        start_time=started_ns,
        end_time=started_ns + round(document["duration_seconds"] * NS),
        instrumentation_scope=scope_of(origin),
    )


def _link(link: LinkNow) -> Link:
    trace = link.trace
    flags = TraceFlags(int(trace.flags, 16))
    context = SpanContext(int(trace.trace_id, 16), int(trace.span_id, 16), is_remote=True, trace_flags=flags)
    role = "culprit" if link.culprit else "victim"
    return Link(context, {"prefillwatch.role": role, "prefillwatch.stall_seconds": link.excess_s})
