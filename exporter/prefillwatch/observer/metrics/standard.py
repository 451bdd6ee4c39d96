"""The histograms that OpenTelemetry's standard has names for, of requests that make tokens."""

from __future__ import annotations

from typing import Final

from prefillwatch.export.exponential import ExponentialBuckets, ExponentialCounts
from prefillwatch.export.otel_names import (
    SERVER_REQUEST_DURATION,
    SERVER_TIME_PER_OUTPUT_TOKEN,
    SERVER_TIME_TO_FIRST_TOKEN,
    Standard,
    operation,
)
from prefillwatch.export.registry import MAX_LABEL_SETS, Labels

#: The outcome that is no error, which the standard leaves out.
_WELL: Final = "ok"

StandardCounts = dict[Standard, dict[Labels, ExponentialCounts]]


class StandardHistograms:
    """Labels are in the order of the attributes; the first is the model."""

    def __init__(self) -> None:
        self._kept: dict[tuple[Standard, Labels], ExponentialBuckets] = {}

    def first_token(self, model: str, endpoint: str, seconds: float) -> None:
        self._observe(SERVER_TIME_TO_FIRST_TOKEN, (model, operation(endpoint)), seconds)

    def per_token(self, model: str, endpoint: str, seconds: float) -> None:
        self._observe(SERVER_TIME_PER_OUTPUT_TOKEN, (model, operation(endpoint)), seconds)

    def duration(self, model: str, endpoint: str, outcome: str, seconds: float) -> None:
        error = "" if outcome == _WELL else outcome
        self._observe(SERVER_REQUEST_DURATION, (model, operation(endpoint), error), seconds)

    def _observe(self, standard: Standard, labels: Labels, seconds: float) -> None:
        buckets = self._kept.get((standard, labels))
        if buckets is None:
            if len(self._kept) >= MAX_LABEL_SETS:  # models, endpoints and outcomes are bounded: never
                return
            buckets = self._kept[standard, labels] = ExponentialBuckets()
        buckets.observe(seconds)

    def forget_model(self, model: str) -> None:
        for key in [key for key in self._kept if key[1][0] == model]:
            del self._kept[key]

    def copy(self) -> StandardCounts:
        found: StandardCounts = {}
        for (standard, labels), buckets in self._kept.items():
            found.setdefault(standard, {})[labels] = buckets.copy()
        return found
