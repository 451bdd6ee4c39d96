"""Charts of a sweep (extra ``charts``): the trade-off with its front, and both populations of gaps by setting."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from prefillwatch.lab.charts.drawing import CALM, INK, MUTED, STALL, axes, legend, to_svg
from prefillwatch.lab.sweep.choice import Slo
from prefillwatch.lab.sweep.figures import Outcome, Spread
from prefillwatch.lab.sweep.pareto import Goals, goals, pareto_front
from prefillwatch.lab.sweep.quantities import rate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LABEL_WIDTH: Final = 32
_BAR: Final = 0.36
_GAPS_OF: Final = {True: "victims' gaps in the injection window", False: "readers' gaps in the mix"}
_FIRST_TOKENS_OF: Final = {True: "long prompts", False: "mix's requests"}
_SAME_SPOT: Final = 0.03
#: Where a label can be, seen from its point, best first.
_PLACES: Final = tuple(
    {"position": (right * 8, up * 6), "horizontalalignment": sideways, "verticalalignment": upright}
    for right, sideways in ((1, "left"), (-1, "right"))
    for up, upright in ((1, "bottom"), (-1, "top"))
)


def trade_off(outcomes: Sequence[Outcome], slo: Slo) -> str:
    """Victims' p99 against the first token of long prompts; settings of the front are joined. "" with none to show."""
    placed = [(outcome, found) for outcome in outcomes if (found := goals(outcome)) is not None]
    if not placed:
        return ""
    front = {outcome.label for outcome in pareto_front(outcomes)}
    figure, (each,) = axes(height=4.2)
    joined = sorted((found.gap * 1000, found.first_token) for outcome, found in placed if outcome.label in front)
    each.plot([x for x, _ in joined], [y for _, y in joined], color=CALM, linewidth=1.2, alpha=0.5)
    for outcome, found in placed:
        best = outcome.label in front
        each.plot(found.gap * 1000, found.first_token, "o", color=CALM if best else MUTED, markersize=8 if best else 6)
    if slo.gap_seconds is not None and slo.over == "window":
        each.axvline(slo.gap_seconds * 1000, color=STALL, linewidth=1.2, linestyle="--", label="promised")
        legend(each, loc="lower right")
    probed = any(outcome.probes for outcome, _ in placed)
    each.set_xlabel(f"p99 of the {_GAPS_OF[probed]}, ms")
    each.set_ylabel(f"first token of the {_FIRST_TOKENS_OF[probed]}, median, s")
    each.set_xlim(left=0, right=max(found.gap for _, found in placed) * 1000 * 1.4)
    each.set_ylim(bottom=0, top=max(found.first_token for _, found in placed) * 1.3)
    figure.draw_without_rendering()  # so that positions are known
    _annotate(each, placed, front)
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


@dataclass(slots=True)
class _Spot:
    """Points on the same spot, as shares of the chart's extent."""

    x: float
    y: float
    labels: list[str]
    tokens: str
    on_front: bool


def _annotate(each: Axes, placed: Sequence[tuple[Outcome, Goals]], front: set[str]) -> None:
    """Labels beside their points, where they do not run into one another."""
    widest = max(found.gap for _, found in placed)
    highest = max(found.first_token for _, found in placed)
    taken: list[Any] = []
    for spot in _spots(placed, front, widest, highest):
        text = each.annotate(
            "\n".join([*map(_wrapped, spot.labels), *([spot.tokens] if spot.tokens else [])]),
            (spot.x * widest * 1000, spot.y * highest),
            xytext=(0, 0),
            textcoords="offset points",
            color=INK if spot.on_front else MUTED,
            fontsize=8.5,
        )
        for place in (*_PLACES, _PLACES[0]):
            text.set(**place)
            extent = text.get_window_extent().padded(2)
            if not any(extent.overlaps(other) for other in taken):
                break
        taken.append(extent)


def _spots(placed: Sequence[tuple[Outcome, Goals]], front: set[str], widest: float, highest: float) -> list[_Spot]:
    spots: list[_Spot] = []
    for outcome, found in placed:
        x, y = found.gap / widest, found.first_token / highest
        same = next((spot for spot in spots if max(abs(spot.x - x), abs(spot.y - y)) < _SAME_SPOT), None)
        if same is not None:
            same.labels.append(outcome.label)
            continue
        tokens = f"{rate(found.rate)} tokens/s" if found.rate is not None else ""
        spots.append(_Spot(x, y, [outcome.label], tokens, outcome.label in front))
    return spots


def _p99(spread: Spread | None) -> float:
    return spread.p99_seconds * 1000 if spread is not None else 0.0


def _wrapped(label: str) -> str:
    return "\n".join(textwrap.wrap(label, _LABEL_WIDTH, break_on_hyphens=False))
