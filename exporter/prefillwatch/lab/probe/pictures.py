"""The charts of a probe's report. Pure: figures in, SVG out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from prefillwatch.lab.charts.drawing import CALM, INK, MUTED, SHADE, STALL, axes, legend, to_svg
from prefillwatch.lab.probe.figures import Gap, RunFigures, split, victim_gaps
from prefillwatch.lab.probe.response import Response
from prefillwatch.lab.probe.timeline import Run
from prefillwatch.units import NS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Seconds shown before the injection and after the last first token.
_MARGIN_S: Final = 1.5
#: With more reads than this in a lane, ticks would merge into a solid bar.
_MOST_TICKS: Final = 700
_MOST_PROMPTS: Final = 40


def lanes(run: Run, figures: RunFigures) -> str:
    """A tick for every token of every victim, and a bar for every long prompt from its sending to its first token."""
    start_ns, end_ns = run.injected_ns, run.released_ns
    prompts = [answer for answer in run.injected if answer.sent_ns][:_MOST_PROMPTS]
    height = 1.2 + 0.22 * len(run.victims) + 0.11 * len(prompts)
    figure, (victims, waiting) = axes(
        height=height, rows=2, shared=True, height_ratios=(2 * len(run.victims), max(4, len(prompts)))
    )
    span = (-_MARGIN_S, (end_ns - start_ns) / NS + _MARGIN_S)
    for number, answers in enumerate(run.victims):
        reads = np.array([read for answer in answers for read in answer.reads_ns], np.float64)
        _ticks(victims, (reads - start_ns) / NS, number, span)
    for number, answer in enumerate(prompts):
        until = answer.reads_ns[0] if answer.reads_ns else run.ended_ns
        left, right = (answer.sent_ns - start_ns) / NS, (until - start_ns) / NS
        waiting.plot([left, right], [number, number], color=STALL, linewidth=3.2, solid_capstyle="butt")
    for each in (victims, waiting):
        for left, right in run.window():
            each.axvspan((left - start_ns) / NS, (right - start_ns) / NS, color=SHADE, zorder=0, linewidth=0)
        each.grid(visible=False, axis="y")
        each.invert_yaxis()
        each.set_yticks([])
    victims.set_ylabel("victims")
    waiting.set_ylabel("prompts")
    waiting.set_xlim(*span)
    waiting.set_xlabel("seconds since the long prompts were sent")
    label = (
        f"Tokens of {len(run.victims)} victims while {len(run.injected)} prompts of {figures.prompt_tokens} tokens came"
    )
    return to_svg(figure, label=label)


def _ticks(on: Axes, times: np.ndarray[tuple[int], np.dtype[np.float64]], lane: int, span: tuple[float, float]) -> None:
    """All ticks of a lane as one path: with a path for each, a page would have megabytes."""
    seen = times[(times >= span[0]) & (times <= span[1])]
    seen = seen[:: max(1, math.ceil(len(seen) / _MOST_TICKS))]
    x = np.repeat(seen, 3)
    x[2::3] = np.nan
    on.plot(x, np.tile((lane - 0.36, lane + 0.36, np.nan), len(seen)), color=INK, linewidth=0.7)


def tails(run: Run) -> str:
    """The share of gaps that are longer than a length, for both populations: where a curve crosses 1 % is its p99."""
    from matplotlib.ticker import LogLocator, NullFormatter

    gaps = victim_gaps(run)
    inside, _ = split(gaps, run.window())
    figure, (each,) = axes(height=3.2)
    _tail(each, gaps, CALM, f"all tokens ({len(gaps):,} gaps)")
    _tail(each, inside, STALL, f"injection window ({len(inside):,} gaps)")
    each.axhline(1, color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
    each.annotate("worst 1 %", (0, 1), xycoords=("axes fraction", "data"), va="bottom", color=MUTED, size=9)
    each.set_xscale("log")
    each.set_yscale("log")
    each.set_xlabel("gap between two tokens, ms")
    each.set_ylabel("longer gaps, % of population")
    each.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    each.xaxis.set_minor_formatter(NullFormatter())
    each.xaxis.set_major_formatter(_plain_number)
    each.yaxis.set_major_formatter(_plain_number)
    legend(each, loc="lower left")
    return to_svg(figure, label="Share of gaps longer than a length, over all tokens and in the injection window")


def _tail(on: Axes, gaps: Sequence[Gap], colour: str, label: str) -> None:
    if not gaps:
        return
    seconds = np.sort([gap.seconds for gap in gaps])
    longer = 100 * (1 - np.arange(len(seconds)) / len(seconds))
    keep = np.unique(
        np.concatenate((np.linspace(0, len(seconds) - 1, 200).astype(int), np.arange(len(seconds))[-200:]))
    )
    on.step(1000 * seconds[keep], longer[keep], where="post", color=colour, linewidth=2, label=label)


def _plain_number(value: float, _: float) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def dose_response(response: Response) -> str:
    """Added gap and work over prompt tokens, with ranges over repeats and the fitted cost."""
    figure, (each,) = axes(height=3.4)
    tokens = [point.prompt_tokens for point in response.points]
    added = [1000 * point.added_gap_seconds for point in response.points]
    work = [1000 * point.work_seconds for point in response.points]
    if response.cost is not None:
        line = np.linspace(0, max(tokens), 50)
        costs = [1000 * response.cost.work_seconds(x) for x in line.tolist()]
        each.plot(line, costs, color=MUTED, linewidth=1.2, linestyle=(0, (4, 3)), label="fitted cost")
    _with_bars(each, tokens, work, [p.work_range for p in response.points], CALM, "work of a prompt")
    _with_bars(each, tokens, added, [p.added_gap_range for p in response.points], STALL, "longest added gap")
    each.set_xlim(left=0)
    each.set_ylim(bottom=0)
    each.set_xlabel("prompt tokens")
    each.set_ylabel("ms")
    each.xaxis.set_major_formatter(_plain_number)
    each.yaxis.set_major_formatter(_plain_number)
    legend(each, loc="upper left")
    return to_svg(figure, label="Added gap and work over the length of the prompt")


def _with_bars(
    on: Axes, x: list[float], y: list[float], ranges: list[tuple[float, float]], colour: str, label: str
) -> None:
    below = [value - 1000 * low for value, (low, _) in zip(y, ranges, strict=True)]
    above = [1000 * high - value for value, (_, high) in zip(y, ranges, strict=True)]
    on.errorbar(
        x, y, yerr=(below, above), color=colour, marker="o", markersize=5, linewidth=1.6, capsize=3, label=label
    )
