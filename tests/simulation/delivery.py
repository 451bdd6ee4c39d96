"""From the step that made a token to the read that brought it: API server, a hop that may buffer, the network, our
own loop, and a client that may not read. Every stage keeps its time, so that a delay is known to be that stage's.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import zip_longest

from tests.simulation.engine import Sequence, Span, Token
from tests.simulation.faults import Hardships
from tests.simulation.shapes import Shape

SIZE_OF_AN_EVENT = 190
COALESCED = 0.002  # share of reads that come with the next one
LATE_AT_MOST = 3.0  # … if that comes soon
TOGETHER_AT_MOST = 40.0  # milliseconds that a hop waits for more to send with it


@dataclass(eq=False)
class Event:
    """Tokens that are written as one; when it left each stage."""

    tokens: list[Token]
    written: float = 0.0  # by the API server
    passed: float = 0.0  # by the hop
    arrived: float = 0.0  # at our machine
    read: float = 0.0

    @property
    def choice(self) -> Sequence:
        return self.tokens[0].sequence


@dataclass
class Delivery:
    """All events of a run by request, each list in order of time; ``blocked`` are the spans of readers that rest."""

    events: dict[str, list[Event]]
    blocked: dict[str, list[Span]] = field(default_factory=dict)


def after(spans: list[Span], at: float) -> float:
    """The moment itself, or the end of the span that it falls in."""
    index = bisect_right(spans, (at, float("inf"))) - 1
    return max(at, spans[index][1]) if index >= 0 else at


def deliver(tokens: list[Token], shape: Shape, hardships: Hardships, rng: random.Random) -> Delivery:
    blocked: dict[str, list[Span]] = defaultdict(list)
    chats = sorted({token.sequence.job.name for token in tokens if token.sequence.job.name.startswith("chat")})
    for span in hardships.readers:
        blocked[rng.choice(chats)].append(span)
    streams: dict[str, list[Token]] = defaultdict(list)
    for token in tokens:
        streams[token.sequence.job.name].append(token)
    events = {}
    for place, (name, own) in enumerate(streams.items()):
        written = _written(own, place, shape, hardships, rng)
        _pass_hop(written, hardships)
        _arrive(written, hardships, rng)
        mine = blocked.get(name)
        for event in written:
            event.read = after(hardships.relay, event.arrived) if hardships.relay else event.arrived
            if mine:
                event.read = after(mine, event.read)
        leaves = own[0].sequence.job.leaves
        events[name] = [event for event in written if leaves is None or event.read < leaves]
    return Delivery(events, dict(blocked))


def _written(own: list[Token], place: int, shape: Shape, hardships: Hardships, rng: random.Random) -> list[Event]:
    """The API server writes one stream after another; so many tokens of a choice are one event, and tokens that one
    step made are one as well."""
    events: list[Event] = []
    open_: dict[int, list[Token]] = defaultdict(list)
    last: dict[int, Event] = {}
    count: dict[int, int] = defaultdict(int)
    job = own[0].sequence.job
    interval = max(shape.interval, job.interval)
    late, api_server = 0.3 + 0.08 * (place % 16), hardships.api_server
    for token, following in zip_longest(own, own[1:]):
        choice = token.sequence.choice
        mine = open_[choice]
        mine.append(token)
        number = count[choice] = count[choice] + 1
        if number <= job.hidden:
            mine.clear()
            continue
        if job.withheld[0] < number < job.withheld[1]:
            continue
        goes_on = following is not None and following.sequence is token.sequence and following.step == token.step
        if goes_on or (len(mine) < interval and number not in (1, job.answer_of(choice))):
            continue
        at = after(api_server, token.made) if api_server else token.made
        held = at > token.made
        at += late + rng.random() * 0.1
        before = last.get(choice)
        del open_[choice]
        if shape.merges and held and before is not None and abs(before.written - at) < 5.0:
            before.tokens += mine
            continue
        event = Event(mine, max(at, before.written if before else 0.0))
        last[choice] = event
        events.append(event)
    return sorted(events, key=lambda event: event.written)


def _pass_hop(events: list[Event], hardships: Hardships) -> None:
    """By size: what does not fill the buffer waits for what does, or for the end."""
    held: list[Event] = []
    since, burst = 0.0, 0
    for event in events:
        event.passed = event.written
        if hardships.hop_every:
            let_go = (event.written // hardships.hop_every + 1) * hardships.hop_every
            burst = burst + 1 if let_go == since else 0
            since = let_go
            event.passed = let_go + burst * hardships.hop_spread
        if not hardships.hop_bytes:
            continue
        held.append(event)
        if len(held) * SIZE_OF_AN_EVENT >= hardships.hop_bytes or event is events[-1]:
            for each in held:
                each.passed = event.written
            held = []


def _arrive(events: list[Event], hardships: Hardships, rng: random.Random) -> None:
    """What was passed on at once is read at once; some of it only with what comes next, as in one record of TLS."""
    before = passed = 0.0
    coalesced, blur = max(COALESCED, hardships.together), hardships.blur
    for event, following in zip_longest(events, events[1:]):
        if event.passed > passed:
            at = event.passed + rng.expovariate(1 / 0.15) + blur * rng.random()
            if following is not None and rng.random() < coalesced:
                most = LATE_AT_MOST if coalesced == COALESCED else TOGETHER_AT_MOST
                at = min(max(at, following.passed), event.passed + most)
            before, passed = max(at, before), event.passed
        event.arrived = before
