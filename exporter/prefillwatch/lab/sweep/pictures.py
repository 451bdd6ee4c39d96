"""Charts of a sweep (extra ``charts``): the trade-off with its front, and both populations of gaps by setting."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from prefillwatch.lab.charts.drawing import CALM, INK, MUTED, STALL, axes, legend, to_svg
from prefillwatch.lab.sweep.choice import Slo
from prefillwatch.lab.sweep.figures import Outcome
from prefillwatch.lab.sweep.pareto import Goals, goals, pareto_front
from prefillwatch.lab.sweep.quantities import rate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LABEL_WIDTH: Final = 32
_BAR: Final = 0.36


def trade_off(outcomes: Sequence[Outcome], slo: Slo) -> str:
    """Victims' p99 against the first token of long prompts; settings of the front are joined. "" with none to show."""
    placed = [(outcome, found) for outcome in outcomes if (found := goals(outcome)) is not None]
    if not placed:
        return ""
    front = {outcome.label for outcome in pareto_front(outcomes)}
    figure, (each,) = axes(height=3.9)
    _front_line(each, [found for outcome, found in placed if outcome.label in front])
    for outcome, found in placed:
        best = outcome.label in front
        each.plot(found.gap * 1000, found.first_token, "o", color=CALM if best else MUTED, markersize=8 if best else 6)
    _annotate(each, placed, front)
    if slo.gap_seconds is not None and slo.over == "window":
        each.axvline(slo.gap_seconds * 1000, color=STALL, linewidth=1.2, linestyle="--")
    each.set_xlabel("p99 of the victims' gaps in the injection window, ms")
    each.set_ylabel("first token of long prompts, median, s")
    each.set_xlim(left=0, right=max(found.gap for _, found in placed) * 1000 * 1.35)
    each.set_ylim(bottom=0, top=max(found.first_token for _, found in placed) * 1.25)
    return to_svg(figure, label="Trade-off between smooth streams and early first tokens, one point for each setting")


def both_populations(outcomes: Sequence[Outcome], inject: int) -> str:
    """Bars of the p99 over all gaps and in the injection window, for each setting."""
    rows = [(outcome.label, probe) for outcome in outcomes for probe in outcome.probes if probe.inject == inject]
    if not rows:
        return ""
    figure, (each,) = axes(height=1.1 + 0.62 * len(rows))
    places = range(len(rows))
    for offset, colour, name, values in (
        (-_BAR / 2, STALL, "in the injection window", [_p99(probe.window) for _, probe in rows]),
        (_BAR / 2, CALM, "over the whole run", [_p99(probe.overall) for _, probe in rows]),
    ):
        bars = each.barh([place + offset for place in places], values, _BAR, color=colour, label=name)
        each.bar_label(bars, fmt=lambda value: f"{value:,.0f}", padding=4, fontsize=9, color=INK)
    each.set_yticks(list(places), [_wrapped(label) for label, _ in rows])
    each.invert_yaxis()
    each.grid(visible=False, axis="y")
    each.margins(x=0.12)
    each.set_xlabel("p99 of the victims' gaps, ms")
    legend(each, loc="upper center", bbox_to_anchor=(0.5, 1.0 + 0.55 / len(rows)), ncols=2)
    return to_svg(figure, label=f"99th percentile of the victims' gaps by setting, with {inject} prompts at once")


def _front_line(each: Axes, front: Sequence[Goals]) -> None:
    points = sorted((found.gap * 1000, found.first_token) for found in front)
    each.plot([x for x, _ in points], [y for _, y in points], color=CALM, linewidth=1.2, alpha=0.5)


def _annotate(each: Axes, placed: Sequence[tuple[Outcome, Goals]], front: set[str]) -> None:
    """Labels beside the points; of several at one place only the first is named, with how many more there are."""
    widest = max(found.gap for _, found in placed)
    highest = max(found.first_token for _, found in placed)
    taken: list[tuple[float, float]] = []
    for outcome, found in sorted(placed, key=lambda pair: pair[0].label not in front):
        x, y = found.gap / widest, found.first_token / highest
        below = any(abs(x - a) < 0.3 and abs(y - b) < 0.1 for a, b in taken)
        taken.append((x, y))
        tokens = f"\n{rate(found.rate)} tokens/s" if found.rate is not None else ""
        style: dict[str, Any] = {"color": INK if outcome.label in front else MUTED, "fontsize": 8.5}
        offset, vertical = ((8, -4), "top") if below else ((8, 4), "bottom")
        each.annotate(
            _wrapped(outcome.label) + tokens,
            (found.gap * 1000, found.first_token),
            xytext=offset,
            textcoords="offset points",
            verticalalignment=vertical,
            **style,
        )


def _p99(spread: Any) -> float:
    return spread.p99_seconds * 1000 if spread is not None else 0.0


def _wrapped(label: str) -> str:
    return "\n".join(textwrap.wrap(label, _LABEL_WIDTH, break_on_hyphens=False))
