"""A relay on a tap that loses packets, beside the same one on a tap that loses none.

A session is what a relay would tell, in order of time. It is told to two observers. One misses the packets that a test
says; it asks, and is answered as a relay answers. What their gauges say is then compared.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.core.script import CHAT, DONE, EPOCH_NS, Observed, chunk, usage

from prefillwatch.contract.buckets import LAG_BOUNDS
from prefillwatch.core.inputs import TapPacket
from prefillwatch.export import table
from prefillwatch.observer.api import streams_now
from prefillwatch.units import MS
from prefillwatch.wire.in_flight import BLOCKED, Ask, InFlight, Stage, decode_ask, encode_in_flight, spread
from prefillwatch.wire.tap import (
    End,
    Finish,
    Kind,
    PacketBuilder,
    RelayStats,
    RequestHead,
    ResponseHead,
    decode_payload,
    encode_payload,
)

RECORDINGS = Path(__file__).parents[1] / "data" / "recordings"
TICK_MS = 20
BEAT_MS = 200
STATS_MS = 1000
#: Truth within so long after the last loss.
REPAIRED_MS = 2000

SUMMED = (table.PREFILLING_REQUESTS, table.PREFILLING_TOKENS, table.DECODING_STREAMS, table.FROZEN_STREAMS)
LONGEST = (table.OPEN_GAP, table.OLDEST_FIRST_TOKEN_WAIT)
#: Seconds of silence around which it depends on what was learned of a stream's pace whether it is a stall.
EDGE = (0.05, 0.3)

Record = tuple[float, int, Kind, bytes]  # milliseconds, stream, kind, payload
Session = list[Record]
Dropped = Callable[[float], bool]  # whether the packet that leaves at this millisecond is lost


@dataclass
class Stream:
    """What a relay knows of an exchange that is in flight."""

    head: RequestHead
    response: bytes = b""
    size: int = 0
    received_ns: int = 0
    read_ns: int = 0
    stage: Stage = Stage.RECEIVING
    blocked: bool = False

    def take(self, time_ns: int, kind: Kind, payload: bytes) -> None:
        if kind is Kind.REQUEST_END:
            self.stage, self.received_ns, self.size = Stage.RECEIVED, time_ns, int.from_bytes(payload, "little")
        elif kind is Kind.SENT:
            self.stage = Stage.SENT
        elif kind is Kind.RESPONSE:
            self.stage, self.response = Stage.ANSWERED, payload
        elif kind is Kind.DATA:
            self.read_ns = time_ns
        elif kind in (Kind.BLOCKED, Kind.UNBLOCKED):
            self.blocked = kind is Kind.BLOCKED

    @property
    def told_again(self) -> RequestHead:
        return RequestHead(
            self.head.method,
            self.head.path,
            self.head.content_type,
            resumed=True,
            received_ns=self.received_ns,
            stage=self.stage,
            body_size=self.size,
            read_ns=self.read_ns,
        )


@dataclass
class Side:
    """One observer and the tap to it."""

    observed: Observed
    index: int = 0
    epoch: int = 1
    keeps_books: bool = False  # packets that are dropped lose their bodies alone
    builder: PacketBuilder = field(init=False)
    in_flight: dict[int, Stream] = field(default_factory=dict)
    asked: list[tuple[Ask, tuple[int, ...]]] = field(default_factory=list)
    asks: int = 0

    def __post_init__(self) -> None:
        self.builder = PacketBuilder(self.index, self.epoch)

    def add(self, time_ns: int, stream: int, kind: Kind, payload: bytes = b"") -> None:
        self.builder.add(time_ns, stream, kind, payload)

    def take(self, record: Record) -> None:
        at_ms, stream, kind, payload = record
        time_ns = EPOCH_NS + round(at_ms * MS)
        if kind is Kind.REQUEST:
            self.in_flight[stream] = Stream(decode_payload(Kind.REQUEST, payload, RequestHead))
        elif kind is Kind.END:
            self.in_flight.pop(stream, None)
        elif stream in self.in_flight:
            self.in_flight[stream].take(time_ns, kind, payload)
        self.add(time_ns, stream, kind, payload)

    def tell_stats(self, time_ns: int) -> None:
        digest = 0
        for stream in self.in_flight:
            digest ^= spread(stream)
        stats = RelayStats(1, 1, 0, len(self.in_flight), LAG_BOUNDS, (1, *(0 for _ in LAG_BOUNDS)), 0.0, digest=digest)
        self.add(time_ns, 0, Kind.STATS, encode_payload(stats))

    def answer(self, time_ns: int, newest: int) -> None:
        for ask, streams in self.asked:
            if ask is Ask.LIST:
                self._list(time_ns, newest)
            elif ask is Ask.REPORT:
                for stream in streams:
                    if known := self.in_flight.get(stream):
                        self.add(time_ns, stream, Kind.REQUEST, encode_payload(known.told_again))
                        if known.response:
                            self.add(time_ns, stream, Kind.RESPONSE, known.response)
                        if known.blocked:
                            self.add(known.read_ns or time_ns, stream, Kind.BLOCKED)
        self.asked.clear()

    def _list(self, time_ns: int, newest: int, size: int = 3) -> None:
        """In slices that are small, so that there are some."""
        ids, after = sorted(self.in_flight), 0
        parts = [ids[start : start + size] for start in range(0, len(ids), size)] or [[]]
        for part in parts:
            until = newest if part is parts[-1] else part[-1]
            known = [self.in_flight[stream] for stream in part]
            stages = [each.stage | (BLOCKED if each.blocked else 0) for each in known]
            told = InFlight(after, until, part, [each.read_ns for each in known], stages)
            self.add(time_ns, 0, Kind.IN_FLIGHT, encode_in_flight(told))
            after = until

    def flush(self, now_ns: int, *, lose: bool) -> None:
        if lose and self.keeps_books:
            self.builder.leave_out_bodies(0, set())
            self.builder.drop()
        for packet in self.builder.take_all():
            if lose and not self.keeps_books:
                self.builder.dropped += 1
            else:
                self.observed.core.feed(TapPacket(packet), now_ns)

    def beat(self, now_ns: int) -> None:
        self.observed.now_ms = (now_ns - EPOCH_NS) / MS
        self.observed.observation.beat()
        for relay in self.observed.taps.relays.values():
            for packet in relay.asks(now_ns):
                ask, epoch, streams = decode_ask(packet)
                assert epoch == self.epoch
                self.asks += 1
                self.asked.append((ask, streams))

    def gauges(self) -> dict[str, float]:
        """Those that have to be true, over all models: what model a prompt was for may be among what was lost."""
        observed = self.observed
        page = {family.spec: family.values.values() for family in observed.snapshot()}
        summed = {spec.name: sum(page[spec]) for spec in SUMMED}
        longest = {spec.name: max(page.get(spec, ()), default=0.0) for spec in LONGEST}
        state = streams_now(observed.view(), 0.0)
        listed = {
            "state decoding": state["decoding"],
            "state prefilling": state["prefilling"],
            "state frozen": sum(stream["frozen"] for stream in state["streams"]),
            "on the edge": sum(EDGE[0] < stream["silent_seconds"] < EDGE[1] for stream in state["streams"]),
            "state blocked": sum(stream["client_blocked"] for stream in state["streams"]),
            "concurrency": sum(observed.ledger._figures._decoding.values()),
            "in flight": observed.taps.exchanges,
        }
        return summed | longest | listed


def differences(truth: dict[str, float], found: dict[str, float]) -> dict[str, tuple[float, float]]:
    """Gauges that are not the same, as (true, found). The size of a prompt whose text was lost is known roughly."""
    rough = dict.fromkeys(truth, 1e-6)
    size = table.PREFILLING_TOKENS.name
    rough[size] = 60.0 * truth[table.PREFILLING_REQUESTS.name] + 0.3 * truth[size]
    rough["state frozen"] = rough[table.FROZEN_STREAMS.name] = truth["on the edge"]
    return {name: (value, found[name]) for name, value in truth.items() if abs(found[name] - value) > rough[name]}


@dataclass
class Story:
    """What came of telling a session twice."""

    wrong: list[tuple[float, dict[str, tuple[float, float]]]]  # at which millisecond, which gauges
    whole: Side
    holed: Side
    dropped: list[float]  # when packets were lost


def tell(session: Session, dropped: Dropped, *, keeps_books: bool = False, after_ms: float = 4000) -> Story:
    """Tell it to both. Gauges are compared at each beat that is long enough after the last loss."""
    whole, holed = Side(Observed()), Side(Observed(), keeps_books=keeps_books)
    story = Story([], whole, holed, [])
    position, newest, last_loss = 0, 0, -1e9
    end_ms = session[-1][0] + after_ms
    at_ms = 0.0
    while at_ms < end_ms:
        at_ms += TICK_MS
        now_ns = EPOCH_NS + round(at_ms * MS)
        while position < len(session) and session[position][0] <= at_ms:
            newest = max(newest, session[position][1])
            for side in (whole, holed):
                side.take(session[position])
            position += 1
        if at_ms % STATS_MS == 0:
            for side in (whole, holed):
                side.tell_stats(now_ns)
        holed.answer(now_ns, newest)
        lose = dropped(at_ms) and bool(len(holed.builder))
        if lose:
            last_loss = at_ms
            story.dropped.append(at_ms)
        whole.flush(now_ns, lose=False)
        holed.flush(now_ns, lose=lose)
        if at_ms % BEAT_MS == 0:
            for side in (whole, holed):
                side.beat(now_ns)
            if at_ms > last_loss + REPAIRED_MS and (wrong := differences(whole.gauges(), holed.gauges())):
                story.wrong.append((at_ms, wrong))
    assert not whole.asks
    return story


def smallest(ticks: set[float], fails: Callable[[set[float]], bool]) -> set[float]:
    """A set of lost packets that still fails, and of which none can be left out."""
    size = max(1, len(ticks) // 2)
    while ticks:
        ordered = sorted(ticks)
        for start in range(0, len(ordered), size):
            fewer = ticks - set(ordered[start : start + size])
            if fails(fewer):
                ticks = fewer
                break
        else:
            if size == 1:
                break
            size //= 2
    return ticks


def describe(session: Session, ticks: Iterable[float], story: Story) -> str:
    """What was lost, and what is wrong from then on."""
    lines = []
    for tick in sorted(ticks):
        lost = [
            f"{at_ms:.0f} {stream} {kind.name}" for at_ms, stream, kind, _ in session if tick - TICK_MS < at_ms <= tick
        ]
        lines.append(f"  lost at {tick:.0f} ms: {', '.join(lost) or 'nothing but what was asked for'}")
    wrong = [f"  at {at_ms:.0f} ms (true, found): {gauges}" for at_ms, gauges in story.wrong[:3]]
    return "\n".join(["", *lines, *wrong])


# --- Sessions ---


def request(at_ms: float, stream: int, chars: int, *, streamed: bool = True, path: str = CHAT) -> Iterator[Record]:
    content = [{"role": "user", "content": "w" * chars}]
    body = json.dumps({"model": "m", "stream": streamed, "messages": content}).encode()
    head = RequestHead("POST", path, "application/json", content_length=len(body))
    yield at_ms, stream, Kind.REQUEST, encode_payload(head)
    yield at_ms + 0.01, stream, Kind.REQUEST_BODY, body
    yield at_ms + 0.02, stream, Kind.REQUEST_END, len(body).to_bytes(8, "little")
    yield at_ms + 0.05, stream, Kind.SENT, b""


def answered(at_ms: float, stream: int, content_type: str = "text/event-stream", status: int = 200) -> Record:
    return at_ms, stream, Kind.RESPONSE, encode_payload(ResponseHead(status, content_type))


def ended(at_ms: float, stream: int, finish: Finish = Finish.COMPLETE, status: int = 200) -> Record:
    return at_ms, stream, Kind.END, encode_payload(End(finish, status))


def scripted(seed: int, *, calm: bool = False, seconds: float = 16) -> Session:
    """Streams that come and go, wait, fall silent, are held up by clients, fail; ``calm``: none of the troubles."""
    rng = random.Random(seed)
    freezes = [] if calm else [(rng.uniform(1000, seconds * 1000), rng.uniform(300, 4000)) for _ in range(3)]
    records: list[Record] = []
    for stream in range(1, rng.randrange(12, 30)):
        records += _one(rng, stream, rng.uniform(0, seconds * 1000), freezes, calm=calm)
    return sorted(records, key=lambda record: record[0])


def _one(
    rng: random.Random, stream: int, at_ms: float, freezes: list[tuple[float, float]], *, calm: bool
) -> Iterator[Record]:
    shape = rng.choice(["stream"] * 6 + ([] if calm else ["json", "refused", "left", "other", "held"]))
    if shape == "other":
        yield at_ms, stream, Kind.REQUEST, encode_payload(RequestHead("GET", "/v1/models"))
        yield at_ms + 1, stream, Kind.REQUEST_END, bytes(8)
        yield at_ms + 1, stream, Kind.SENT, b""
        at_ms += rng.uniform(10, 4000)
        yield answered(at_ms, stream, "application/json")
        yield ended(at_ms + 1, stream)
        return
    yield from request(at_ms, stream, rng.choice([40, 400, 4000]), streamed=shape != "json")
    at_ms += 5
    if shape == "refused":
        yield answered(at_ms + 3, stream, "application/json", 400)
        yield ended(at_ms + 4, stream, status=400)
        return
    if shape == "json":
        at_ms += rng.uniform(100, 5000)
        yield answered(at_ms, stream, "application/json")
        yield at_ms, stream, Kind.DATA, b'{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3}}'
        yield ended(at_ms + 1, stream)
        return
    yield answered(at_ms, stream)
    at_ms += rng.uniform(30, 150 if calm else 5000)
    if shape == "left":
        yield ended(at_ms, stream, Finish.CLIENT_CLOSED)
        return
    pace, held_at = rng.uniform(15, 40), rng.randrange(5, 50)
    for number in range(rng.randrange(1, 300)):
        for start, length in freezes:
            if start <= at_ms < start + length:
                at_ms = start + length
        yield at_ms, stream, Kind.DATA, chunk()
        if shape == "held" and number == held_at:
            yield at_ms + 1, stream, Kind.BLOCKED, b""
            at_ms += rng.uniform(100, 5000)
            yield at_ms, stream, Kind.UNBLOCKED, b""
        at_ms += pace * rng.uniform(0.9, 1.1)
    yield at_ms, stream, Kind.DATA, DONE
    yield ended(at_ms + 0.5, stream)


def recorded(name: str, seconds: float) -> Session:
    """The first seconds of a recording of a real engine."""
    records: list[Record] = []
    streams: dict[str, int] = {}
    begun: set[int] = set()
    with gzip.open(RECORDINGS / f"{name}.jsonl.gz", "rt") as lines:
        for line in map(json.loads, lines):
            if "at" in line and line["at"] < seconds * 1e9:
                records += _recorded(line, streams, begun)
    return sorted(records, key=lambda record: record[0])


def _recorded(line: dict[str, Any], streams: dict[str, int], begun: set[int]) -> Iterator[Record]:
    at_ms = line["at"] / MS
    if line["kind"] == "request":
        stream = streams[line["id"]] = len(streams) + 1
        yield from request(at_ms, stream, line["prompt_chars"], streamed=line["stream"])
    elif line["kind"] == "read":
        stream = streams[line["id"]]
        if stream not in begun:
            begun.add(stream)
            yield answered(max(at_ms, 0), stream)
        if line["tokens"]:
            yield at_ms, stream, Kind.DATA, chunk() * line["tokens"]
    elif line["kind"] == "end":
        stream = streams[line["id"]]
        if line["completion_tokens"]:
            yield at_ms, stream, Kind.DATA, usage(line["prompt_tokens"], line["completion_tokens"]) + DONE
        yield ended(at_ms, stream, Finish.COMPLETE if line["outcome"] == "ok" else Finish.CLIENT_CLOSED)


def losses(seed: int, session: Session) -> set[float]:
    """Packets that are lost: in a few windows, some or all of them."""
    rng = random.Random(-1 - seed)
    end_ms = session[-1][0]
    ticks: set[float] = set()
    for _ in range(rng.randrange(1, 4)):
        start, length = rng.uniform(0, end_ms), rng.choice([20, 200, 1000, 3000])
        share = rng.choice([0.2, 0.7, 1.0])
        tick = (start // TICK_MS + 1) * TICK_MS
        while tick <= start + length + TICK_MS:
            if rng.random() < share:
                ticks.add(tick)
            tick += TICK_MS
    return ticks
