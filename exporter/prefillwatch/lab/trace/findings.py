"""What a trace tells, in figures: the JSON report, and what text and picture are made from. Times are seconds."""

from __future__ import annotations

import msgspec

from prefillwatch.lab.trace.families import Kind, Phase
from prefillwatch.lab.trace.steps import Evidence, How
from prefillwatch.lab.trace.timeline import Source


class Share(msgspec.Struct, frozen=True):
    """Launches and time of a part of the kernels."""

    launches: int = 0
    seconds: float = 0.0

    @property
    def mean_seconds(self) -> float:
        return self.seconds / self.launches if self.launches else 0.0


class FamilyFigures(msgspec.Struct, frozen=True):
    """Kernels that do the same kind of work. Tries of an autotuner are not among them."""

    name: str
    kind: Kind
    phase: Phase | None
    """None where the same kernels serve prompts and answers."""
    launches: int
    seconds: float
    in_prefill_steps: Share | None
    """None where no steps are known."""
    in_decode_steps: Share | None
    kernels: dict[str, int]
    """Launches of the most frequent kernels, by short name."""


class TickFigures(msgspec.Struct, frozen=True):
    """One engine step. `start_seconds` counts from the first work in the trace."""

    start_seconds: float
    interval_seconds: float | None
    """To the start of the next step; none for the last."""
    busy_ratio: float
    prefill: bool
    prompts: int | None
    """Requests whose prompt was worked on in it."""
    prompt_tokens: int | None
    """Of all of them."""
    answers: int | None
    tuning: bool


class PrefillFigures(msgspec.Struct, frozen=True):
    """A run of steps that carried prompt work."""

    start_seconds: float
    end_seconds: float
    steps: int
    prompt_tokens: int | None
    most_prompts: int | None
    """The most whose prompts were worked on in one step."""


class Part(msgspec.Struct, frozen=True):
    """Step times of a part of the trace. Steps in which kernels were tried out only count where there are no others."""

    steps: int
    median_seconds: float | None
    p90_seconds: float | None
    max_seconds: float | None
    busy_ratio: float | None


class CadenceFigures(msgspec.Struct, frozen=True):
    """The heartbeat: how the steps came."""

    steps: int
    cut_by: How
    prefill_told_by: Evidence
    before: Part
    """Pure decode steps before the main prefill."""
    during: Part
    after: Part
    annotated_steps: int
    agreeing_steps: int
    """Steps annotated by the engine that hold exactly one step found by the kernels."""


class GapFigures(msgspec.Struct, frozen=True):
    """Between the end of a decode kernel and the start of the next, in stretches of pure decoding."""

    kernel: str
    samples: int
    p50_seconds: float
    p90_seconds: float
    p99_seconds: float
    max_seconds: float
    widest_start_seconds: float
    widest_busy_ratio: float
    """Share of the widest gap in which the device was at work."""
    widest_filled_by: dict[str, float]
    """Seconds of the widest gap by kind of work, the largest first."""


class LayerFigures(msgspec.Struct, frozen=True):
    """The two kinds of layers of a hybrid model, or the one of another."""

    full_attention: int
    """Layers with attention over a growing KV cache that ran per step."""
    linear_attention: int
    full_share: Share
    linear_share: Share
    full_decode_share: Share
    """In pure decode steps."""
    linear_decode_share: Share


class PhaseFigures(msgspec.Struct, frozen=True):
    """Kernels that by their names work on prompts only, on answers only, or on both."""

    prefill: Share
    decode: Share
    both: Share


class TuningFigures(msgspec.Struct, frozen=True):
    """Launches by which kernels were tried out, with the wiping of caches between them."""

    launches: int
    seconds: float
    kernels: list[str]
    steps: int


class Findings(msgspec.Struct, frozen=True):
    """All that was found in one trace."""

    file: str
    vllm_version: str | None
    source: Source
    device: str
    other_devices: list[str]
    events: int
    kernels: int
    start_microseconds: float
    """The trace's own time of its first work; all other times count from there."""
    span_seconds: float
    busy_ratio: float
    families: list[FamilyFigures]
    phases: PhaseFigures
    layers: LayerFigures
    tuning: TuningFigures | None
    cadence: CadenceFigures | None
    prefills: list[PrefillFigures]
    main_prefill: int | None
    """Index into `prefills` of the one with the most prompt tokens, or else the longest."""
    decode_gaps: GapFigures | None
    steps: list[TickFigures]
    notes: list[str]
    """What a reader must know before believing the figures."""


class ClientSide(msgspec.Struct, frozen=True):
    """What the clients saw while the trace was made. Times are seconds."""

    victims: int
    prompt_tokens: int | None
    ttft_seconds: float | None
    """Of the prompt."""
    gap_before_seconds: float | None
    """Median gap between two tokens of a victim before the prompt was sent."""
    gap_during_seconds: float | None
    """… while its first token was awaited."""
    gap_after_seconds: float | None
    problem: str = ""
    """Why the capture ended early, if it did."""
    interrupted: bool = False
    """It was told to stop."""
