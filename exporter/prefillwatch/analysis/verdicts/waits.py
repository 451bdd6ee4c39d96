"""Requests whose first token is later than their own prompt explains, and why.

Expected is the work of the prompt by the learned cost; late is several times that. While no cost is learned a token is
taken to cost as much as on a very slow machine, so that a long prompt's own work is never called a wait.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from prefillwatch.analysis.cost import Costs, PromptWork
from prefillwatch.analysis.delays import Evidence, Share, Wait, shares_of
from prefillwatch.analysis.requests import Request
from prefillwatch.analysis.settings import WaitRule
from prefillwatch.analysis.tuning import DEFAULT, LateRules, Tuning, VerdictRules
from prefillwatch.analysis.verdicts.evidence import EnginePage, EvidenceLog
from prefillwatch.analysis.verdicts.incidents import IncidentBook
from prefillwatch.contract.causes import BEFORE_ENGINE, PREFILL, QUEUEING, STUCK, UNATTRIBUTED, WARMUP
from prefillwatch.units import NS

#: Bounds on work: how often the waiting requests are looked at, and late ones judged anew.
_LOOK_EVERY_NS: Final = NS // 2
_JUDGE_EVERY_NS: Final = 2 * NS
_MOST_AHEAD: Final = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitCase:
    """What is known of one wait. Times in seconds, tokens are uncached ones of prompts."""

    waited: float
    expected: float
    overtaken: int = 0  # requests sent later that had their first token before
    silence: float = 0.0  # since anything came from the engine, or for how long nothing did
    tokens_ahead: int = 0  # of prompts served meanwhile, or in line before
    long_tokens_ahead: int = 0  # those of them in prompts far longer than the own one
    ahead_possible: float = 0.0  # seconds that they can have taken at most
    young: bool = False  # among the first requests of a server process that has just started
    pages: int = 0  # pages of metrics from the wait
    pages_waiting: int = 0  # of these, the ones with waiting requests
    pages_missing: int = 0  # of these, the ones with fewer requests than we had sent, and none waiting
    pages_running: int = 0  # of these, the ones with all that we had sent running, and none waiting
    pages_idle: int = 0  # of these, the ones with waiting requests and none running
    missing: int = 0  # requests that the engine does not know of, by the newest of them
    rules: VerdictRules = DEFAULT.verdicts
    late: LateRules = DEFAULT.waits

    @property
    def explained(self) -> bool:
        return self.tokens_ahead > 0 and self.waited - self.expected <= self.ahead_possible

    @property
    def runs_unseen(self) -> bool:
        """The engine says that it runs, while others are served: hidden reasoning and withheld arguments are decoding,
        although no token of them shows."""
        return self.pages_running > self.rules.most * self.pages and self.silence * NS < self.late.silent_ns

    @property
    def nobody_runs(self) -> bool:
        """Requests wait in an engine that has nothing else to do: for longer than any of it takes, that is no line."""
        idle = self.pages_idle > self.rules.most * self.pages
        return idle and self.waited * NS >= self.late.silent_ns and not self.explained

    @property
    def behind_long_prompts(self) -> bool:
        return self.explained and self.long_tokens_ahead >= self.rules.most * self.tokens_ahead

    def evidence(self) -> Evidence:
        return {
            "waited_seconds": round(self.waited, 3),
            "expected_seconds": round(self.expected, 3),
            "overtaken_by": self.overtaken,
            "engine_silent_seconds": round(self.silence, 3),
            "prompt_tokens_ahead": self.tokens_ahead,
            "long_prompt_tokens_ahead": self.long_tokens_ahead,
            "server_just_started": self.young,
            "engine_gauges_known": self.pages > 0,
            "pages_with_waiting_requests": self.pages_waiting,
            "engine_runs_it_unseen": self.runs_unseen,
            "engine_runs_nothing": self.nobody_runs,
            "requests_unknown_to_engine": self.missing,
        }


def judge(case: WaitCase) -> str:
    """The cause: the first rule that holds."""
    return next((cause for cause, holds in _RULES if holds(case)), UNATTRIBUTED)


_RULES: Final[tuple[tuple[str, Callable[[WaitCase], bool]], ...]] = (
    (BEFORE_ENGINE, lambda case: case.pages_missing > case.rules.most * case.pages),
    (UNATTRIBUTED, lambda case: case.runs_unseen and not case.behind_long_prompts),
    (STUCK, lambda case: case.overtaken >= case.late.overtaken),
    (PREFILL, lambda case: case.behind_long_prompts),
    (WARMUP, lambda case: case.young),
    (QUEUEING, lambda case: case.explained),
    (STUCK, lambda case: case.silence * NS >= max(case.late.silent_ns, case.rules.most * case.waited * NS)),
    (STUCK, lambda case: case.nobody_runs),
    (QUEUEING, lambda case: case.pages_waiting > case.rules.most * case.pages),
)


class WaitWatch:
    """Finds late first tokens and follows each until it comes or its client leaves."""

    def __init__(
        self,
        rule: WaitRule,
        evidence: EvidenceLog,
        incidents: IncidentBook,
        costs: Costs,
        smallest_bucket: int,
        tuning: Tuning = DEFAULT,
    ) -> None:
        self._rule = rule
        self._rules = tuning.verdicts
        self._late_rules = tuning.waits
        self._evidence = evidence
        self._incidents = incidents
        self._costs = costs
        self._smallest = smallest_bucket
        self._late: dict[int, Wait] = {}
        self._ended: list[Wait] = []
        self._look_ns = 0
        self._judge_ns = 0

    def over(self, request: Request, time_ns: int) -> None:
        """Its first token came, or its client left without one."""
        wait = self._late.pop(request.rid, None)
        if wait is not None:
            wait.ended_ns = time_ns
            wait.excess_ns = max(0.0, time_ns - wait.started_ns - wait.baseline_ns)
            self._ended.append(wait)
            self._incidents.hold(wait, time_ns)

    def drop(self, request: Request) -> None:
        """Its end was lost: for how long it waited is not known."""
        wait = self._late.pop(request.rid, None)
        if wait is not None:
            self._incidents.drop(wait)

    def advance(self, now_ns: int) -> None:
        """Look for late first tokens, and judge those that are."""
        if now_ns >= self._look_ns:
            self._look_ns = now_ns + _LOOK_EVERY_NS
            self._look(now_ns)
        ripe = [wait for wait in self._ended if now_ns >= wait.ended_ns + self._rules.ripe_ns]
        if ripe:
            self._ended = [wait for wait in self._ended if now_ns < wait.ended_ns + self._rules.ripe_ns]
            self._judge(ripe, now_ns)
            for wait in ripe:
                self._incidents.settle(wait, now_ns)

    def _look(self, now_ns: int) -> None:
        new = []
        for request in self._evidence.requests.awaiting.values():
            if request.rid in self._late or request.doubtful or not request.streaming or not request.received_ns:
                continue
            age_ns = now_ns - request.sent_ns
            if age_ns < self._rule.min * NS:
                break  # in order of arrival
            expected_ns = self._expected_ns(request)
            if age_ns >= self._rule.factor * expected_ns:
                wait = Wait(request=request, model=request.model, started_ns=request.sent_ns, baseline_ns=expected_ns)
                new.append(wait)
                self._late[request.rid] = wait
        for wait in self._late.values():
            wait.excess_ns = max(0.0, now_ns - wait.started_ns - wait.baseline_ns)
        due = list(self._late.values()) if now_ns >= self._judge_ns else new
        if due:
            self._judge_ns = now_ns + _JUDGE_EVERY_NS if due is not new else self._judge_ns
            self._judge(due, now_ns)
            for wait in due:
                self._incidents.hold(wait, now_ns)

    def _expected_ns(self, request: Request) -> float:
        work = PromptWork(
            request.uncached_tokens, request.uncached_tokens, request.cached_tokens, request.prompt_tokens
        )
        return self._costs.alone_ns(work, self._late_rules.unlearned_token_ns)

    def _judge(self, waits: Sequence[Wait], now_ns: int) -> None:
        since_ns = min(wait.started_ns for wait in waits)
        line = _Line(self._evidence, since_ns, now_ns, self._costs, self._smallest, self._late_rules.long)
        for wait in waits:
            case, shares = self._case(wait, line, now_ns)
            wait.cause, wait.evidence = judge(case), case.evidence()
            wait.request.runs_unseen = case.runs_unseen and wait.cause == UNATTRIBUTED
            wait.shares = shares if wait.cause in (PREFILL, QUEUEING) else ()

    def _case(self, wait: Wait, line: _Line, now_ns: int) -> tuple[WaitCase, tuple[Share, ...]]:
        end_ns = wait.ended_ns or now_ns
        ahead = line.ahead_of(wait.request, end_ns)
        pages = self._evidence.pages.between(wait.started_ns + NS, end_ns)
        missing = [page for page in pages if _unknown_requests(page, self._rules.most) > 0]
        expected_s = wait.baseline_ns / NS
        case = WaitCase(
            waited=(end_ns - wait.started_ns) / NS,
            expected=expected_s,
            overtaken=line.overtook(wait.request, end_ns),
            silence=self._silence_ns(wait, now_ns) / NS,
            tokens_ahead=ahead.tokens,
            long_tokens_ahead=ahead.long_tokens,
            ahead_possible=ahead.possible_ns / NS,
            rules=self._rules,
            late=self._late_rules,
            young=self._is_young(wait),
            pages=len(pages),
            pages_waiting=sum(1 for page in pages if page.waiting),
            pages_missing=len(missing),
            pages_running=sum(1 for page in pages if _runs_all(page)),
            pages_idle=sum(1 for page in pages if page.waiting and page.running == 0),
            missing=_unknown_requests(missing[-1], self._rules.most) if missing else 0,
        )
        return case, ahead.shares

    def _silence_ns(self, wait: Wait, now_ns: int) -> int:
        """For how long nothing came from the engine: until now while the wait lasts, else the longest time in it."""
        if wait.ended_ns:
            return self._evidence.steps.silence(wait.started_ns, wait.ended_ns)[0]
        served = self._evidence.requests.served
        last_ns = max(self._evidence.steps.last_ns, served[-1].served_ns if served else 0, wait.started_ns)
        return now_ns - last_ns

    def _is_young(self, wait: Wait) -> bool:
        newest = self._evidence.pages.newest
        started_ns = newest.started_ns if newest is not None else None
        if started_ns is None or not started_ns <= wait.started_ns <= started_ns + self._late_rules.young_ns:
            return False
        served = sum(1 for each in self._evidence.requests.served_since(started_ns) if each.served_ns < wait.started_ns)
        return served < self._late_rules.first_requests


@dataclass(frozen=True, slots=True)
class _Ahead:
    tokens: int
    long_tokens: int
    possible_ns: float
    shares: tuple[Share, ...]


class _Line:
    """The requests that were served since a moment or still wait, in arrays."""

    def __init__(
        self, evidence: EvidenceLog, since_ns: int, now_ns: int, costs: Costs, smallest: int, long: int
    ) -> None:
        requests = evidence.requests
        served = [each for each, _ in zip(requests.served_since(since_ns), range(_MOST_AHEAD), strict=False)]
        waiting = [each for each, _ in zip(requests.awaiting.values(), range(_MOST_AHEAD), strict=False)]
        self._requests = served + waiting
        self._cost_known = costs.known.law.known
        self._slack = costs.slack
        self._long = long
        self._smallest = smallest
        self._sent = _column([each.sent_ns for each in self._requests])
        self._first = _column([each.served_ns or 2 * now_ns for each in self._requests])
        self._tokens = _column([each.uncached_tokens for each in self._requests])
        self._costs_ns = np.array(
            [costs.expected_ns(each.uncached_tokens, each.cached_tokens) for each in self._requests]
        )

    def overtook(self, request: Request, end_ns: int) -> int:
        """How many were sent after it and had their first token before."""
        return int(((self._sent > request.sent_ns) & (self._first < end_ns)).sum())

    def ahead_of(self, request: Request, end_ns: int) -> _Ahead:
        """Prompts that the engine may have worked on instead: served meanwhile, or waiting since before."""
        served = (self._first > request.sent_ns) & (self._first <= end_ns)
        before = (self._first > end_ns) & (self._sent < request.sent_ns)
        others = np.array([each is not request for each in self._requests], np.bool_)
        ahead = (served | before) & others
        long = ahead & (self._tokens >= self._long * request.uncached_tokens) & (self._tokens > self._smallest)
        tokens = int(self._tokens[ahead].sum())
        possible_ns = self._slack * float(self._costs_ns[ahead].sum())
        if not self._cost_known:
            possible_ns = np.inf if tokens > self._smallest else 0.0
        named = {self._requests[index]: int(self._tokens[index]) for index in np.flatnonzero(long).tolist()}
        return _Ahead(tokens, int(self._tokens[long].sum()), possible_ns, shares_of(named))


def _column(values: list[int]) -> npt.NDArray[np.int64]:
    return np.array(values, np.int64)


def _runs_all(page: EnginePage) -> bool:
    """Whether its engine runs all that we had sent to it."""
    return page.running is not None and page.waiting == 0 and page.running >= page.in_flight > 0


def _unknown_requests(page: EnginePage, most: float) -> int:
    """How many requests we sent to the server that its engine does not know; 0 where it has some waiting, or
    its page does not say."""
    if page.running is None or page.waiting is None or page.waiting > 0:
        return 0
    unknown = page.in_flight - page.running
    return unknown if unknown >= max(1, most * page.awaiting) else 0
