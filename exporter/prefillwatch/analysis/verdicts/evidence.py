"""What was seen around a delay: engine steps, prefill facts, requests, pages of upstream's metrics, holes, our own lag.

It only remembers, for a few minutes; `verdict` says what follows from it.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from typing import Final

import numpy as np
import numpy.typing as npt

from prefillwatch.analysis.requests import Request
from prefillwatch.analysis.steps import Step, StepFacts
from prefillwatch.analysis.tuning import VerdictRules
from prefillwatch.analysis.verdicts.controls import ControlLog

_MOST_STEPS: Final = 50_000
_MOST_REQUESTS: Final = 8192
_TRIM_AT: Final = 4096

_end = attrgetter("end_ns")


@dataclass(frozen=True, slots=True)
class EnginePage:
    """What a page of upstream's metrics reported, all its engines together. None: not reported."""

    at_ns: int
    running: int | None = None
    waiting: int | None = None
    kv_usage: float | None = None  # of the fullest engine
    preemptions: float | None = None  # total
    started_ns: int | None = None  # start of the server process
    prompt_tokens: float | None = None  # read so far, of whomever
    reads_on: bool = False  # this kind of server reads a prompt to its end although the client left
    engines: int = 1
    in_flight: int = 0  # requests that we had given it for a second or more by then
    awaiting: int = 0  # those of them without a first token
    ours_at_most: int | None = None  # sequences that it can be running for us, by all we know


class StepLog:
    """Ends of the engine's steps as seen from the wire."""

    def __init__(self) -> None:
        self._ends: list[int] = []

    def add(self, steps: Iterable[Step]) -> None:
        before = len(self._ends)
        self._ends.extend(step.end_ns for step in steps)
        if 0 < before < len(self._ends) and self._ends[before] < self._ends[before - 1]:
            self._ends.sort()  # of several engines
        if len(self._ends) > _MOST_STEPS + _TRIM_AT:
            del self._ends[:_TRIM_AT]

    @property
    def last_ns(self) -> int:
        return self._ends[-1] if self._ends else 0

    def silence(self, start_ns: int, end_ns: int) -> tuple[int, int]:
        """Longest time between these moments without a step's end, and how many steps ended in between."""
        low, high = bisect_right(self._ends, start_ns), bisect_left(self._ends, end_ns)
        moments = [start_ns, *self._ends[low:high], end_ns]
        longest = max(then - before for before, then in pairwise(moments))
        return longest, high - low

    def went_on(self, start_ns: int, end_ns: int, within_ns: int) -> bool:
        """Whether two steps between these moments ended so soon one after the other."""
        low, high = bisect_left(self._ends, start_ns), bisect_right(self._ends, end_ns)
        return any(self._ends[at] - self._ends[at - 1] <= within_ns for at in range(high - 1, low, -1))


class FactLog:
    """Final steps with the prompts in them."""

    def __init__(self) -> None:
        self._facts: list[StepFacts] = []

    def add(self, facts: Iterable[StepFacts]) -> None:
        before = len(self._facts)
        self._facts.extend(facts)
        if 0 < before < len(self._facts) and self._facts[before].end_ns < self._facts[before - 1].end_ns:
            self._facts.sort(key=_end)  # of several engines
        if len(self._facts) > _MOST_STEPS + _TRIM_AT:
            del self._facts[:_TRIM_AT]

    def between(self, start_ns: int, end_ns: int) -> list[StepFacts]:
        """Those that overlap this time."""
        low = bisect_right(self._facts, start_ns, key=_end)
        return list(itertools.takewhile(lambda fact: fact.start_ns < end_ns, self._facts[low:]))

    def members(self, start_ns: int, end_ns: int) -> dict[int, int]:
        """Prompt tokens of each request in the steps that a gap covers: those that ended in it, or the one it lies
        in."""
        low = bisect_right(self._facts, start_ns, key=_end)
        high = max(bisect_right(self._facts, end_ns, key=_end), low + 1)
        tokens: dict[int, int] = {}
        for fact in self._facts[low:high]:
            if fact.start_ns >= end_ns:
                break
            for rid, each in fact.members:
                assert isinstance(rid, int)
                rid = abs(rid)  # the others of a list of prompts are under the negative number
                tokens[rid] = tokens.get(rid, 0) + each
        return tokens


class RequestLog:
    """Requests without a first token, and those of the last minutes that got theirs or left."""

    def __init__(self) -> None:
        self.awaiting: dict[int, Request] = {}
        self._known: OrderedDict[int, Request] = OrderedDict()
        self.served: deque[Request] = deque(maxlen=_MOST_REQUESTS)  # in order of their first tokens
        self._left: deque[Request] = deque(maxlen=_MOST_REQUESTS)  # without one, in order of their ends

    def sent(self, request: Request) -> None:
        self.awaiting[request.rid] = request
        self._known[request.rid] = request
        while len(self._known) > _MOST_REQUESTS:
            self._known.popitem(last=False)

    def first_token(self, request: Request) -> None:
        if self.awaiting.pop(request.rid, None) is not None:
            self.served.append(request)

    def over(self, request: Request, time_ns: int) -> None:
        """Left without a first token, or its answer was not streamed."""
        if self.awaiting.pop(request.rid, None) is not None:
            request.over_ns = time_ns
            self._left.append(request)

    def find(self, rid: int) -> Request | None:
        return self._known.get(rid) or self.awaiting.get(rid)

    def served_since(self, start_ns: int) -> Iterator[Request]:
        """Those whose first token came after this moment, the latest first."""
        for request in reversed(self.served):
            if request.served_ns <= start_ns:
                return
            yield request

    def left_since(self, start_ns: int, end_ns: int) -> Iterator[Request]:
        """Those that left without a first token between these moments, the latest first."""
        for request in reversed(self._left):
            if request.over_ns < start_ns:
                return
            if request.over_ns <= end_ns:
                yield request

    def in_flight_over(self, start_ns: int) -> list[Request]:
        """Requests that had been sent and had no first token at this moment."""
        gone = itertools.takewhile(lambda each: each.over_ns > start_ns, reversed(self._left))
        then = itertools.chain(self.served_since(start_ns), gone, self.awaiting.values())
        return [each for each in then if each.sent_ns <= start_ns]


class PageLog:
    """Pages of upstream's metrics."""

    def __init__(self) -> None:
        self.pages: deque[EnginePage] = deque(maxlen=1024)

    def add(self, page: EnginePage) -> None:
        self.pages.append(page)

    @property
    def newest(self) -> EnginePage | None:
        return self.pages[-1] if self.pages else None

    def between(self, start_ns: int, end_ns: int) -> list[EnginePage]:
        found = []
        for page in reversed(self.pages):
            if page.at_ns < start_ns:
                break
            if page.at_ns <= end_ns:
                found.append(page)
        return found[::-1]

    def silent(self, start_ns: int, end_ns: int, rules: VerdictRules) -> bool:
        """Whether a page was due between these moments and did not come: they came regularly before."""
        before = [page.at_ns for page in reversed(self.pages) if page.at_ns <= start_ns][: rules.pages_for_a_rhythm]
        if len(before) < rules.pages_for_a_rhythm or self.between(start_ns + 1, end_ns):
            return False
        apart = sorted(later - earlier for later, earlier in pairwise(before))
        return end_ns - before[0] >= rules.page_is_due * apart[len(apart) // 2]

    def last_before(self, time_ns: int) -> EnginePage | None:
        return next((page for page in reversed(self.pages) if page.at_ns <= time_ns), None)

    def first_after(self, time_ns: int) -> EnginePage | None:
        after = None
        for page in reversed(self.pages):
            if page.at_ns < time_ns:
                break
            after = page
        return after


class BadTimes:
    """Stretches of time in which we could not see well, and by how many seconds; the newest few hundred."""

    def __init__(self) -> None:
        self._times: deque[tuple[int, int, float]] = deque(maxlen=512)

    def add(self, start_ns: int, end_ns: int, seconds: float) -> None:
        self._times.append((start_ns, end_ns, seconds))

    def worst(self, start_ns: int, end_ns: int) -> float:
        return max((bad for since, until, bad in self._times if since < end_ns and until > start_ns), default=0.0)

    def at_the_end(self, end_ns: int, within_ns: int) -> float:
        """The worst that lasted until this moment or beyond it; the end of a bad time may be noted a little late."""
        covering = (bad for since, until, bad in self._times if since < end_ns <= until + within_ns)
        return max(covering, default=0.0)

    def touching(self, ends_ns: npt.NDArray[np.int64], within_ns: int) -> npt.NDArray[np.bool_]:
        """For each moment whether it fell into one of them."""
        touched = np.zeros(len(ends_ns), np.bool_)
        recent = [times for times in self._times if len(ends_ns) and times[1] + within_ns >= ends_ns.min()]
        for since, until, _ in recent:
            touched |= (since < ends_ns) & (ends_ns <= until + within_ns)
        return touched


class EvidenceLog:
    """Everything together."""

    def __init__(self) -> None:
        self.steps = StepLog()
        self.facts = FactLog()
        self.requests = RequestLog()
        self.pages = PageLog()
        self.holes = BadTimes()
        self.own_lag = BadTimes()
        self.controls = ControlLog()
        self._apart: dict[int, tuple[StepLog, FactLog]] = {}

    def of_engine(self, engine: int) -> tuple[StepLog, FactLog]:
        """Steps of one of several engines alone."""
        if engine not in self._apart:
            self._apart[engine] = StepLog(), FactLog()
        return self._apart[engine]
