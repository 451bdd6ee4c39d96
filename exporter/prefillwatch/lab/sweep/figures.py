"""What was measured on one setting: figures that go into the file of results. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from prefillwatch.analysis.settings import StallRule
from prefillwatch.analysis.tokens import quantile_rank

_TAIL: Final = 0.025  # on either side of an interval of 95 %


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """How some times are spread, in seconds. Quantiles are values that were measured: the smallest one with so large
    a share of the samples at or below it.

    ``p99_low`` and ``p99_high`` hold the true p99 with 95 % confidence whatever the distribution (order statistics);
    ``p99_high`` is None where the samples are too few to bound it.
    """

    samples: int
    p50_seconds: float
    p99_seconds: float
    max_seconds: float
    p99_low_seconds: float
    p99_high_seconds: float | None


def spread(values: Iterable[float], together: int = 1) -> Spread | None:
    """None without values. So many values as ``together`` says rise and fall as one (streams in one engine step), and
    tell no more about the tail than one does."""
    ordered = sorted(values)
    if not ordered:
        return None
    n = len(ordered)
    low, high = p99_ranks_from_top(max(1, n // together))
    return Spread(
        samples=n,
        p50_seconds=ordered[quantile_rank(0.5, n) - 1],
        p99_seconds=ordered[quantile_rank(0.99, n) - 1],
        max_seconds=ordered[-1],
        p99_low_seconds=ordered[max(0, n - low * together)],
        p99_high_seconds=ordered[max(0, n - high * together)] if high else None,
    )


def p99_ranks_from_top(n: int) -> tuple[int, int]:
    """(low, high): of ``n`` independent values, the true p99 lies between the low-th and the high-th largest in 95 %
    of cases. ``high`` is 0 where even the largest may be below it (n < 368). (Binomial order statistics.)
    """
    above, cumulated, high = 0.99**n, 0.0, 0  # above: the chance that exactly k values lie above the true p99
    for k in range(n + 1):
        if cumulated + above <= _TAIL:
            high = k + 1
        cumulated += above
        if 1.0 - cumulated <= _TAIL:
            return k + 1, high
        above *= (n - k) / (k + 1) * (0.01 / 0.99)
    return n, high


class Stalls(msgspec.Struct, frozen=True, kw_only=True):
    """Stalls of some streams: their seconds beyond the stream's median gap, among the seconds spent decoding."""

    stalls: int
    stall_seconds: float
    decode_seconds: float
    streams: int
    frozen_streams: int

    @property
    def share(self) -> float | None:
        """Stall seconds per second of decoding; None where nothing decoded."""
        return self.stall_seconds / self.decode_seconds if self.decode_seconds > 0 else None


def stalls_of(streams: Sequence[Sequence[float]], rule: StallRule | None = None) -> Stalls:
    """The stalls among the gaps (seconds) of each stream, by the exporter's rule, with the stream's own median as its
    baseline."""
    rule = rule or StallRule()
    found = []
    for gaps in streams:
        median = sorted(gaps)[quantile_rank(0.5, len(gaps)) - 1] if gaps else None
        found.append([gap - (median or 0.0) for gap in gaps if rule.holds(gap, median)])
    return Stalls(
        stalls=sum(map(len, found)),
        stall_seconds=sum(map(sum, found)),
        decode_seconds=sum(map(sum, streams)),
        streams=len(streams),
        frozen_streams=sum(map(bool, found)),
    )


class ProbeFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The victims-and-lump experiment with so many prompts at once."""

    inject: int
    prompt_tokens: int
    runs: int
    #: Gaps of the victims, over the whole run.
    overall: Spread | None
    #: Those of them that overlapped the injection: from sending the prompts to the last of their first tokens.
    window: Spread | None
    #: Times to first token of the injected prompts.
    first_token: Spread | None
    stalls: Stalls
    #: Injected prompt tokens over the length of the injection window.
    prompt_tokens_per_second: float | None
    failures: tuple[str, ...] = ()


class MixFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Steady readers and a mix of requests that arrive at given times, the same for all settings."""

    seconds: float
    #: Requests sent, without those of the steady readers.
    requests: int
    answered: int
    failed: int
    turned_away: int
    #: Arrivals of a file that were not sent because the model does not take prompts of their length.
    left_out: int = 0
    #: Gaps of the steady readers.
    gaps: Spread | None
    #: Times to first token of all arrivals.
    first_token: Spread | None
    #: The same by prompt tokens.
    first_token_by_size: dict[str, Spread]
    stalls: Stalls
    #: Readers' and arrivals', in the seconds of the mix.
    generated_tokens_per_second: float
    #: Of prompts whose first token came in that time.
    prompt_tokens_per_second: float
    #: Answers that ended in that time.
    requests_per_second: float
    failures: tuple[str, ...] = ()


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One row: a setting, and what was measured, or in ``failure`` why not."""

    flags: tuple[str, ...]
    label: str
    start_seconds: float | None = None
    probes: tuple[ProbeFigures, ...] = ()
    mix: MixFigures | None = None
    #: How late this program's own event loop was, sampled while it measured.
    client_lag: Spread | None = None
    failure: str | None = None

    @property
    def heaviest(self) -> ProbeFigures | None:
        """The probe with the most prompts at once: enough stalls that the tail shows them however it is counted."""
        return max(self.probes, key=lambda probe: probe.inject, default=None)
