"""What a client saw of one answer, and what is wrong with it."""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass, field

from tests.soak.plans import BROKEN, Leave, Plan, Toxic


class End(enum.Enum):
    """How the exchange ended for the client."""

    OPEN = "open"
    CLEAN = "clean"  # the answer's framing says that it is whole
    BROKEN = "broken"  # it broke off and could be seen to
    REFUSED = "refused"  # an error answer instead
    LEFT = "left"  # the client left as planned


@dataclass
class Seen:
    plan: Plan
    started_s: float = 0.0
    ended_s: float = 0.0
    end: End = End.OPEN
    status: int = 0
    tokens: list[str] = field(default_factory=list)
    done: bool = False  # the answer's own last event
    body_digest: str = ""
    expected_digest: str = ""
    worst_gap_s: float = 0.0
    last_read_s: float = 0.0
    _rest: bytes = b""

    def feed(self, data: bytes, now_s: float) -> None:
        """Bytes of the answer's body."""
        if self.last_read_s:
            self.worst_gap_s = max(self.worst_gap_s, now_s - self.last_read_s)
        self.last_read_s = now_s
        if not self.plan.answer.stream or self.status != 200:
            self._rest += data
            return
        *events, self._rest = (self._rest + data).split(b"\n\n")
        for event in events:
            payload = event.removeprefix(b"data: ")
            if payload == b"[DONE]":
                self.done = True
                continue
            choices = json.loads(payload)["choices"]
            self.tokens += [choice["delta"]["content"] for choice in choices]

    def complete(self, now_s: float) -> None:
        """The framing's end was read."""
        self.ended_s = now_s
        self.end = End.CLEAN if self.status == 200 else End.REFUSED
        if self.status == 200 and not self.plan.answer.stream:
            text = json.loads(self._rest)["choices"][0]["message"]["content"]
            self.tokens = [token + " " for token in text.split()]
            self.done = True

    def broke_off(self, now_s: float) -> None:
        self.ended_s = now_s
        self.end = End.BROKEN

    def left(self, now_s: float) -> None:
        self.ended_s = now_s
        self.end = End.LEFT


def faults(seen: Seen, *, excused: bool) -> list[str]:
    """What must not have happened. ``excused``: a process that the answer needed was ended or stopped meanwhile, so it
    may have been broken off or refused, but it may still not lie."""
    plan, answer, wrong = seen.plan, seen.plan.answer, []
    meant = [answer.token(index) for index in range(len(seen.tokens))]
    if len(seen.tokens) > answer.tokens or seen.tokens != meant:
        wrong.append("its tokens are not those that upstream sent")
    whole = len(seen.tokens) == answer.tokens and seen.done
    if seen.end is End.CLEAN and not whole:
        wrong.append(f"it ended as if whole with {len(seen.tokens)} of {answer.tokens} tokens")
    if seen.body_digest and seen.body_digest != seen.expected_digest:
        wrong.append("upstream got another body than was sent")
    if seen.end is End.OPEN:
        wrong.append("it never ended")
    if not excused and not wrong:
        wrong += _unexcused(seen, plan)
    return wrong


def _unexcused(seen: Seen, plan: Plan) -> list[str]:
    """Nothing was done to any process: the answer must have come as planned."""
    leaves = plan.leave is not Leave.NEVER or plan.answer.toxic is Toxic.TIMEOUT
    wanted = End.LEFT if leaves else End.BROKEN if plan.answer.toxic in BROKEN else End.CLEAN
    if seen.end is wanted:
        return []
    return [f"it was to be {wanted.value} and was {seen.end.value} (status {seen.status})"]
