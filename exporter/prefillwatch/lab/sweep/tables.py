"""The tables of a sweep, for the terminal and the page. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from prefillwatch.analysis.requests import PromptBuckets
from prefillwatch.lab.sweep.figures import MixFigures, Outcome, ProbeFigures, Spread
from prefillwatch.lab.sweep.pareto import TOLERANCE, goals, pareto_front
from prefillwatch.lab.sweep.quantities import bounds, p99, pair, rate, samples, stalled
from prefillwatch.report import ABSENT, duration

_LABEL_WIDTH: Final = 30
_PERCENT: Final = f"{TOLERANCE * 100:.0f} %"
ON_FRONT: Final = "* "
_OFF_FRONT: Final = "  "
_GAPS_OF: Final = {True: "of the victims, in the injection window", False: "of the mix's readers"}
_FIRST_TOKENS_OF: Final = {True: "median of the long prompts", False: "median of the mix's requests"}
_SIZES: Final = PromptBuckets().labels


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""

    def wrapped(self) -> list[tuple[str, ...]]:
        """Its rows with long labels on several lines, as a terminal needs them."""
        found: list[tuple[str, ...]] = []
        for label, *cells in self.rows:
            mark, text = label[: len(ON_FRONT)], label[len(ON_FRONT) :]
            first, *others = textwrap.wrap(text, _LABEL_WIDTH, break_on_hyphens=False) or [""]
            found.append((mark + first, *cells))
            found += [(_OFF_FRONT + each, *("" for _ in cells)) for each in others]
        return found


def tables(outcomes: Sequence[Outcome]) -> list[Table]:
    """The trade-off first, then each probe, then the mix; only those for which something was measured."""
    measured = [outcome for outcome in outcomes if outcome.failure is None]
    front = {outcome.label for outcome in pareto_front(measured)}
    marked = [(ON_FRONT if outcome.label in front else _OFF_FRONT) + outcome.label for outcome in measured]
    named = list(zip(marked, measured, strict=True))
    injects = sorted({probe.inject for outcome in measured for probe in outcome.probes}, reverse=True)
    found = [_trade_off(named), *(_probe(named, inject) for inject in injects), _mix(named)]
    return [table for table in found if table.rows]


Named = Sequence[tuple[str, Outcome]]


def _trade_off(named: Named) -> Table:
    rows = []
    probed = any(outcome.probes for _, outcome in named)
    for label, outcome in named:
        found, mix = goals(outcome), outcome.mix
        times = (duration(found.gap), duration(found.first_token), rate(found.rate)) if found else (ABSENT,) * 3
        shares = [stalled(outcome.heaviest.stalls if outcome.heaviest else None)] if probed else []
        rows.append((label, *times, *shares, stalled(mix.stalls if mix else None)))
    return Table(
        "The trade-off",
        (
            "  setting",
            "p99 of gaps",
            "first token",
            "tokens/s",
            *(["stalled, probe"] if probed else []),
            "stalled, mix",
        ),
        tuple(rows),
        f"* on the Pareto front: no setting is as good in the first three columns and better in one ({_PERCENT} count "
        f"as equal). p99 of gaps: {_GAPS_OF[probed]}. First token: {_FIRST_TOKENS_OF[probed]}. "
        "tokens/s: generated in the mix. Stalled: stall seconds per second of decoding.",
    )


def _probe(named: Named, inject: int) -> Table:
    rows = [(label, each) for label, outcome in named for each in outcome.probes if each.inject == inject]
    tokens = max((each.prompt_tokens for _, each in rows), default=0)
    return Table(
        f"{inject} prompt{'s' if inject != 1 else ''} of {tokens:,} tokens at once",
        ("  setting", "window p99", "95 %", "max", "gaps", "all p50", "all p99", "gaps", "first token", "last"),
        tuple((label, *_probe_cells(each)) for label, each in rows),
        "Gaps between tokens of the victims: in the injection window (from the prompts' sending to the last of their "
        "first tokens), and over the whole run. First token: of those prompts, median and last.",
    )


def _probe_cells(each: ProbeFigures) -> tuple[str, ...]:
    window, overall, first = each.window, each.overall, each.first_token
    return (
        p99(window),
        bounds(window),
        duration(window.max_seconds if window else None),
        samples(window),
        duration(overall.p50_seconds if overall else None),
        p99(overall),
        samples(overall),
        duration(first.p50_seconds if first else None),
        duration(first.max_seconds if first else None),
    )


def _mix(named: Named) -> Table:
    mixes = [(label, outcome.mix) for label, outcome in named if outcome.mix is not None]
    sizes = [size for size in _SIZES if any(size in mix.first_token_by_size for _, mix in mixes)]
    rows = [
        (
            label,
            p99(mix.gaps),
            bounds(mix.gaps),
            *(_median_and_worst(mix.first_token_by_size.get(size)) for size in sizes),
            rate(mix.generated_tokens_per_second),
            rate(mix.requests_per_second),
        )
        for label, mix in mixes
    ]
    counts = {size: max(_samples(mix, size) for _, mix in mixes) for size in sizes}
    shown = ", ".join(f"{counts[size]} of {size} tokens" for size in sizes)
    return Table(
        _mix_title([mix for _, mix in mixes], shown),
        ("  setting", "gaps p99", "95 %", *(f"TTFT {size}" for size in sizes), "tokens/s", "requests/s"),
        tuple(rows),
        "Gaps between tokens of the steady readers. TTFT: time to first token by prompt size, median / worst. "
        "tokens/s: generated. Requests/s: answered.",
    )


def _mix_title(mixes: Sequence[MixFigures], sizes: str) -> str:
    gaps = sorted(mix.gaps.samples if mix.gaps else 0 for mix in mixes)
    if not gaps:
        return ""
    of_readers = f"{gaps[0]:,}" + (f" to {gaps[-1]:,}" if gaps[-1] != gaps[0] else "")
    return f"Mix of {mixes[0].seconds:g} s: {sizes or 'no prompts'}; {of_readers} gaps of the readers"


def _samples(mix: MixFigures, size: str) -> int:
    found = mix.first_token_by_size.get(size)
    return found.samples if found else 0


def _median_and_worst(spread: Spread | None) -> str:
    if spread is None:
        return ABSENT
    return pair(duration(spread.p50_seconds), duration(spread.max_seconds), " / ")
