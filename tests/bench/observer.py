"""How many tokens per second the observer can account for on one core: its own code, fed with tap packets directly."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tests.bench.programs import BenchError

from prefillwatch.core.inputs import Models, TapPacket
from prefillwatch.export.exposition import render
from prefillwatch.observer.observation import Observation
from prefillwatch.settings.declared import DEFAULTS
from prefillwatch.settings.views import analysis_view
from prefillwatch.units import NS
from prefillwatch.wire.tap import End, Finish, Kind, PacketBuilder, RequestHead, ResponseHead, encode_payload

STREAMS = 256
WARM_TOKENS = 6000  # two or three for each of 2,000 streams
STEP_NS = 25_000_000  # 40 tokens per second and stream
PACKET_NS = 20_000_000
BEAT_NS = 200_000_000  # as the observer does while nobody watches the page
PROMPTS_PER_SECOND = 2
PROMPT_CHARS = 8000
PROMPT_STEP_NS = 400_000_000

DATA = int(Kind.DATA)
Record = tuple[int, int, int, bytes]


def measure(seconds: float) -> dict[str, float]:
    """Feed the observer for about `seconds` per case, on the calling thread's core; the time counted is CPU time.

    "spread" has every stream's token at a time of its own; "steps" has all of them within a millisecond, as an engine
    gives them, with prompts of 2,000 tokens arriving that stretch a step each. All include a scrape every second.
    """
    cases = {
        "spread": spread(STREAMS, STEP_NS),
        "2,000 slow streams, spread": spread(2000, 8 * STEP_NS),
        "steps with prompts": steps(),
    }
    figures: dict[str, float] = {}
    for name, traffic in cases.items():
        tokens, cpu_ns = feed_for(traffic, seconds)
        figures[f"tokens/s on one core, {name}"] = tokens / (cpu_ns / NS)
        figures[f"ns per token, {name}"] = cpu_ns / tokens
    return figures


def feed_for(traffic: Iterator[Record], seconds: float) -> tuple[int, int]:
    """(tokens, CPU nanoseconds) of an observer that took records for `seconds`, after all streams had begun: to open
    thousands of them takes longer than a smoke run."""
    feeder = Feeder()
    limit = int(seconds * NS)
    tokens = cpu_ns = 0
    for record in traffic:
        feeder.take(record)
        if feeder.tokens <= WARM_TOKENS:
            tokens, cpu_ns = feeder.tokens, feeder.cpu_ns
        elif feeder.cpu_ns - cpu_ns > limit:
            break
    feeder.check()
    return feeder.tokens - tokens, feeder.cpu_ns - cpu_ns


@dataclass
class Feeder:
    """Packs records as a relay would, and counts only the time that the observer's code takes."""

    now: int = NS
    cpu_ns: int = 0
    tokens: int = 0
    packet_due: int = 0
    beat_due: int = 0
    scrape_due: int = 0
    scrape: bytes = field(default=b"", repr=False)
    #: Histograms are kept with exponential buckets, too.
    exponential: bool = False

    def __post_init__(self) -> None:
        self.observation = Observation(analysis_view(DEFAULTS), clock=lambda: self.now, exponential=self.exponential)
        self.observation.feed(Models(("bench",)))
        self.builder = PacketBuilder(relay=0, epoch=1)

    def take(self, record: Record) -> None:
        time_ns, stream, kind, payload = record
        if time_ns >= self.packet_due:
            self.work(time_ns)
        self.tokens += kind == DATA
        self.builder.add(time_ns, stream, kind, payload)

    def work(self, time_ns: int) -> None:
        """Hand over the packets of the last interval; beat and scrape when it is time."""
        packets = self.builder.take_all()
        self.now = time_ns
        self.packet_due = time_ns + PACKET_NS
        before = time.thread_time_ns()
        for packet in packets:
            self.observation.feed(TapPacket(packet))
        if time_ns >= self.beat_due:
            self.beat()
            self.beat_due = time_ns + BEAT_NS
        if time_ns >= self.scrape_due:
            self.scrape = self.render()
            self.scrape_due = time_ns + NS
        self.cpu_ns += time.thread_time_ns() - before

    def beat(self) -> None:
        self.observation.beat()

    def render(self) -> bytes:
        return render(self.observation.snapshot())[0]

    def check(self) -> None:
        """The observer must have accounted for what it was fed: a fast meter that misses tokens is none."""
        self.scrape = self.render()
        lines = self.scrape.decode().splitlines()
        found = sum(float(x.split()[-1]) for x in lines if x.startswith("prefillwatch_generated_tokens_total{"))
        if not 0.95 * self.tokens <= found <= self.tokens:
            raise BenchError(f"the observer was fed {self.tokens} tokens and counted {found:.0f}")


def spread(streams: int, period_ns: int) -> Iterator[Record]:
    """Every stream at a phase of its own."""
    yield from open_streams(NS, range(1, streams + 1))
    draw = random.Random(1)
    offsets = sorted((draw.randrange(period_ns), stream) for stream in range(1, streams + 1))
    number = 0
    while True:
        number += 1
        base = NS + number * period_ns
        for offset, stream in offsets:
            yield base + offset, stream, DATA, chunk(stream, number)


def steps() -> Iterator[Record]:
    """256 streams in step; now and then a prompt, whose step is long and whose first token comes with it."""
    yield from open_streams(NS, range(1, STREAMS + 1))
    now, number, stream = NS, 0, STREAMS
    every = NS // PROMPTS_PER_SECOND // STEP_NS
    while True:
        number += 1
        prompt = number % every == 0
        if prompt:
            stream += 1
            yield from open_streams(now, [stream], PROMPT_CHARS)
        now += PROMPT_STEP_NS if prompt else STEP_NS
        for each in range(1, STREAMS + 1):
            yield now + each * 3000, each, DATA, chunk(each, number)
        if prompt:
            yield from finish(now + NS // 1000, stream, number)


def open_streams(now: int, streams: Iterable[int], chars: int = 200) -> Iterator[Record]:
    body = json.dumps(
        {"model": "bench", "stream": True, "messages": [{"role": "user", "content": "word " * (chars // 5)}]}
    ).encode()
    head = RequestHead("POST", "/v1/chat/completions", "application/json", "", len(body))
    for stream in streams:
        yield now, stream, Kind.REQUEST, encode_payload(head)
        yield now, stream, Kind.REQUEST_BODY, body
        yield now, stream, Kind.REQUEST_END, len(body).to_bytes(8, "little")
        yield now, stream, Kind.SENT, b""
        yield now, stream, Kind.RESPONSE, encode_payload(ResponseHead(200, "text/event-stream"))


def finish(now: int, stream: int, number: int) -> Iterator[Record]:
    usage = event(stream, '"choices":[],"usage":{"prompt_tokens":2000,"total_tokens":2001,"completion_tokens":1}')
    yield now, stream, DATA, chunk(stream, number) + usage + b"data: [DONE]\n\n"
    yield now, stream, Kind.END, encode_payload(End(Finish.COMPLETE, 200))


def chunk(stream: int, number: int) -> bytes:
    delta = f'"choices":[{{"index":0,"delta":{{"content":" w{number:x}"}},'
    return event(stream, delta + '"logprobs":null,"finish_reason":null,"token_ids":null}]')


def event(stream: int, rest: str) -> bytes:
    head = (
        f'data: {{"id":"chatcmpl-{stream:032x}","object":"chat.completion.chunk","created":1795979249,"model":"bench",'
    )
    return f"{head}{rest}}}\n\n".encode()
