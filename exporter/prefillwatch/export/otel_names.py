"""What the metrics of the table are called in OpenTelemetry, by rule, and the metrics that its standard has names for.

A unit is no part of a name there, so what our names end in becomes the unit; Prometheus, which makes a name of both,
makes the same name of it again. Pure.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from prefillwatch.export.spec import PREFIX, Kind, Spec

#: What a name ends in, the unit by UCUM that stands for it, and the kinds of metrics whose name goes without it: those
#: for which Prometheus writes it out again.
_UNITS: Final[tuple[tuple[str, str, frozenset[Kind]], ...]] = (
    ("_seconds", "s", frozenset(Kind)),
    ("_bytes", "By", frozenset(Kind)),
    ("_ratio", "1", frozenset({Kind.GAUGE})),
    ("_tokens", "{token}", frozenset()),
)


class OtelName(NamedTuple):
    name: str
    unit: str


def otel_name(spec: Spec) -> OtelName:
    """``prefillwatch_stall_seconds_total`` is ``prefillwatch.stall`` in ``s``, a sum that only rises."""
    name = spec.name.removesuffix("_total") if spec.kind is Kind.COUNTER else spec.name
    namespace = PREFIX.replace("_", ".")
    for ending, unit, without in _UNITS:
        if name.endswith(ending):
            return OtelName(namespace + (name.removesuffix(ending) if spec.kind in without else name), unit)
    return OtelName(namespace + name, "")


class Standard(NamedTuple):
    """A histogram of the standard. ``attributes`` are those that its label values stand for."""

    name: str
    unit: str
    attributes: tuple[str, ...]
    help: str


MODEL: Final = "gen_ai.request.model"
OPERATION: Final = "gen_ai.operation.name"
ERROR: Final = "error.type"

# Names and meaning: https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-metrics (stability: development).
SERVER_TIME_TO_FIRST_TOKEN: Final = Standard(
    "gen_ai.server.time_to_first_token",
    "s",
    (MODEL, OPERATION),
    "Time from the last byte of the request received to its first token event.",
)
SERVER_TIME_PER_OUTPUT_TOKEN: Final = Standard(
    "gen_ai.server.time_per_output_token",
    "s",
    (MODEL, OPERATION),
    "Per finished request: time from its first to its last token event, over its tokens less one.",
)
SERVER_REQUEST_DURATION: Final = Standard(
    "gen_ai.server.request.duration",
    "s",
    (MODEL, OPERATION, ERROR),
    "Time from the last byte of the request received to the end of its answer.",
)
STANDARD: Final = (SERVER_TIME_TO_FIRST_TOKEN, SERVER_TIME_PER_OUTPUT_TOKEN, SERVER_REQUEST_DURATION)

#: What the standard calls what is asked of an endpoint; the others are called as we call them.
_OPERATIONS: Final = {
    "chat_completions": "chat",
    "responses": "chat",
    "messages": "chat",
    "cohere_chat": "chat",
    "completions": "text_completion",
    "native": "text_completion",
    "embeddings": "embeddings",
}


def operation(endpoint: str) -> str:
    return _OPERATIONS.get(endpoint, endpoint)
