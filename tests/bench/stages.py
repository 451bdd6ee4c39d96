"""What a request costs the observer, by stage: milliseconds of CPU for a thousand requests, so microseconds for one.

    python -m tests.bench.stages
    python -m tests.bench.stages --before DIR       another checkout beside this one, in turns

All requests go through each stage together. So it says what the code takes, and not what the caches of a busy machine
add to it where every stage comes in turn; the curve (tests/bench/curve.py) measures that.
"""

from __future__ import annotations

import gc
import time
from collections import defaultdict

from tests.bench.observer import DATA, Feeder, Record, chunk, finish, open_streams
from tests.bench.turns import in_turns

from prefillwatch.core.inputs import TapPacket
from prefillwatch.units import NS
from prefillwatch.wire.tap import Kind

ROUNDS = 5
REQUESTS = 1000
APART_NS = 100_000
QUIET_NS = NS // 4
OPENING = (Kind.REQUEST, Kind.REQUEST_BODY, Kind.REQUEST_END, Kind.SENT, Kind.RESPONSE)


class Stages(Feeder):
    """A thousand requests from their first byte to the end of their answers, several times."""

    def measure(self) -> dict[str, float]:
        spent: dict[str, float] = {}
        for round_number in range(3):  # the last one counts: by then shapes, sizes and costs are known
            ids = range(1 + round_number * REQUESTS, 1 + (round_number + 1) * REQUESTS)
            spent = self.round(ids)
        return spent

    def round(self, ids: range) -> dict[str, float]:
        begin = self.now + NS
        opening: dict[int, list[Record]] = defaultdict(list)
        for place, stream in enumerate(ids):
            for record in open_streams(begin + place * APART_NS, [stream]):
                opening[record[2]].append(record)
        gc.collect()
        gc.disable()
        spent = {
            f"{number}. {Kind(kind).name.lower()}": self.take_all(opening[kind]) for number, kind in enumerate(OPENING)
        }
        spent["5. worked through: sent"] = self.work_through()
        for number, name in ((1, "6. first token"), (2, "8. second token")):
            at = self.now
            spent[name] = self.take_all(
                [(at + i * APART_NS, each, DATA, chunk(each, number)) for i, each in enumerate(ids)]
            )
            spent[f"{int(name[0]) + 1}. worked through"] = self.work_through()
        ends = [list(finish(self.now + i * APART_NS, each, 3)) for i, each in enumerate(ids)]
        spent["a. last token, usage"] = self.take_all([data for data, _ in ends])
        spent["b. end"] = self.take_all([end for _, end in ends])
        spent["c. worked through"] = self.work_through()
        gc.enable()
        return spent

    def take_all(self, records: list[Record]) -> float:
        for record in records:
            self.builder.add(*record)
        packets = self.builder.take_all()
        self.now = max(self.now, records[-1][0])
        before = time.thread_time_ns()
        for packet in packets:
            self.observation.feed(TapPacket(packet))
        return (time.thread_time_ns() - before) / 1e6 * 1000 / REQUESTS

    def work_through(self) -> float:
        self.now += QUIET_NS
        before = time.thread_time_ns()
        self.observation.beat()
        return (time.thread_time_ns() - before) / 1e6 * 1000 / REQUESTS


def measure() -> dict[str, float]:
    figures = Stages().measure()
    return figures | {"d. all": sum(figures.values())}


if __name__ == "__main__":
    in_turns("tests.bench.stages", measure, ROUNDS)
