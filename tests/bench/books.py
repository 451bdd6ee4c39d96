"""What the token books cost per token: ``python -m tests.bench.books``. Prints; asserts nothing.

Streams of a steady decode, one read each per step, told in batches, with the work that goes with each batch: the gaps,
the clear gaps noted for the baselines, the sliding windows fed; and every second the figures are read.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import numpy as np

from prefillwatch.analysis.tokens.gaps import GapBook
from prefillwatch.analysis.tokens.windows import SlidingWindows
from prefillwatch.units import NS

T = TypeVar("T")

STEP_NS = 25_000_000


def measure(streams: int, batch: int, steps: int) -> dict[str, float]:
    """Microseconds per token, by part."""
    book, windows = GapBook(), SlidingWindows()
    slots = [book.open(0) for _ in range(streams)]
    spent = {"gaps": 0.0, "baselines": 0.0, "windows": 0.0, "reading": 0.0}

    def timed(part: str, work: Callable[[], T]) -> T:
        begin = time.perf_counter()
        result = work()
        spent[part] += time.perf_counter() - begin
        return result

    def chunk(at: int, now: int) -> None:
        part = slots[at : at + batch]
        times, events = [now + i * 1000 for i in range(len(part))], [1] * len(part)
        gaps = book.tokens
        found = timed("gaps", lambda: gaps(part, times, events))
        seconds = (found.end_ns - found.start_ns) / NS
        timed("baselines", lambda: book.note_clear(found.slot, seconds / found.events, found.model, found.start_ns))
        timed("windows", lambda: windows.add_many(seconds, now))

    for step in range(steps):
        now = step * STEP_NS
        for at in range(0, streams, batch):
            chunk(at, now)
        if step % 40 == 0:
            timed("reading", lambda: [windows.quantiles((0.5, 0.99), w) for w in windows.windows_s])
            timed("reading", partial(book.open_gaps, now))
            timed("reading", lambda: [book.baseline(slot) for slot in slots[:10]])
    tokens = streams * steps
    return {part: seconds / tokens * 1e6 for part, seconds in spent.items()}


def main() -> None:
    np.seterr(all="raise")
    print("microseconds per token")
    print("streams  batch      gaps baselines   windows   reading     total")
    for streams, batch in ((256, 200), (200, 200), (2000, 200), (20, 20), (1, 1)):
        cost = measure(streams, batch, max(40, 200_000 // (streams * (10 if batch < 200 else 1))))
        columns = [f"{cost[part]:9.2f}" for part in ("gaps", "baselines", "windows", "reading")]
        print(f"{streams:7d}{batch:7d}", *columns, f"{sum(cost.values()):9.2f}")


if __name__ == "__main__":
    main()
