"""A snapshot as a page for scrapers: prometheus_client writes it, in the format that the scraper asks for. Pure; any
thread."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Final

from prometheus_client import Metric
from prometheus_client.exposition import choose_encoder, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar as WrittenExemplar

from prefillwatch.export.registry import Exemplar, FamilySnapshot, Snapshot
from prefillwatch.export.spec import Kind

#: What OpenMetrics tells apart as the unit where a name ends in it.
_UNITS: Final = ("seconds", "bytes", "tokens", "ratio")


def render(snapshot: Snapshot, accept_header: str = "") -> tuple[bytes, str]:
    """The page and its content type."""
    content_type, collector = negotiated(accept_header), SnapshotCollector(snapshot)
    if content_type.startswith("application/openmetrics-text"):
        # Our names are plain, so no way of escaping them changes a byte; this one is half the work.
        body: bytes = openmetrics.generate_latest(collector, escaping=openmetrics.ALLOWUTF8)  # type: ignore[no-untyped-call]
        return body, content_type
    return generate_latest(collector), content_type


def negotiated(accept_header: str) -> str:
    """The content type for an Accept header, as prometheus_client chooses it: the first format in it that it writes,
    whatever the weights."""
    try:
        return choose_encoder(accept_header.lower())[1]
    except TypeError:  # a version that is not a number, which the library compares with one
        return choose_encoder("")[1]


class SnapshotCollector(Collector):
    """A snapshot as prometheus_client reads metrics. Nothing in it says when a series was created."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        return map(_metric, self._snapshot)


def _metric(family: FamilySnapshot) -> Metric:
    spec = family.spec
    name = spec.full_name.removesuffix("_total") if spec.kind is Kind.COUNTER else spec.full_name
    unit = name.rsplit("_", 1)[-1]
    metric = Metric(name, spec.help, spec.kind.value, unit if unit in _UNITS else "")
    add, names = metric.add_sample, spec.label_names
    for values, value in family.values.items():
        add(spec.full_name, dict(zip(names, map(_printable, values), strict=True)), value)
    edges = (*map(repr, spec.bounds), "+Inf")
    for values, (counts, total) in family.buckets.items():
        labels = dict(zip(names, map(_printable, values), strict=True))
        exemplars = family.exemplars.get(values, {})
        for number, (edge, below) in enumerate(zip(edges, accumulate(counts), strict=True)):
            exemplar = exemplars.get(number)
            add(f"{name}_bucket", {**labels, "le": edge}, below, None, _written(exemplar) if exemplar else None)
        add(f"{name}_sum", labels, total)
        add(f"{name}_count", labels, sum(counts))
    return metric


def _written(exemplar: Exemplar) -> WrittenExemplar:
    """To the millisecond: more digits would say more than a wall clock knows."""
    labels = {name: _printable(value) for name, value in exemplar.labels.items()}
    return WrittenExemplar(labels, exemplar.value, round(exemplar.at_s, 3))


def _printable(value: str) -> str:
    """Half a surrogate pair, which a JSON escape can smuggle in, has no UTF-8 and would break the page for ever."""
    return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode("utf-8")
