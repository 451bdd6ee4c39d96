"""What the observer costs by number of streams, tokens and requests told apart: no sockets, virtual time, one core.

    python -m tests.bench.curve                               the curve, under two minutes
    python -m tests.bench.curve --before DIR                  another checkout beside this one, in turn
    python -m tests.bench.curve --streams 2000 --profile      where the time goes

All streams together have 10,000 tokens/s, each read is one token, and whoever is done is followed by the next request
at once. Only beyond 8,000 streams there are more, so that nobody waits a second for a token, which would be a stall.
For each number of streams there are two loads, with short and with long answers. With n tokens per request, CPU per
token is t + r / n: two equations for the cost t of a token and r of a request.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import heapq
import json
import pstats
import random
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.bench.observer import DATA, Feeder, Record, chunk, event, open_streams
from tests.bench.report import markdown
from tests.bench.turns import turns

from prefillwatch.wire.tap import End, Finish, Kind, encode_payload

NS = 1_000_000_000  # its own, so that checkouts of any age can be measured
STREAMS = (64, 256, 1000, 2000, 5000, 10_000)
RATE = 10_000  # tokens per second of all streams together
SLOWEST = 1.25  # tokens per second of one stream
SHORT, LONG = 30, 150  # tokens per request
SECONDS = 5  # of virtual time: to warm up, and again to measure
ROUNDS = 3
#: By side and number of streams, what `point` gives.
Points = dict[str, dict[int, dict[str, float]]]


@dataclass
class Meter(Feeder):
    """Says where the time goes, if asked."""

    profile: cProfile.Profile | None = None

    def work(self, time_ns: int) -> None:
        if self.profile is None:
            super().work(time_ns)
        else:
            self.profile.runcall(super().work, time_ns)


def point(streams: int, seconds: int = SECONDS) -> dict[str, float]:
    """Nanoseconds of CPU: of a token, of a request, and per token of both loads with their requests."""
    short, long = cost(streams, SHORT, seconds), cost(streams, LONG, seconds)
    request = (short - long) / (1 / SHORT - 1 / LONG)
    return {"token": long - request / LONG, "request": request, "short": short, "long": long}


def cost(streams: int, tokens: int, seconds: int = SECONDS, profile: cProfile.Profile | None = None) -> float:
    """Nanoseconds of CPU per token, requests included, of an observer that has warmed up."""
    meter, records = Meter(), traffic(streams, tokens)
    feed(meter, records, seconds * NS)
    gc.collect()
    cpu, seen, meter.profile = meter.cpu_ns, meter.tokens, profile
    feed(meter, records, seconds * NS)
    meter.profile = None
    # The read with the usage at an answer's end is none of its tokens.
    spent, taken = meter.cpu_ns - cpu, (meter.tokens - seen) * tokens / (tokens + 1)
    meter.check()
    return spent / taken


def feed(meter: Meter, records: Iterator[Record], duration_ns: int) -> None:
    until = meter.now + duration_ns
    for record in records:
        meter.take(record)
        if meter.now >= until:
            return


def traffic(streams: int, tokens: int) -> Iterator[Record]:
    """Streams with a phase of their own each, somewhere in their first answer."""
    draw = random.Random(1)
    period = round(NS * streams / max(RATE, SLOWEST * streams))
    due = [(NS + draw.randrange(period), place) for place in range(streams)]
    heapq.heapify(due)
    left = [draw.randint(1, tokens) for _ in range(streams)]
    length = left.copy()
    ids = list(range(1, streams + 1))
    last = streams
    yield from open_streams(NS, ids)
    while True:
        now, place = due[0]
        stream, number = ids[place], left[place]
        left[place] -= 1
        if number:
            yield now, stream, DATA, chunk(stream, number)
        else:
            usage = f'"choices":[],"usage":{{"prompt_tokens":40,"total_tokens":99,"completion_tokens":{length[place]}}}'
            yield now, stream, DATA, event(stream, usage) + b"data: [DONE]\n\n"
            yield now, stream, Kind.END, encode_payload(End(Finish.COMPLETE, 200))
            last += 1
            ids[place], left[place], length[place] = last, tokens, tokens
            yield from open_streams(now, [last])
            now -= draw.randrange(period)  # its first token comes somewhere within the time of one
        heapq.heapreplace(due, (now + period, place))


def measured(streams: list[int], rounds: int, before: Path | None, seconds: int = SECONDS) -> Points:
    """By side and number of streams the medians over the rounds; each figure in a process of its own, sides in turn."""
    checkouts = {"now": Path(__file__).resolve().parents[2]} | ({"before": before} if before is not None else {})
    sides = {side: (checkout, checkout / "exporter") for side, checkout in checkouts.items()}
    points: Points = {side: {} for side in sides}
    for each in streams:
        found: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
        command = [sys.executable, __file__, "--one", str(each), "--seconds", str(seconds)]
        for side, figures in turns(sides, rounds, command):
            found[side].append(figures)
        for side, its in found.items():
            points[side][each] = {key: statistics.median(one[key] for one in its) for key in its[0]}
    return points


def table(points: Points) -> str:
    head = ["streams"]
    for side in points:
        head += [f"µs per token ({side})", f"µs per request ({side})"]
    rows = []
    for streams in points["now"]:
        row = [f"{streams:,}"]
        for its in points.values():
            row += [f"{its[streams]['token'] / 1000:.2f}", f"{its[streams]['request'] / 1000:.0f}"]
        rows.append(row)
    return markdown(head, rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.curve", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--streams", type=lambda text: [int(each) for each in text.split(",")], default=list(STREAMS))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=int, default=SECONDS, help="of virtual time")
    parser.add_argument("--before", type=Path, metavar="DIR", help="another checkout of ours, measured in turn")
    parser.add_argument("--profile", action="store_true", help="print where the time goes, by function")
    parser.add_argument("--tokens", type=int, default=LONG, help="tokens per request, with --profile")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(point(args.one, args.seconds)))
    elif args.profile:
        for streams in args.streams:
            profile = cProfile.Profile(time.thread_time)
            cost(streams, args.tokens, args.seconds, profile)
            stats = pstats.Stats(profile)
            stats.sort_stats("cumtime").print_stats(60)
            stats.sort_stats("tottime").print_stats(45)
    else:
        print(table(measured(args.streams, args.rounds, args.before, args.seconds)))


if __name__ == "__main__":
    main()
