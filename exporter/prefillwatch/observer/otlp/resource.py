"""Who we are to those who receive: what the environment says by OpenTelemetry's variables, else what we know."""

from __future__ import annotations

from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from prefillwatch.observer.otlp.items import Origin


def resource_of(origin: Origin) -> Resource:
    """OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME win."""
    ours = {
        "service.name": "prefillwatch",
        "service.version": origin.version,
        "service.instance.id": origin.instance,
    }
    given = OTELResourceDetector().detect().attributes
    return Resource.create({name: value for name, value in ours.items() if name not in given})


def scope_of(origin: Origin) -> InstrumentationScope:
    return InstrumentationScope("prefillwatch", origin.version)
