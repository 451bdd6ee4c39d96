"""Figures of each model as of one moment: percentiles of its windows, throughput, and what is advised."""

from __future__ import annotations

import msgspec

from prefillwatch.analysis.cost import Server
from prefillwatch.analysis.ledger import Ledger
from prefillwatch.analysis.model_books import ModelBooks
from prefillwatch.analysis.pressure import PressureGauge
from prefillwatch.analysis.tokens import LevelTotals, SlidingWindows
from prefillwatch.units import NS

#: Seconds of a window.
Window = int


class GapFigures(msgspec.Struct, frozen=True):
    """Of the gaps of one population in one window, in seconds. None: there were none."""

    p50_s: float | None
    p99_s: float | None
    longest_s: float | None


class ModelFigures(msgspec.Struct, frozen=True):
    """None: nothing is known yet, or there was nothing in the window."""

    model: str
    #: By population too.
    gaps: dict[tuple[Window, str], GapFigures]
    #: By prompt bucket too.
    first_token_p99_s: dict[tuple[Window, str], float | None]
    longest_prompt: dict[Window, float | None]
    interference: dict[Window, float | None]
    correlation: dict[Window, float | None]
    #: By the number of streams that decoded; running totals.
    concurrency: tuple[LevelTotals, ...]


class ModelAdvice(msgspec.Struct, frozen=True):
    """The law of step times that was learned, and the step budget that follows from it."""

    model: str
    words: str
    max_batched_tokens: int | None
    chunked: bool
    longest_prompt: int | None
    ttft_now_s: float | None
    ttft_then_s: float | None
    baseline_step_s: float | None
    token_cost_s: float | None
    fit: float | None
    steps_learned_from: int
    p99_s: float | None
    p99_without_prefill_s: float | None
    #: Prompt tokens that may wait; None: not known.
    max_queued_tokens: int | None


class ModelPressure(msgspec.Struct, frozen=True):
    """How far over the promises, 1 being just kept, and the parts that each pressure is the largest of."""

    model: str
    capacity: float
    pace: float
    reading: float
    waiting: float
    interference: float
    gaps: float
    held_up: float


def model_pressure(model: str, gauge: PressureGauge) -> ModelPressure | None:
    """None: too little was seen of it."""
    capacity, interference = gauge.capacity, gauge.interference
    if capacity is None or interference is None:
        return None
    return ModelPressure(
        model,
        capacity.ratio,
        capacity.pace,
        capacity.reading,
        capacity.waiting,
        interference.ratio,
        interference.gaps,
        interference.held_up,
    )


def model_figures(model: str, books: ModelBooks, buckets: tuple[str, ...], known_ns: int) -> ModelFigures:
    windows_s = books.windows_s
    populations = ("all", books.all_gaps), ("prefill", books.prefill_gaps), ("clear", books.clear_gaps)
    first_tokens = [(name, window) for name, window in zip(buckets, books.ttft, strict=True) if window is not None]
    return ModelFigures(
        model,
        {(seconds, name): _gap_figures(gaps, seconds) for seconds in windows_s for name, gaps in populations},
        {(seconds, name): window.quantile(0.99, seconds) for seconds in windows_s for name, window in first_tokens},
        {seconds: books.prompts.maximum(seconds) for seconds in windows_s},
        {seconds: books.interference_ratio(seconds) for seconds in windows_s},
        {seconds: books.correlation.ratio(known_ns // NS, seconds) for seconds in windows_s},
        tuple(books.concurrency.totals()),
    )


def _gap_figures(gaps: SlidingWindows, window_s: Window) -> GapFigures:
    p50_s, p99_s = gaps.quantiles((0.5, 0.99), window_s)
    return GapFigures(p50_s, p99_s, gaps.maximum(window_s))


def model_advice(model: str, ledger: Ledger, number: int, books: ModelBooks) -> ModelAdvice:
    engine, law, window_s = ledger.timeline.engine, ledger.costs.line(number), max(books.windows_s)
    server = Server(engine.budget if engine.proven else 0, engine.chunked, ledger.engines.decoding)
    longest = round(books.prompts.maximum(window_s) or 0.0)
    advice = ledger.costs.advised(number, ledger.settings.slo.itl, server, longest)
    return ModelAdvice(
        model,
        advice.words,
        advice.tokens,
        engine.chunked,
        advice.prompt_tokens or None,
        advice.ttft_now_s,
        advice.ttft_then_s,
        law.base_ns / NS if law else None,
        law.token_ns / NS if law else None,
        law.fit if law else None,
        ledger.costs.steps_seen(number),
        books.all_gaps.quantile(0.99, window_s),
        books.clear_gaps.quantile(0.99, window_s),
        ledger.pressures.most_queued_tokens(number),
    )
