"""The figures of docs/performance.md measured anew, and written there with the picture: under six minutes.

python -m tests.bench.performance             on a quiet machine with two cores, as root
python -m tests.bench.performance --show      print them, and leave the page alone
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tests.bench import curve, report
from tests.bench.__main__ import LONG, SHORT, STANDARD
from tests.bench.load import Load, idle_memory, measure
from tests.bench.programs import ROOT
from tests.bench.sides import Side, running

from prefillwatch.lab.charts.drawing import CALM, MUTED, STALL, axes, legend, to_svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PAGE = ROOT / "docs" / "performance.md"
PICTURE = ROOT / "docs" / "cost-by-streams.svg"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
ROUNDS, SHAPE_ROUNDS, CURVE_ROUNDS = 3, 1, 1
SECONDS, SHAPE_SECONDS = 4.0, 3.0
IDLE_STREAMS = 2000
RELAY = "prefillwatch relay"
#: What is promised of the observer: microseconds per token, and per request.
TOKEN_US, REQUEST_US = 4.0, 100.0
RELAY_RATIO = 1.15
FIGURES = {
    "CPU per relayed token, relay, × nginx passing through": (RELAY, "cpu_us_ratio"),
    "CPU per token, relay and observer, × nginx": ("prefillwatch relay + observer", "cpu_us_ratio"),
    "added latency p50, × nginx's": (RELAY, "added_p50_us_ratio"),
    "added latency p99.9, × nginx's": (RELAY, "added_p999_us_ratio"),
}


@dataclass(frozen=True)
class Figures:
    steps: list[dict[str, Any]]
    even: list[dict[str, Any]]
    relay: dict[str, float]  # × nginx, by shape
    observer: dict[int, dict[str, float]]
    idle_bytes: float


def measured() -> Figures:
    with running(["direct", "nginx", "prefillwatch"]) as sides:
        steps = rounds(sides, replace(STANDARD, step=True, measure_seconds=SECONDS), ROUNDS)
        even = rounds(sides, replace(STANDARD, measure_seconds=SECONDS), ROUNDS)
        relay = {each.name: ratio(sides[1:], each) for each in (*LONG[:-1], *SHORT)}
    with running(["nginx", "prefillwatch"], workers=2) as sides:
        relay |= {LONG[-1].name: ratio(sides, LONG[-1])}
    with running(["prefillwatch"]) as (ours,):
        idle = idle_memory(ours, IDLE_STREAMS, settle_seconds=2.0)[RELAY]
    observer = curve.measured(list(curve.STREAMS), CURVE_ROUNDS, None)["now"]
    return Figures(steps, even, relay, observer, idle)


def rounds(sides: list[Side], load: Load, number: int) -> list[dict[str, Any]]:
    return report.summarise([measure(side, load) for _ in range(number) for side in sides])


def ratio(sides: list[Side], load: Load) -> float:
    rows = rounds(sides, replace(load, measure_seconds=SHAPE_SECONDS), SHAPE_ROUNDS)
    return float(found(rows, RELAY, "cpu_us_ratio"))


def found(rows: list[dict[str, Any]], part: str, figure: str) -> Any:
    return next(row[figure] for row in rows if row["part"] == part)


def tables(figures: Figures) -> str:
    by_load = (
        [name, *(report.cell(found(rows, part, figure)) for rows in (figures.steps, figures.even))]
        for name, (part, figure) in FIGURES.items()
    )
    relay = ([shape, report.cell(value)] for shape, value in figures.relay.items())
    return "\n\n".join(
        (
            report.markdown(("256 streams of 40 tokens/s", "steps", "even"), by_load),
            report.markdown(("streams, 10,000 tokens/s in all", "CPU per relayed token, × nginx"), relay),
            curve.table({"now": figures.observer}).replace(" (now)", ", observer"),
            f"An idle stream costs the relay {figures.idle_bytes / 1024:.1f} KiB.",
        )
    )


def picture(figures: Figures) -> str:
    figure, (tokens, requests, relay) = axes(height=6.6, rows=3, shared=True)
    streams = list(figures.observer)
    draw(tokens, streams, [its["token"] / 1000 for its in figures.observer.values()], TOKEN_US)
    tokens.set_ylabel("observer: µs per token")
    draw(requests, streams, [its["request"] / 1000 for its in figures.observer.values()], REQUEST_US)
    requests.set_ylabel("µs per request")
    draw(relay, [each.streams for each in LONG], [figures.relay[each.name] for each in LONG], RELAY_RATIO)
    relay.set_ylabel("relay: × nginx")
    relay.set_xlabel("streams; 10,000 tokens/s in all")
    relay.set_xticks(streams, [f"{each:,}" for each in streams])
    legend(tokens, loc="upper left")
    return to_svg(figure, label="CPU per token and request, by number of streams", standalone=True)


def draw(panel: Axes, streams: list[int], values: list[float], promised: float) -> None:
    panel.set_xscale("log")
    panel.minorticks_off()
    panel.plot(streams, values, marker="o", color=CALM, label="measured")
    panel.axhline(promised, color=STALL, linewidth=1.0, linestyle="--", label="to be reached")
    panel.set_ylim(0, 1.15 * max([promised, *values]))
    panel.tick_params(axis="x", colors=MUTED)


def written(page: str, found: str) -> str:
    """The page with these tables between its marks."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{found}\n{END}{after}"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.performance",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--show", action="store_true")
    args = parser.parse_args()
    began = time.monotonic()
    figures = measured()
    print(tables(figures))
    print(f"\nin {time.monotonic() - began:.0f} s")
    if not args.show:
        PAGE.write_text(written(PAGE.read_text(), tables(figures)))
        PICTURE.write_text(picture(figures))


if __name__ == "__main__":
    main()
