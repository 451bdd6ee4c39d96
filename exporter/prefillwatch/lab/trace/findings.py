"""The figures found in a trace: the JSON report is made of them, and so are text and picture. Times are seconds."""

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
    #: None where the same kernels serve prompts and answers.
    phase: Phase | None
    launches: int
    seconds: float
    #: None where no steps are known.
    in_prefill_steps: Share | None
    in_decode_steps: Share | None
    #: Launches of the most frequent kernels, by short name.
    kernels: dict[str, int]


class TickFigures(msgspec.Struct, frozen=True):
    """One engine step. `start_seconds` counts from the first work in the trace."""

    start_seconds: float
    #: To the start of the next step; none for the last.
    interval_seconds: float | None
    busy_ratio: float
    prefill: bool
    #: Requests whose prompt was worked on in it.
    prompts: int | None
    #: Prompt tokens of all these requests.
    prompt_tokens: int | None
    answers: int | None
    tuning: bool


class PrefillFigures(msgspec.Struct, frozen=True):
    """A run of steps that carried prompt work."""

    start_seconds: float
    end_seconds: float
    steps: int
    prompt_tokens: int | None
    #: The most whose prompts were worked on in one step.
    most_prompts: int | None


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
    #: Pure decode steps before the main prefill.
    before: Part
    during: Part
    after: Part
    annotated_steps: int
    #: Steps annotated by the engine that hold exactly one step found by the kernels.
    agreeing_steps: int


class GapFigures(msgspec.Struct, frozen=True):
    """Between the end of a decode kernel and the start of the next, in stretches of pure decoding."""

    kernel: str
    samples: int
    p50_seconds: float
    p90_seconds: float
    p99_seconds: float
    max_seconds: float
    widest_start_seconds: float
    #: Share of the widest gap in which the device was at work.
    widest_busy_ratio: float
    #: Seconds of the widest gap by kind of work, the largest first.
    widest_filled_by: dict[str, float]


class LayerFigures(msgspec.Struct, frozen=True):
    """The two kinds of layers of a hybrid model, or the one of another."""

    #: Layers with attention over a growing KV cache that ran per step.
    full_attention: int
    linear_attention: int
    full_share: Share
    linear_share: Share
    #: In pure decode steps.
    full_decode_share: Share
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
    #: The trace's own time of its first work; all other times count from there.
    start_microseconds: float
    span_seconds: float
    busy_ratio: float
    families: list[FamilyFigures]
    phases: PhaseFigures
    layers: LayerFigures
    tuning: TuningFigures | None
    cadence: CadenceFigures | None
    prefills: list[PrefillFigures]
    #: Index into `prefills` of the one with the most prompt tokens, or else the longest.
    main_prefill: int | None
    decode_gaps: GapFigures | None
    steps: list[TickFigures]
    #: What a reader must know before believing the figures.
    notes: list[str]


class ClientSide(msgspec.Struct, frozen=True):
    """What the clients saw while the trace was made. Times are seconds."""

    victims: int
    prompt_tokens: int | None
    #: Of the prompt.
    ttft_seconds: float | None
    #: Median gap between two tokens of a victim before the prompt was sent.
    gap_before_seconds: float | None
    #: The same median while the prompt's first token was awaited.
    gap_during_seconds: float | None
    gap_after_seconds: float | None
    #: Why the capture ended early, if it did.
    problem: str = ""
    #: It ended because it was asked to stop.
    interrupted: bool = False
