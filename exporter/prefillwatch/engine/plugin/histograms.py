"""The two histograms on vLLM's own ``/metrics``.

vLLM serves the default registry of prometheus_client; with several API servers, the files that prometheus_client keeps
for each process. Histograms of the default registry are in both.
"""

from __future__ import annotations

import functools
from bisect import bisect_left
from collections.abc import Iterable
from typing import Any, Final

from prometheus_client import Histogram

from prefillwatch.contract.buckets import GAP_BOUNDS, STEP_BOUNDS, STEP_BUCKETS, STEP_EDGES
from prefillwatch.engine.step_report import StepReport
from prefillwatch.units import NS

#: The bucket of a step of which vLLM does not report what it carried.
UNKNOWN: Final = "unknown"
_LABELS: Final = ("model_name", "engine", "step_prefill_tokens")


class _Histogram(Histogram):
    """Takes many equal values at once, and shows no ``_created``, which doubles nothing but the series."""

    def add(self, value: float, times: int) -> None:
        try:
            bucket = self._buckets[bisect_left(self._upper_bounds, value)]
            total = self._sum
        except AttributeError:  # not the prometheus_client we know
            for _ in range(times):
                self.observe(value)
        else:
            bucket.inc(times)
            total.inc(value * times)

    def _child_samples(self) -> Iterable[Any]:
        return tuple(sample for sample in super()._child_samples() if sample.name != "_created")


class StepHistograms:
    """Step time and gaps of all engines of this process."""

    def __init__(self, **options: Any) -> None:
        """Options are those of prometheus_client's metrics. Raises ValueError when the names are taken."""
        self._steps = _Histogram(
            "prefillwatch_engine_step_seconds",
            "Time between the outputs of an engine step and the step before it, or of the step alone after a pause, in "
            "seconds, by the prefill tokens in the step (unknown: vLLM does not report it; see "
            "--enable-logging-iteration-details).",
            _LABELS,
            buckets=STEP_BOUNDS,
            **options,
        )
        self._gaps = _Histogram(
            "prefillwatch_engine_inter_token_latency_seconds",
            "Time between the engine's outputs of two consecutive tokens of a request, in seconds, by the prefill "
            "tokens in the step that made the later one. One sample per request and step.",
            _LABELS,
            buckets=GAP_BOUNDS,
            **options,
        )

    def add(self, model: str, report: StepReport) -> None:
        labels = (model, str(report.engine), prefill_bucket(report.prefill_tokens))
        if report.is_step:
            self._steps.labels(*labels).add(report.duration_ns / NS, 1)
        if report.gaps:
            child = self._gaps.labels(*labels)
            for seconds, requests in report.gaps:
                child.add(seconds, requests)


def prefill_bucket(tokens: int) -> str:
    """The label value for a step with so many prefill tokens; below 0 they are not known."""
    return STEP_BUCKETS[bisect_left(STEP_EDGES, tokens)] if tokens >= 0 else UNKNOWN


@functools.cache
def shared_histograms() -> StepHistograms:
    """Those of this process: vLLM may make its loggers more than once, but a name can be registered only once."""
    return StepHistograms()
