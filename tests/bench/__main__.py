"""Benchmark of the relay against other proxies and against doing nothing, all in one run.

    python -m tests.bench                       every side, every figure (about 5 minutes)
    python -m tests.bench --smoke               everything once and small, under a minute: does it still work?
    python -m tests.bench --sides floor,nginx,prefillwatch --rounds 5 --figures load

    python -m tests.bench --before DIR          what a change costs: this checkout beside the one in DIR, and no others

Sides are measured in turn, round after round (A B C A B C), and medians over the rounds are reported, so that a slow
minute of the machine hits all of them. The proxy under test has core 0, the load has core 1, and where the kernel
allows it (as root) both go before everything else on their core, real-time; our observer comes second on core 1.
Figures:

    load      CPU (user and system) per relayed token, and the age of tokens on arrival, at 256 streams of 40 tokens/s;
              "added" is the age less the median of the direct path. Our /metrics is scraped every second meanwhile.
    step      the same with all streams' tokens sent at once, as the steps of an engine do
    whole     500 streams to their own end: every token must come, and the end
    many      2,000 streams at 5 tokens/s: none may break
    shapes    10,000 tokens/s in all, by 64 to 10,000 streams, and by streams of 150 and of 30 tokens that follow one
              another: CPU per token of each, none may break. Beyond 9,000 streams, where the descriptors of one process
              (20,000 as is usual) would not do, each side has two processes on the same core
    gateway   load through us without and with a gateway that reads upstream's metrics page (64 KiB) through the data
              port every 50 ms: CPU per token of relay and observer, and what one such look costs them
    memory    memory per stream that had tokens and is silent now, with 2,000 of them
    observer  tokens per second that the observer can account for on one core
    curve     CPU of the observer per token and per request, by number of streams (see tests/bench/curve.py)
    page      CPU of the observer while nobody, one or five watch the live page of 256 streams
    wire      nanoseconds to read one event of an answer, by endpoint

Nothing here fails because something is slow: read the ratios. It fails when streams break.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.bench import report
from tests.bench.load import GATEWAY_SECONDS, Load, gateway, idle_memory, measure
from tests.bench.programs import BenchError
from tests.bench.sides import BEFORE, MOST_STREAMS, STARTERS, Side, compare_with, running

FIGURES = ("whole", "load", "step", "many", "shapes", "gateway", "memory", "observer", "curve", "page", "wire")
STANDARD = Load(streams=256, rate=40, warmup_seconds=1.5, measure_seconds=6)
WHOLE = Load(streams=500, rate=20, warmup_seconds=0, measure_seconds=0, max_tokens=40)
MANY = Load(streams=2000, rate=5, warmup_seconds=1.5, measure_seconds=4)
#: The same 10,000 tokens/s in all, by ever more streams. Each has two descriptors in the relay.
LONG = tuple(replace(MANY, streams=n, rate=10_000 / n) for n in (64, 256, 1000, 2000, 5000, 8000, 10_000))
SHORT = tuple(replace(LONG[place], max_tokens=n, again=True) for place, n in ((1, 150), (3, 30)))
SHAPES = (*LONG, *SHORT)


def main() -> int:
    args = parse_arguments()
    try:
        results = run(args)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--sides", type=names_of(STARTERS), help=f"comma-separated, of {','.join(STARTERS)}; default all"
    )
    parser.add_argument(
        "--figures", type=names_of(FIGURES), help=f"comma-separated, of {','.join(FIGURES)}; default all"
    )
    parser.add_argument("--rounds", type=int, help="how often each side has its turn (default 3)")
    parser.add_argument("--seconds", type=float, help="measured time of each turn (default 6)")
    parser.add_argument("--smoke", action="store_true", help="one short round of floor, nginx and prefillwatch")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures and every round to FILE")
    parser.add_argument("--before", type=Path, metavar="DIR", help="another checkout of ours, measured beside this one")
    args = parser.parse_args(argv)
    if args.before and not args.sides:
        args.sides = [BEFORE, "prefillwatch"]
    args.sides = args.sides or (["direct", "floor", "nginx", "prefillwatch"] if args.smoke else list(STARTERS))
    args.figures = args.figures or list(FIGURES)
    args.rounds = args.rounds or (1 if args.smoke else 3)
    return args


def names_of(known: Sequence[str] | dict[str, Any]) -> Any:
    def parse(text: str) -> list[str]:
        chosen = text.split(",")
        if unknown := [name for name in chosen if name not in known]:
            raise argparse.ArgumentTypeError(f"no {', '.join(unknown)}; there is {', '.join(known)}")
        return chosen

    return parse


def run(args: argparse.Namespace) -> dict[str, Any]:
    if len(os.sched_getaffinity(0)) < 2:
        raise BenchError("two cores are needed, one for the proxy and one for the load")
    if args.before:
        compare_with(args.before)
    results: dict[str, Any] = {"machine": report.machine()}
    under_load = [figure for figure in args.figures if figure in RUNNERS]
    if under_load:
        with running(args.sides) as sides:
            results |= {figure: RUNNERS[figure](sides, args) for figure in under_load}
    if "memory" in args.figures:
        results["memory"] = run_memory(args)
    if "observer" in args.figures:
        results["observer"] = run_observer(args)
    if "curve" in args.figures:
        results["curve"] = run_curve(args)
    if "page" in args.figures:
        results["page"] = run_page(args)
    if "wire" in args.figures:
        results["wire"] = run_wire(args)
    return results


def sized(load: Load, args: argparse.Namespace) -> Load:
    if args.smoke:
        load = replace(load, streams=load.streams // 4, warmup_seconds=0.3, measure_seconds=1.0)
    return replace(load, measure_seconds=args.seconds) if args.seconds else load


def run_whole(sides: list[Side], args: argparse.Namespace) -> Any:
    runs = [measure(side, WHOLE) for side in sides]
    tokens = WHOLE.streams * WHOLE.max_tokens
    print(
        f"\n{WHOLE.streams} streams came whole through {', '.join(run['side'] for run in runs)}: {tokens} tokens each"
    )
    return {"runs": runs}


def run_load(sides: list[Side], args: argparse.Namespace, load: Load = STANDARD, title: str = "evenly spread") -> Any:
    load = sized(load, args)
    runs = [measure(side, load) | {"round": number} for number in range(args.rounds) for side in sides]
    rows = report.summarise(runs)
    heading = f"{load.streams} streams × {load.rate} tokens/s, {title}; medians of {args.rounds} rounds"
    print(f"\n### {heading}\n\n{report.table(rows)}{report.remarks(runs)}{report.change(runs)}", flush=True)
    return {"rows": rows, "runs": runs}


def run_step(sides: list[Side], args: argparse.Namespace) -> Any:
    return run_load(sides, args, replace(STANDARD, step=True), "all at once in steps")


def run_many(sides: list[Side], args: argparse.Namespace) -> Any:
    load = sized(MANY, args)
    runs = [measure(side, load) for side in sides]
    rows = report.summarise(runs)
    heading = f"{load.streams} concurrent streams × {load.rate} tokens/s, none broken"
    print(f"\n### {heading}\n\n{report.table(rows)}{report.remarks(runs)}", flush=True)
    return {"rows": rows, "runs": runs}


def run_shapes(sides: list[Side], args: argparse.Namespace) -> Any:
    """Round after round each shape by each side that we compare with or are."""
    names = [side.name for side in sides if side.name in (report.REFERENCE, "prefillwatch", BEFORE)]
    loads = [sized(each, args) for each in ((*LONG[:2], SHORT[0]) if args.smoke else SHAPES)]
    runs = []
    for many in (False, True):
        mine = [load for load in loads if (load.streams > MOST_STREAMS) is many]
        with contextlib.ExitStack() as stack:
            if many and mine:
                sides = stack.enter_context(running(names, workers=2))
            chosen = [side for side in sides if side.name in names]
            turns = itertools.product(range(args.rounds), mine, chosen)
            runs += [measure(side, load) | {"shape": load.name, "round": number} for number, load, side in turns]
    rows = [row for load in loads for row in report.by_shape(runs, load.name)]
    head = ("streams", "part", "CPU µs/token", f"× {report.REFERENCE}", "p99.9 µs")
    cells = ([report.cell(row[key]) for key in ("shape", "part", "cpu_us", "cpu_us_ratio", "p999_us")] for row in rows)
    print(
        f"\n### by number of streams, none broken\n\n{report.markdown(head, cells)}{report.remarks(runs)}", flush=True
    )
    return {"rows": rows, "runs": runs}


def run_gateway(sides: list[Side], args: argparse.Namespace) -> Any:
    """Without and with the scraper, in turns."""
    load = sized(STANDARD, args)
    ours = [side for side in sides if side.admin is not None]
    runs = []
    for number, side, there in itertools.product(range(args.rounds), ours, (False, True)):
        with gateway(side.port if there else None) as looks:
            runs.append(measure(side, load) | {"gateway": there, "round": number, "looks": looks})
    if failed := sum(run["looks"]["failed"] for run in runs):
        raise BenchError(f"{failed:.0f} pages that the gateway asked for did not come whole")
    tokens_per_look = GATEWAY_SECONDS * load.streams * load.rate
    rows = []
    for part in dict.fromkeys(part for run in runs for part in run["cpu_ns_per_token"]):
        without = report.cpu_median([run for run in runs if not run["gateway"]], part) or 0.0
        with_it = report.cpu_median([run for run in runs if run["gateway"]], part) or 0.0
        look_us = (with_it - without) * tokens_per_look
        rows.append([part, f"{without:.2f}", f"{with_it:.2f}", f"{with_it / without:.2f}", f"{look_us:.0f}"])
    table = report.markdown(("part", "CPU µs/token", "with a gateway", "×", "µs per look"), rows)
    print(f"\n### a gateway's scraper through the data port, 20 times a second\n\n{table}", flush=True)
    return {"rows": rows, "runs": runs}


def run_memory(args: argparse.Namespace) -> Any:
    """On processes of its own: one that has carried thousands of streams before has their memory still."""
    streams = 500 if args.smoke else 2000
    parts: dict[str, float] = {}
    with running([name for name in args.sides if name != "direct"]) as sides:
        for side in sides:
            parts |= idle_memory(side, streams, settle_seconds=0.5 if args.smoke else 3.0)
    print(f"\n### memory per idle stream, {streams} of them\n", flush=True)
    print(report.markdown(("part", "KiB per stream"), ([part, f"{size / 1024:.1f}"] for part, size in parts.items())))
    return {"streams": streams, "bytes_per_stream": parts}


def run_observer(args: argparse.Namespace) -> Any:
    # Only here, so that other proxies can be measured where prefillwatch is not installed.
    from tests.bench import observer

    figures = observer.measure(seconds=0.5 if args.smoke else 10.0)
    print_figures("observer", figures)
    return figures


def run_curve(args: argparse.Namespace) -> Any:
    from tests.bench import curve

    streams, rounds = (list(curve.STREAMS[:1]), 1) if args.smoke else (list(curve.STREAMS), args.rounds)
    points = curve.measured(streams, rounds, args.before, seconds=1 if args.smoke else curve.SECONDS)
    print(f"\n### observer, by number of streams\n\n{curve.table(points)}", flush=True)
    return points


def run_page(args: argparse.Namespace) -> Any:
    from tests.bench import page

    figures = page.measure(seconds=0.5 if args.smoke else args.seconds or 6.0, rounds=args.rounds)
    print_figures("live page", figures)
    return figures


def run_wire(args: argparse.Namespace) -> Any:
    from tests.bench import wire

    figures = wire.measure(seconds=0.1 if args.smoke else 1.0)
    print_figures("ns of CPU per event read", figures)
    return figures


def print_figures(title: str, figures: dict[str, float]) -> None:
    rows = ([name, f"{value:,.0f}"] for name, value in figures.items())
    print(f"\n### {title}\n\n{report.markdown(('figure', 'value'), rows)}", flush=True)


RUNNERS = {
    "whole": run_whole,
    "load": run_load,
    "step": run_step,
    "many": run_many,
    "shapes": run_shapes,
    "gateway": run_gateway,
}

if __name__ == "__main__":
    sys.exit(main())
