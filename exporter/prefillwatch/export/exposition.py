"""A snapshot as text: Prometheus' own format or OpenMetrics, whichever the scraper asks for. Pure; any thread."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

from prometheus_client.exposition import generate_latest as prometheus_text
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics_text
from prometheus_client.registry import Collector

from prefillwatch.export.registry import FamilySnapshot, Labels, Snapshot
from prefillwatch.export.spec import Spec

PROMETHEUS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_UNITS = ("seconds", "bytes", "tokens", "ratio")


def render(snapshot: Snapshot, accept_header: str = "") -> tuple[bytes, str]:
    """The page and its content type. OpenMetrics when the Accept header prefers it, else the Prometheus format."""
    pages = _Pages(snapshot)
    if wants_openmetrics(accept_header):
        text: bytes = openmetrics_text(pages)  # type: ignore[no-untyped-call]
        return text, OPENMETRICS_TYPE
    return prometheus_text(pages), PROMETHEUS_TYPE


def wants_openmetrics(accept_header: str) -> bool:
    """Whether OpenMetrics is named and weighs no less than text/plain. Ranges such as */* do not name it."""
    weights = {"application/openmetrics-text": 0.0, "text/plain": 0.0}
    for entry in accept_header.split(","):
        media_type, *parameters = (part.strip().lower() for part in entry.split(";"))
        if media_type in weights:
            weights[media_type] = max(weights[media_type], weight(parameters))
    return weights["application/openmetrics-text"] > 0.0 and (
        weights["application/openmetrics-text"] >= weights["text/plain"]
    )


def weight(parameters: list[str]) -> float:
    """The ``q`` among the parameters of one entry in an Accept header; 1 without one, 0 when it cannot be read."""
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0


class _Pages(Collector):
    """Gives a snapshot to prometheus_client as if it were one of its registries."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        return map(_metric, self._snapshot)


def _metric(family: FamilySnapshot) -> Metric:
    spec = family.spec
    name = spec.full_name.removesuffix("_total")
    metric = Metric(name, spec.help, spec.kind.value, _unit(name))
    for labels, value in family.values.items():
        metric.add_sample(spec.full_name, _label_map(spec, labels), value)
    for labels, (counts, total) in family.buckets.items():
        _add_buckets(metric, spec, _label_map(spec, labels), counts, total)
    return metric


def _add_buckets(metric: Metric, spec: Spec, labels: dict[str, str], counts: list[int], total: float) -> None:
    cumulative = 0
    for bound, cumulative in zip((*map(repr, spec.bounds), "+Inf"), accumulate(counts), strict=True):
        metric.add_sample(metric.name + "_bucket", {**labels, "le": bound}, cumulative)
    metric.add_sample(metric.name + "_sum", labels, total)
    metric.add_sample(metric.name + "_count", labels, cumulative)


def _unit(name: str) -> str:
    """OpenMetrics tells the unit apart, and only where the name ends in it."""
    last = name.rsplit("_", 1)[-1]
    return last if last in _UNITS else ""


def _label_map(spec: Spec, labels: Labels) -> dict[str, str]:
    return dict(zip(spec.label_names, map(_printable, labels), strict=True))


def _printable(value: str) -> str:
    """Half a surrogate pair, which a JSON escape can smuggle in, has no UTF-8 and would break the page for ever."""
    return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode("utf-8")
