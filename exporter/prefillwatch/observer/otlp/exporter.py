"""The SDK's exporters as what a channel sends with. What they would log is what a failure is explained by."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

from prefillwatch.observer.otlp.channel import Send, SendError
from prefillwatch.observer.otlp.items import IncidentSpan, MetricsNow, Origin
from prefillwatch.observer.otlp.metric_data import metric_data
from prefillwatch.observer.otlp.resource import resource_of
from prefillwatch.observer.otlp.span_data import span_data
from prefillwatch.wire.printable import printable

#: Characters.
_LONGEST_REASON: Final = 300


class _Reasons(logging.Handler):
    """Keeps the first thing that each thread had to say: what comes later is that its patience ended."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._said: dict[int, str] = {}

    def emit(self, record: logging.LogRecord) -> None:
        self._said.setdefault(threading.get_ident(), record.getMessage())

    def take(self) -> str:
        said = self._said.pop(threading.get_ident(), "the exporter does not say why")
        return printable(" ".join(said.split())[:_LONGEST_REASON])


def _listen() -> _Reasons:
    """Nothing of theirs gets to our log but by us, who say a thing once."""
    logger = logging.getLogger("opentelemetry")
    logger.propagate = False
    found = next((handler for handler in logger.handlers if isinstance(handler, _Reasons)), None)
    if found is None:
        found = _Reasons()
        logger.addHandler(found)
    logging.getLogger("urllib3").setLevel(logging.ERROR)
    return found


def metrics_sender(url: str, headers: Mapping[str, str], timeout_s: float, origin: Origin) -> Send[MetricsNow]:
    reasons = _listen()
    exporter = OTLPMetricExporter(endpoint=url, headers=dict(headers), timeout=timeout_s)
    resource = resource_of(origin)

    def send(states: Sequence[MetricsNow]) -> None:
        _check(exporter.export(metric_data(states[-1], origin, resource)), reasons)

    return send


def traces_sender(url: str, headers: Mapping[str, str], timeout_s: float, origin: Origin) -> Send[IncidentSpan]:
    reasons = _listen()
    exporter = OTLPSpanExporter(endpoint=url, headers=dict(headers), timeout=timeout_s)
    resource = resource_of(origin)

    def send(incidents: Sequence[IncidentSpan]) -> None:
        _check(exporter.export([span_data(incident, origin, resource) for incident in incidents]), reasons)

    return send


def _check(result: Any, reasons: _Reasons) -> None:
    """Both kinds of result are an enumeration with this name."""
    said = reasons.take()
    if result.name != "SUCCESS":
        raise SendError(said)
