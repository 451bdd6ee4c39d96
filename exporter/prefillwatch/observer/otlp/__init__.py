"""Metrics and incidents pushed by OTLP. What it takes of OpenTelemetry is imported when something is to be sent."""

from prefillwatch.observer.otlp.push import OtlpPush

__all__ = ["OtlpPush"]
