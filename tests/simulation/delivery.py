"""From the step that made a token to the read that brought it: API server, a hop that may buffer, the network, our
own loop, and a client that may not read. Every stage keeps its time, so that a delay is known to be that stage's.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field

from tests.simulation.engine import Sequence, Span, Token
from tests.simulation.faults import Hardships
from tests.simulation.shapes import Shape

SIZE_OF_AN_EVENT = 190
COALESCED = 0.002  # share of reads that come with the next one
LATE_AT_MOST = 3.0  # … if that comes soon


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
        _arrive(written, rng)
        for event in written:
            event.read = after(blocked[name], after(hardships.relay, event.arrived))
        leaves = own[0].sequence.job.leaves
        events[name] = [event for event in written if leaves is None or event.read < leaves]
    return Delivery(events, dict(blocked))


def _written(own: list[Token], place: int, shape: Shape, hardships: Hardships, rng: random.Random) -> list[Event]:
    """The API server writes one stream after another; so many tokens of a choice are one event."""
    events: list[Event] = []
    open_: dict[int, list[Token]] = defaultdict(list)
    last: dict[int, Event] = {}
    count: dict[int, int] = defaultdict(int)
    for token in own:
        choice = token.sequence
        open_[choice.choice].append(token)
        count[choice.choice] += 1
        first_or_last = count[choice.choice] in (1, choice.job.answer)
        if len(open_[choice.choice]) < shape.interval and not first_or_last:
            continue
        at = after(hardships.api_server, token.made)
        held = at > token.made
        at += 0.3 + 0.08 * (place % 16) + rng.random() * 0.1
        before = last.get(choice.choice)
        if shape.merges and held and before is not None and abs(before.written - at) < 5.0:
            before.tokens += open_.pop(choice.choice)
            continue
        event = Event(open_.pop(choice.choice), max(at, before.written if before else 0.0))
        last[choice.choice] = event
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
        held.append(event)
        if hardships.hop_bytes and (len(held) * SIZE_OF_AN_EVENT >= hardships.hop_bytes or event is events[-1]):
            for each in held:
                each.passed = event.written
            held = []


def _arrive(events: list[Event], rng: random.Random) -> None:
    """What was passed on at once is read at once."""
    before = passed = 0.0
    for event, following in zip(events, [*events[1:], None], strict=True):
        if event.passed > passed:
            at = event.passed + rng.expovariate(1 / 0.15)
            if following is not None and rng.random() < COALESCED:
                at = min(max(at, following.passed), event.passed + LATE_AT_MOST)
            before, passed = max(at, before), event.passed
        event.arrived = before
