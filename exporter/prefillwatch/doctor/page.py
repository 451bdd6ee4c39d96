"""One metrics page of any server known here, as values and histograms by name."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Final

from prefillwatch.doctor.histogram import Histogram, from_cumulative
from prefillwatch.doctor.servers import SERVERS
from prefillwatch.engine.errors import FetchReason, PageError
from prefillwatch.engine.exposition import Sample, SampleFinder
from prefillwatch.engine.kinds import PageSample, read_page
from prefillwatch.export.spec import Kind, Spec
from prefillwatch.export.table import TABLE

#: Those of our plugin, on vLLM's own page.
PLUGIN_STEPS: Final = "engine_step_seconds"
PLUGIN_GAPS: Final = "engine_inter_token_latency_seconds"

OURS: Final = "prefillwatch"
_PARTS: Final = ("_bucket", "_count", "_sum")
#: The other parts of an engine repeat what its first part reports.
_PART_LABELS: Final = ("tp_rank", "pp_rank")
#: The finder reads so many samples at most, and a page of a sidecar with many models has more.
_LINES_AT_ONCE: Final = 2000
#: Counts, times and bytes are never larger, and sums of such values cannot overflow.
_LARGEST: Final = 1e18


def _lines_of(spec: Spec) -> Iterator[str]:
    return (spec.name + part for part in _PARTS) if spec.kind is Kind.HISTOGRAM else iter((spec.name,))


def _histogram_lines(names: tuple[str, ...]) -> Iterator[str]:
    return (name + part for name in names for part in _PARTS)


_FINDER: Final = SampleFinder(
    {
        OURS: frozenset(
            [*(line for spec in TABLE for line in _lines_of(spec)), *_histogram_lines((PLUGIN_STEPS, PLUGIN_GAPS))]
        ),
        **{
            namespace: frozenset([*_histogram_lines(server.histograms), *server.counters])
            for namespace, server in SERVERS.items()
        },
    }
)

Labels = Mapping[str, str]


class Page:
    """What a page says. Series of several models and engines are added up unless a label picks some of them."""

    def __init__(self, text: bytes) -> None:
        """Raises PageError when it is empty, no metrics page, or one of no server known here."""
        self.engines: PageSample = read_page(text)
        self._samples: dict[str, list[tuple[Labels, float]]] = defaultdict(list)
        for piece in _pieces(text):
            for sample in _FINDER.find(piece):
                if _is_first_part(sample) and abs(sample.value) <= _LARGEST:  # not NaN
                    self._samples[f"{sample.namespace}:{sample.name}"].append((sample.labels, sample.value))
        self.namespace = OURS if self._samples.get(f"{OURS}:build_info") else self.engines.server
        if self.namespace not in (OURS, *SERVERS):
            known = "prefillwatch, vLLM, SGLang, llama.cpp, TGI, TensorRT-LLM or Triton"
            raise PageError(FetchReason.PARSE, f"a metrics page, but none of {known}")

    def series(self, name: str, **labels: str) -> list[tuple[Labels, float]]:
        """Samples of a metric, written without its namespace, that have these labels."""
        found = self._samples.get(f"{self.namespace}:{name}", [])
        return [(have, value) for have, value in found if labels.items() <= have.items()]

    def total(self, name: str, **labels: str) -> float | None:
        """The sum of its samples; None where there are none."""
        values = [value for _, value in self.series(name, **labels)]
        return math.fsum(values) if values else None

    def counters(self) -> list[str]:
        """Names, without namespace, of what only ever rises while its server runs."""
        prefix = f"{self.namespace}:"
        return [
            name.removeprefix(prefix)
            for name in self._samples
            if name.startswith(prefix) and name.endswith(("_total", "_count"))
        ]

    def highest(self, name: str, **labels: str) -> float | None:
        return max((value for _, value in self.series(name, **labels)), default=None)

    def totals(self, name: str, label: str, **labels: str) -> dict[str, float]:
        """Its sums by the values of a label, of the series with these labels."""
        sums: dict[str, float] = defaultdict(float)
        for have, value in self.series(name):
            if labels.items() <= have.items():
                sums[have.get(label, "")] += value
        return dict(sums)

    def histogram(self, name: str, namespace: str = "", **labels: str) -> Histogram | None:
        """None where the page has none of that name."""
        prefix = f"{namespace or self.namespace}:{name}"
        upto: dict[float, float] = defaultdict(float)
        for have, value in self._samples.get(prefix + "_bucket", ()):
            if labels.items() <= have.items():
                bound = _bound(have.get("le", ""))
                if bound is not None:
                    upto[bound] += value
        sums = [value for have, value in self._samples.get(prefix + "_sum", ()) if labels.items() <= have.items()]
        return from_cumulative(upto, math.fsum(sums))

    def histograms(self, name: str, label: str, namespace: str = "") -> dict[str, Histogram]:
        """By the values of a label, in the order of the page."""
        found = self._samples.get(f"{namespace or self.namespace}:{name}_bucket", ())
        values = dict.fromkeys(labels[label] for labels, _ in found if label in labels)
        read = {value: self.histogram(name, namespace, **{label: value}) for value in values}
        return {value: histogram for value, histogram in read.items() if histogram is not None}


def _pieces(text: bytes) -> Iterator[bytes]:
    """The page in pieces of so many lines."""
    lines = text.split(b"\n")
    for start in range(0, len(lines), _LINES_AT_ONCE):
        yield b"\n".join(lines[start : start + _LINES_AT_ONCE])


def _is_first_part(sample: Sample) -> bool:
    return all(sample.labels.get(part, "0") in ("", "0") for part in _PART_LABELS)


def _bound(text: str) -> float | None:
    try:
        bound = float(text)
    except ValueError:
        return None
    return None if math.isnan(bound) else bound
