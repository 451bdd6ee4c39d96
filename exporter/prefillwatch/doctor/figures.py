"""What the doctor judges by, whichever server it comes from. What a server does not report is None.

Times are seconds, lengths tokens. Everything is of the time watched unless it says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from prefillwatch.doctor.histogram import Estimate, Histogram

#: Key of gaps during which no other prompt was in service, or of steps that carried none.
CLEAR: Final = "none"
#: Key where sizes of prompts are not told apart.
ANY_SIZE: Final = ""


def size_order(size: str) -> tuple[int, int]:
    """A sort key for names of sizes such as ``none``, ``512-2k`` and ``8k+``; names of no size come last."""
    if size in (CLEAR, ANY_SIZE):
        return 0, 0
    lower = size.split("-")[0].rstrip("+")
    digits = lower.removesuffix("k")
    return (1, int(digits) * (1024 if lower.endswith("k") else 1)) if digits.isdigit() else (2, 0)


@dataclass(frozen=True, slots=True)
class Moment:
    """One look at gauges. ``decoding`` and ``in_prefill`` are as the sidecar counts them, ``running`` and ``waiting``
    as the engine does."""

    decoding: int | None = None
    in_prefill: int | None = None
    running: int | None = None
    waiting: int | None = None
    kv_usage: float | None = None  # of the fullest engine, 0 to 1
    open_gap: float | None = None
    frozen: int | None = None
    oldest_wait: float | None = None

    @property
    def streams(self) -> int | None:
        return self.decoding if self.decoding is not None else self.running


@dataclass(frozen=True, slots=True)
class Stalls:
    """``seconds`` lost beyond what the streams are used to, summed over streams."""

    count: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Level:
    """Time at one level of concurrency, and the tokens and requests of that time."""

    seconds: float
    tokens: float
    requests: float


@dataclass(frozen=True, slots=True)
class Culprit:
    """``share`` of the stall seconds of its incident, 0 to 1."""

    prompt_tokens: int
    share: float
    request_id: str = ""
    estimated: bool = False


@dataclass(frozen=True, slots=True)
class Incident:
    """As `/api/incidents` has it. ``whole``: it began after the first page was read and was over before the last, so
    that all its stalls are among those between the two."""

    kind: str  # freeze or wait
    cause: str
    victims: int
    worst_gap: float
    baseline_gap: float | None
    culprits: tuple[Culprit, ...]
    whole: bool = True


@dataclass(frozen=True, slots=True)
class Advice:
    """What the sidecar advises for a model, as `/api/state` has it."""

    model: str
    words: str
    max_batched_tokens: int | None
    chunked: bool | None = None


@dataclass(frozen=True, slots=True)
class Trust:
    """How well a sidecar sees."""

    up: bool | None
    scrape_success: bool | None
    scrape_failures: Mapping[str, float]  # by reason
    kv_signal: bool | None
    tap_packets: float
    tap_dropped: float
    lag: Histogram | None
    usage_reported: bool | None  # since its start; None: no finished request yet
    usage_rests: bool  # upstream refused to be asked for it
    unparsed: Mapping[str, float]  # events or bodies that were not understood, by reason
    upstream_restarts: float
    refused: Mapping[str, float]  # requests that prefillwatch itself refused or left, by reason
    health_failures: Mapping[str, float] = field(default_factory=dict)  # health checks, by reason
    relays_away: tuple[str, ...] = ()  # those that do not serve
    relay_restarts: float = 0.0
    lost_streams: float = 0.0
    repaired_streams: float = 0.0  # requests whose beginning or end was not seen
    unread: Mapping[str, float] = field(default_factory=dict)  # request bodies known by their size alone, by reason
    endpoints: Mapping[str, float] = field(default_factory=dict)  # requests that ended well, by endpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The same figures from the server's start to the beginning of the watch."""

    gaps: Histogram | None
    gaps_beside: Mapping[str, Histogram]
    first_tokens: Mapping[str, Histogram]
    levels: Mapping[str, Level]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """``seconds`` is how long was watched; None: since the server's start."""

    server: str  # prefillwatch, vllm, sglang …
    engine: str = ""  # behind a sidecar: the kind of server, where it is known
    seconds: float | None = None
    restarted: bool = False
    moments: tuple[Moment, ...] = ()
    before: Comparison | None = None

    gaps: Histogram | None = None
    longest_gap: float | None = None  # exact; None where only its bucket is known
    gaps_beside: Mapping[str, Histogram] | None = None  # by the largest other prompt in service, or the step's tokens
    by_step: bool = False  # what gaps_beside is by: prefill tokens in the engine's step, not prompts in service
    stalls: Mapping[str, Stalls] | None = None  # by cause
    incidents: tuple[Incident, ...] = ()
    advice: tuple[Advice, ...] = ()

    first_tokens: Mapping[str, Histogram] = field(default_factory=dict)  # by prompt size
    queue: Mapping[str, Histogram] = field(default_factory=dict)
    prefill: Mapping[str, Histogram] = field(default_factory=dict)
    prompts: Histogram | None = None
    longest_prompt: int | None = None
    step_tokens: Histogram | None = None  # tokens per engine step, prompts and answers together
    steps_beside: Mapping[str, Histogram] = field(default_factory=dict)  # step times by prefill tokens in them

    levels: Mapping[str, Level] | None = None  # by concurrency
    finished: float | None = None
    generated: float | None = None
    preemptions: float | None = None
    kv_capacity: float | None = None
    kv_free: float | None = None
    # Stall seconds by tenant: caused to others, and suffered because of others. Empty where they are not told apart.
    caused_by_tenant: Mapping[str, float] = field(default_factory=dict)
    suffered_by_tenant: Mapping[str, float] = field(default_factory=dict)
    trust: Trust | None = None
    #: How far over the promises, of the model that is furthest: what replicas cure, and what they do not.
    capacity_pressure: float | None = None
    interference_pressure: float | None = None
    #: Prompt tokens that may wait.
    advised_queue: int | None = None

    @property
    def is_sidecar(self) -> bool:
        return self.trust is not None

    @property
    def gap_count(self) -> int:
        return self.gaps.count if self.gaps else 0

    def stalled(self, cause: str) -> Stalls:
        """The stalls of one cause; zero where there were none."""
        return (self.stalls or {}).get(cause, Stalls(0, 0.0))

    def capped(self, estimate: Estimate) -> float:
        """An interpolated gap cannot be longer than the longest gap, where that is known."""
        return estimate.value if self.longest_gap is None else min(estimate.value, max(self.longest_gap, estimate.low))

    def highest(self, of: str) -> float | None:
        """The highest value that a gauge of `Moment` had."""
        values = [getattr(moment, of) for moment in self.moments]
        return max((value for value in values if value is not None), default=None)

    def most_streams(self) -> int | None:
        """The most streams that there were at once."""
        at_once = self.highest("streams")
        return None if at_once is None else int(at_once)
