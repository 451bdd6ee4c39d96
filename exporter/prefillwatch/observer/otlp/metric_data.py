"""A state of all metrics in the SDK's data model, made when it is sent: its instruments would cost at each token."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from opentelemetry.sdk.metrics import Exemplar as SdkExemplar
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Buckets,
    ExponentialHistogram,
    ExponentialHistogramDataPoint,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource

from prefillwatch.export.exponential import SCALE, ExponentialCounts
from prefillwatch.export.otel_names import Standard, otel_name
from prefillwatch.export.registry import Exemplar, FamilySnapshot, Labels
from prefillwatch.export.spec import Kind
from prefillwatch.observer.otlp.items import MetricsNow, Origin
from prefillwatch.observer.otlp.resource import scope_of
from prefillwatch.units import NS

_CUMULATIVE: Final = AggregationTemporality.CUMULATIVE
#: The standard's word for a provider that it has none for.
_OTHER: Final = "_OTHER"

Attributes = dict[str, str | int]


def metric_data(now: MetricsNow, origin: Origin, resource: Resource) -> MetricsData:
    points = _Points(now.at_ns, origin.started_ns)
    metrics = [metric for family in now.snapshot if (metric := points.metric(family)) is not None]
    server: Attributes = {"gen_ai.provider.name": now.server or _OTHER, "server.address": origin.server_address}
    if origin.server_port is not None:
        server["server.port"] = origin.server_port
    metrics += [points.standard(standard, counts, server) for standard, counts in now.standard.items()]
    scopes = [ScopeMetrics(scope=scope_of(origin), metrics=metrics, schema_url="")]
    return MetricsData([ResourceMetrics(resource=resource, scope_metrics=scopes, schema_url="")])


class _Points:
    """Data points of one moment."""

    def __init__(self, at_ns: int, started_ns: int) -> None:
        self._at_ns = at_ns
        self._started_ns = started_ns

    def metric(self, family: FamilySnapshot) -> Metric | None:
        """None where there is nothing to say."""
        if not family.label_sets:
            return None
        spec = family.spec
        name, unit = otel_name(spec)
        data: Gauge | Sum | Histogram | ExponentialHistogram
        if spec.kind is Kind.GAUGE:
            data = Gauge(self._numbers(family))
        elif spec.kind is Kind.COUNTER:
            data = Sum(self._numbers(family), _CUMULATIVE, is_monotonic=True)
        elif family.exponential:
            data = ExponentialHistogram(
                [
                    self._exponential(_attributes(family, labels), counts, _exemplars(family, labels))
                    for labels, counts in family.exponential.items()
                ],
                _CUMULATIVE,
            )
        else:
            data = Histogram([self._explicit(family, labels) for labels in family.buckets], _CUMULATIVE)
        return Metric(name=name, description=spec.help, unit=unit, data=data)

    def standard(self, standard: Standard, counts: Mapping[Labels, ExponentialCounts], server: Attributes) -> Metric:
        points = []
        for labels, of_labels in counts.items():
            own = {name: value for name, value in zip(standard.attributes, labels, strict=True) if value}
            points.append(self._exponential({**server, **own}, of_labels, []))
        data = ExponentialHistogram(points, _CUMULATIVE)
        return Metric(name=standard.name, description=standard.help, unit=standard.unit, data=data)

    def _numbers(self, family: FamilySnapshot) -> list[NumberDataPoint]:
        return [
            NumberDataPoint(_attributes(family, labels), self._started_ns, self._at_ns, float(value))
            for labels, value in family.values.items()
        ]

    def _exponential(
        self, attributes: Attributes, counts: ExponentialCounts, exemplars: list[SdkExemplar]
    ) -> ExponentialHistogramDataPoint:
        return ExponentialHistogramDataPoint(
            attributes=attributes,
            start_time_unix_nano=self._started_ns,
            time_unix_nano=self._at_ns,
            count=counts.count,
            sum=counts.total,
            scale=SCALE,
            zero_count=counts.zeros,
            positive=Buckets(counts.offset, counts.counts),
            negative=Buckets(0, []),
            flags=0,
            min=None,  # optional on the wire; since the start they would say little
            max=None,
            exemplars=exemplars,
        )

    def _explicit(self, family: FamilySnapshot, labels: Labels) -> HistogramDataPoint:
        counts, total = family.buckets[labels]
        return HistogramDataPoint(
            attributes=_attributes(family, labels),
            start_time_unix_nano=self._started_ns,
            time_unix_nano=self._at_ns,
            count=sum(counts),
            sum=total,
            bucket_counts=counts,
            explicit_bounds=family.spec.bounds,
            min=None,
            max=None,
            exemplars=_exemplars(family, labels),
        )


def _attributes(family: FamilySnapshot, labels: Labels) -> Attributes:
    return dict(zip(family.spec.label_names, map(_text, labels), strict=True))


def _text(value: str) -> str:
    """Half a surrogate pair has no UTF-8."""
    return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode("utf-8")


def _exemplars(family: FamilySnapshot, labels: Labels) -> list[SdkExemplar]:
    found: Iterable[Exemplar] = family.exemplars.get(labels, {}).values()
    return [_exemplar(each) for each in found]


def _exemplar(exemplar: Exemplar) -> SdkExemplar:
    """Its trace is no attribute."""
    attributes = {name: _text(value) for name, value in exemplar.labels.items() if name != "trace_id"}
    trace_id, span_id = exemplar.labels.get("trace_id", ""), exemplar.span_id
    return SdkExemplar(
        attributes,
        exemplar.value,
        round(exemplar.at_s * NS),
        int(span_id, 16) if trace_id and span_id else None,
        int(trace_id, 16) if trace_id and span_id else None,
    )
