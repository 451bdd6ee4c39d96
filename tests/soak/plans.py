"""What one request of the soak does. Both ends follow the same plan, so that what arrives can be compared with it.

The upstream's part of a plan travels in a header of the request; the client keeps the rest to itself.
"""

from __future__ import annotations

import enum
import json
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass

HEADER = "x-soak"
MODEL = "soak"


class Toxic(enum.Enum):
    """What is wrong with the way from upstream to us."""

    NONE = "none"
    LATENCY = "latency"  # every write comes late
    BANDWIDTH = "bandwidth"  # few bytes per second
    SLICING = "slicing"  # a few bytes per write
    SLOW_CLOSE = "slow_close"  # the end comes long after the last byte
    RESET = "reset"  # RST in the middle of the answer
    CUT = "cut"  # a clean end of the connection in the middle of the answer
    TIMEOUT = "timeout"  # no byte any more, and no end


class Leave(enum.Enum):
    """When the client leaves."""

    NEVER = "never"
    IN_HEAD = "in_head"
    IN_BODY = "in_body"
    WAITING = "waiting"  # before the first token
    STREAMING = "streaming"
    AT_THE_END = "at_the_end"  # every token is there, the end of the answer is not


#: Ends of the answer that upstream breaks off.
BROKEN = frozenset({Toxic.RESET, Toxic.CUT})


@dataclass(frozen=True)
class Answer:
    """The upstream's part."""

    number: int
    tokens: int
    gap_s: float  # tokens come at the multiples of this, for all answers at once, as an engine's steps do
    padding: int = 0  # characters of each token beside its name
    stream: bool = True
    usage: bool = False  # a usage event before the end
    toxic: Toxic = Toxic.NONE
    hold_s: float = 0.0  # silence before the first token
    hold_end_s: float = 0.0  # silence between the last token and the end

    def header(self) -> str:
        return json.dumps({**asdict(self), "toxic": self.toxic.value}, separators=(",", ":"))

    @classmethod
    def from_header(cls, text: str) -> Answer:
        told = json.loads(text)
        return cls(**{**told, "toxic": Toxic(told["toxic"])})

    def token(self, index: int) -> str:
        """Tokens are named, so that a lost, repeated or made-up one can be told."""
        return f"{self.number}.{index}" + "x" * self.padding + " "

    @property
    def breaks_after(self) -> int:
        """How many tokens are sent before a toxic ends the answer."""
        return self.tokens // 2 if self.toxic in BROKEN or self.toxic is Toxic.TIMEOUT else self.tokens


@dataclass(frozen=True)
class Plan:
    answer: Answer
    body_bytes: int = 200
    chunked: bool = False
    leave: Leave = Leave.NEVER
    slow: bool = False  # reads slower than upstream writes

    @property
    def number(self) -> int:
        return self.answer.number

    @property
    def gives_up_after(self) -> int | None:
        """The client leaves when it has this many tokens."""
        if self.leave is Leave.STREAMING:
            return max(1, self.answer.tokens // 3)
        if self.leave is Leave.AT_THE_END:
            return self.answer.tokens
        if self.answer.toxic is Toxic.TIMEOUT:
            return self.answer.breaks_after
        return None

    def body(self) -> bytes:
        text = "".join(random.Random(self.number).choices("abcdefgh ", k=16)) * (self.body_bytes // 16 + 1)
        told = {
            "model": MODEL,
            "stream": self.answer.stream,
            "max_tokens": self.answer.tokens,
            "messages": [{"role": "user", "content": text[: self.body_bytes]}],
        }
        return json.dumps(told).encode()


def plans(seed: int, *, gap_s: float, calm: bool = False) -> Iterator[Plan]:
    """Plans without end. ``calm``: none that breaks anything."""
    chance = random.Random(seed)
    number = seed * 1_000_000
    while True:
        number += 1
        yield (_calm if calm or chance.random() < 0.6 else _troubled)(number, chance, gap_s)


def _calm(number: int, chance: random.Random, gap_s: float) -> Plan:
    stream = chance.random() < 0.9
    tokens = chance.randint(10, 60) if stream else chance.randint(2, 8)
    answer = Answer(number, tokens, gap_s, stream=stream, usage=chance.random() < 0.5)
    return Plan(answer, body_bytes=chance.choice([50, 200, 2_000, 20_000]), chunked=chance.random() < 0.2)


def _troubled(number: int, chance: random.Random, gap_s: float) -> Plan:
    kind = chance.choice(["leave", "leave", "toxic", "toxic", "slow", "upload"])
    if kind == "upload":
        size = chance.choice([100_000, 300_000, 1_000_000])
        return Plan(Answer(number, 20, gap_s), body_bytes=size, chunked=chance.random() < 0.5)
    if kind == "slow":
        return Plan(Answer(number, 12, gap_s, padding=60_000), slow=True)
    if kind == "leave":
        leave = chance.choice([leave for leave in Leave if leave is not Leave.NEVER])
        hold_s = 30.0 if leave is Leave.WAITING else 0.0
        hold_end_s = 30.0 if leave is Leave.AT_THE_END else 0.0
        answer = Answer(number, 12, gap_s, hold_s=hold_s, hold_end_s=hold_end_s)
        return Plan(answer, body_bytes=chance.choice([200, 200_000]), leave=leave)
    toxic = chance.choice([toxic for toxic in Toxic if toxic is not Toxic.NONE])
    return Plan(Answer(number, 16, gap_s, toxic=toxic))
