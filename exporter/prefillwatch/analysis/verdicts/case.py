"""From what was seen to the facts of a case: what a verdict on stalls that began and ended together needs."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from prefillwatch.analysis.cost import Costs, PromptWork
from prefillwatch.analysis.delays import Share, Stall, shares_of
from prefillwatch.analysis.engines import Engines
from prefillwatch.analysis.requests import NOWHERE, Request
from prefillwatch.analysis.steps import PrefillTimeline
from prefillwatch.analysis.tokens import StreamIntervals
from prefillwatch.analysis.tuning import DEFAULT, Tuning, VerdictRules
from prefillwatch.analysis.verdicts.evidence import EnginePage, EvidenceLog, StepLog
from prefillwatch.analysis.verdicts.stalls import StallWatch
from prefillwatch.analysis.verdicts.verdict import Case
from prefillwatch.contract.causes import PREFILL
from prefillwatch.units import NS

NEVER: Final = 1 << 62


class InService(NamedTuple):
    """Prompts in service during a gap, and for how long they can keep the engine busy."""

    shares: tuple[Share, ...]
    tokens: int
    possible_s: float
    likely_s: float | None
    guessed: bool = False


class CaseBuilder:
    """Puts together what is known of stalls."""

    def __init__(
        self,
        watch: StallWatch,
        engines: Engines,
        evidence: EvidenceLog,
        costs: Costs,
        intervals: StreamIntervals,
        smallest_bucket: int,
        tuning: Tuning = DEFAULT,
    ) -> None:
        self._watch = watch
        self._engines = engines
        self._timeline = engines.timeline  # what is learned is the same for all
        self._evidence = evidence
        self._costs = costs
        self._intervals = intervals
        self._smallest = smallest_bucket
        self._rules = tuning.verdicts
        self._on_its_way_ns = tuning.first_tokens.on_its_way_ns
        #: This server was seen to answer us in the midst of a long gap that was a prompt's.
        self.page_answers_in_prefill = False
        self._left_out: deque[tuple[int, int, Stall]] = deque(maxlen=256)  # end, tokens that had to be computed again

    def measure(self, stall: Stall, until_ns: int) -> None:
        """Of how much of the gap all streams were silent. Once per stall, when the steps in it are known."""
        steps = self._steps(stall)
        stall.common_ns, _ = steps.silence(stall.started_ns, until_ns)
        _, stall.ticks = steps.silence(stall.started_ns, until_ns - self._rules.spread_ns)

    def usual_steps(self, stall: Stall) -> float:
        """Steps of the engine from one read of its stream to the next. Streams that began together may all be read
        after the same few: then only usage shows that a step seen from the wire is several."""
        seen = stall.baseline_ns / (self._timeline.clear.expect_ns(stall.decoding) or NEVER)
        return max(1.0, seen, self._intervals.of(stall.model))

    def note_final(self, stall: Stall) -> None:
        """A verdict that will not change."""
        answered = stall.evidence.get("server_answered_meanwhile") and stall.evidence.get("ends_at_first_token")
        self.page_answers_in_prefill |= stall.cause == PREFILL and bool(answered)

    def judged_for_good(self, stalls: Sequence[Stall]) -> None:
        """What was learned since speaks, too, where little was known before."""
        if self._engines.several or not stalls[0].evidence.get("price_not_seen_before"):
            return
        cost = self._costs.known_apart(stalls[0].cost, stalls[0].started_ns, stalls[0].ended_ns)
        for stall in stalls:
            stall.cost = cost

    def note_left_out(self, stall: Stall) -> None:
        """Its stream came back to the batch: if it had been preempted, its tokens were computed again just then."""
        if self._is_placed(stall):  # else streams of another engine may have gone on
            again = stall.request.prompt_tokens + stall.request.events
            self._left_out.append((stall.ended_ns, again, stall))

    def case(self, stalls: Sequence[Stall], now_ns: int) -> tuple[Case, tuple[Share, ...]]:
        """The case of stalls that began and ended together, or began together and last."""
        stall = stalls[0]
        start_ns, end_ns = stall.started_ns, stall.ended_ns or now_ns
        before, after = self._pages_around(start_ns, stall.ended_ns or now_ns)
        service = self._in_service(stall)
        known = before is not None and after is not None
        preemptions = _preemptions(before, after)
        caught_up, by_text, withheld = _caught_up(stalls, self._rules)
        asked_for, asked_for_ns = self._evidence.controls.during(start_ns, end_ns)
        # Some engines read prompts apart, and hand on what they made when the clear step after them is over.
        end_spread_ns = self._rules.spread_ns + stall.baseline_ns
        beside_ns = self._rules.beside_a_hole_ns
        case = Case(
            gap=(end_ns - start_ns) / NS,
            excess=stall.excess_ns / NS,
            baseline=stall.baseline_ns / NS,
            streams=len(stalls),
            # In the middle of a silence there was nothing to read: only lag that lasts to its end makes it longer.
            own_lag=self._evidence.own_lag.at_the_end(end_ns, self._rules.spread_ns),
            records_lost=self._evidence.holes.worst(start_ns, end_ns) > 0,
            blocked=min(each.request.blocked_within(each.started_ns, end_ns) for each in stalls) / NS,
            common_silence=stall.common_ns / NS,
            other_steps=stall.ticks,
            usual_steps=self.usual_steps(stall),
            several_engines=not self._is_placed(stall),
            engine_sure=self._engines.sure_of(stall.slot, stall.place, start_ns),
            withheld=withheld,
            caught_up=caught_up,
            by_text=by_text,
            events=stall.events,
            burst_before=stall.burst_before,
            bursts=self._watch.bursts_around(stall, end_ns),
            prefill_tokens=service.tokens,
            prefill_possible=service.possible_s,
            prefill_likely=service.likely_s,
            cost_known=stall.cost.law.known,
            prefill_guessed=service.guessed,
            waiting_possible=self._waiting_possible(stall),
            recomputed_tokens=self._recomputed(stall),
            gauges_known=known,
            preemptions=preemptions or 0.0,
            preemptions_counted=preemptions is not None,
            kv_usage=self._fullest(before, after),
            answered_meanwhile=bool(
                self._evidence.pages.between(start_ns + self._rules.spread_ns, end_ns - self._rules.spread_ns)
            ),
            rules=self._rules,
            prompts_stood_still=self._stood_still(stall, start_ns, end_ns),
            page_silent=self._evidence.pages.silent(start_ns, end_ns, self._rules),
            page_answers_in_prefill=self.page_answers_in_prefill,
            unread_work=self._timeline.unread.during(start_ns, end_ns),
            departed=bool(self._departed(start_ns, end_ns)),
            more_running=self._more_running(start_ns, end_ns),
            doubtful=any(each.doubtful for each in self._evidence.requests.in_flight_over(end_ns)),
            hole_near=self._evidence.holes.worst(start_ns - beside_ns, end_ns + beside_ns) > 0,
            pace_known=self._watch.flows(stall),
            held_against=stall.held_against,
            ends_at_first_token=any(
                -self._rules.spread_ns <= stall.ended_ns - share.request.served_ns <= end_spread_ns
                for share in service.shares
            ),
            asked_for=asked_for if asked_for_ns >= self._rules.most * (end_ns - start_ns) else "",
            asked_for_part=asked_for_ns / max(1, end_ns - start_ns),
        )
        return case, service.shares

    # --- Prompts ---

    def _in_service(self, stall: Stall) -> InService:
        members = self._members(stall)
        found = self._weigh(stall, members)
        if found.possible_s * NS >= stall.excess_ns:
            return found
        quick_ns = round(self._rules.quick * stall.baseline_ns)
        departed = {
            each: each.uncached_tokens
            for each in self._departed(stall.started_ns, stall.ended_ns or NEVER)
            if not self._passed_over(each, self._steps(stall), stall.started_ns, quick_ns)
        }
        if departed and stall.cost.law.known:
            read_on = self._weigh(stall, members | departed)
            if read_on.possible_s * NS >= stall.excess_ns:
                return read_on._replace(guessed=True)
        if not stall.ended_ns or self._timeline.engine.proven:
            return found
        # How the engine fills its steps is not known yet, so any waiting request may have been in them: those that were
        # done then, and the one that was done next. More are hardly begun with at a time.
        until_ns = stall.ended_ns - self._rules.spread_ns
        through = [
            each
            for each in self._in_flight(stall)
            if each.waited_until(until_ns) and not self._is_past_prefill(each, stall)
        ]
        done = [each for each in through if each.served_ns and each.served_ns <= stall.ended_ns + self._rules.spread_ns]
        rest = [each for each in through if each not in done]
        done += [each for each in rest if not each.shows_first]  # that they are done would not show
        rest = [each for each in rest if each.shows_first]
        done += sorted(rest, key=lambda each: each.served_ns or each.over_ns or NEVER)[:1]
        waiting = self._weigh(stall, {each: each.uncached_tokens for each in done})
        if waiting.possible_s * NS < stall.excess_ns:
            return found
        shares = shares_of({each: each.uncached_tokens for each in through})
        return waiting._replace(shares=shares, guessed=True)

    def _waiting_possible(self, stall: Stall) -> float:
        """For how long everything that waited when the gap began can have kept the engine busy, in whatever order it
        was read: with all tokens that are not known to be cached."""
        until_ns = stall.started_ns + round(stall.baseline_ns)
        requests = [each for each in self._in_flight(stall, until_ns) if not self._is_past_prefill(each, stall)]
        if not all(each.text_only for each in requests):
            return math.inf
        possible_s = self._weigh(stall, {each: each.most_uncached_tokens for each in requests}).possible_s
        if all(each.most_uncached_tokens <= self._smallest for each in requests):
            return possible_s
        return (self._rules.generous if stall.cost.law.trusted else self._rules.generous**2) * possible_s

    def _weigh(self, stall: Stall, tokens: dict[Request, int]) -> InService:
        """With the longest time, generously, that these prompts can have kept the engine busy."""
        prompts = [
            PromptWork(
                min(each + request.likely_cached, request.most_uncached_tokens),
                request.most_uncached_tokens,
                request.cached_tokens,
                request.prompt_tokens,
                request.size_known,
            )
            for request, each in tokens.items()
        ]
        bound = self._costs.at_most_ns(prompts, stall.cost, stall.started_ns, stall.ended_ns or None)
        likely_s = bound.likely_ns / NS if bound.likely_ns is not None else None
        return InService(shares_of(tokens), sum(tokens.values()), bound.most_ns / NS, likely_s)

    def _is_past_prefill(self, request: Request, stall: Stall) -> bool:
        """Whether an answer that is not streamed was being written when the stall began: the engine had gone on with
        steps too short for a prompt after it came."""
        if request.shows_first or not stall.baseline_ns:
            return False
        quick_ns = round(self._rules.quick * stall.baseline_ns)
        return self._passed_over(request, self._steps(stall), stall.started_ns, quick_ns)

    def _members(self, stall: Stall) -> dict[Request, int]:
        """Whose prompts were in service, and how many tokens of each."""
        start_ns, end_ns = stall.started_ns, stall.ended_ns
        if end_ns and end_ns <= self._engines.settled_ns and self._is_placed(stall):
            apart = self._engines.several
            facts = self._evidence.of_engine(stall.engine)[1] if apart else self._evidence.facts
            rids = facts.members(start_ns, end_ns)
        else:
            rids = self._guessed(stall)
        found = ((self._evidence.requests.find(rid), tokens) for rid, tokens in rids.items())
        return {request: tokens for request, tokens in found if request is not None and tokens > 0}

    def _guessed(self, stall: Stall) -> dict[int, int]:
        """While the timeline is not final: the waiting requests that may be in service."""
        end_ns = stall.ended_ns
        budget = self._timeline.engine.budget or 1 << 40
        if not end_ns:
            rids = [rid for rid, _ in self._timeline_of(stall).in_service_now()]
            waiting = [self._evidence.requests.awaiting.get(rid) for rid in rids if isinstance(rid, int)]
            requests = [request for request in waiting if request is not None]
        elif not self._is_placed(stall) or self._any_prompt(stall):
            requests = [each for each in self._in_flight(stall) if not self._is_past_prefill(each, stall)]
        else:
            requests = []
        return {request.rid: max(1, min(request.uncached_tokens, budget)) for request in requests}

    def _any_prompt(self, stall: Stall) -> bool:
        """Whether the engine had a prompt during the stall, as far as is known by now."""
        span = np.array([stall.started_ns]), np.array([stall.ended_ns])
        return bool(self._timeline_of(stall).in_service(*span).tokens[0])

    def _in_flight(self, stall: Stall, at_ns: int = 0) -> list[Request]:
        """Requests without a first token when it began, or at a moment; none that proved to be on another engine."""
        then = self._evidence.requests.in_flight_over(at_ns or stall.started_ns)
        if not self._engines.several or not self._is_placed(stall):
            return then
        return [each for each in then if each.place is None or each.place.engine in (NOWHERE, stall.engine)]

    def _stood_still(self, stall: Stall, start_ns: int, end_ns: int) -> bool:
        """Whether a prompt that takes far less than the gap got no first token in it."""
        gap_ns = end_ns - start_ns
        stood_still = False
        for request in self._in_flight(stall):
            if self._engines.several and request.place is None:
                continue  # it may wait for another engine
            if not request.shows_first or not request.waited_until(end_ns - self._rules.spread_ns):
                continue  # an answer that is not streamed does not show how far it is
            if request.most_uncached_tokens > self._smallest or not request.size_known:
                return False  # it may have been read, and all others have waited for that
            if stall.cost.law.known:
                tokens = request.most_uncached_tokens
                most_ns = stall.cost.law.most_ns(tokens, request.cached_tokens, request.prompt_tokens)
                stood_still |= self._costs.slack * most_ns < gap_ns / 2
            else:
                stood_still = True
        return stood_still

    def _departed(self, start_ns: int, end_ns: int) -> list[Request]:
        """Prompts whose clients left, and which may still have been read: many servers go on with them."""
        found = []
        for request in self._evidence.requests.left_since(start_ns - self._rules.departed_ns, end_ns):
            if not request.abandoned or request.sent_ns > start_ns:
                continue
            may_take_ns = self._costs.slack * self._costs.expected_ns(request.uncached_tokens)
            unlearned = not self._costs.known.law.known and request.uncached_tokens > self._smallest
            if unlearned or start_ns - request.over_ns <= may_take_ns:
                found.append(request)
        return found

    def _passed_over(self, request: Request, steps: StepLog, until_ns: int, quick_ns: int) -> bool:
        """Whether the engine went on with steps too short for a prompt after it had come: it was not being read."""
        return steps.went_on(request.sent_ns + self._on_its_way_ns, until_ns, quick_ns)

    def _more_running(self, start_ns: int, end_ns: int) -> bool:
        """Whether the server had requests that did not come through us."""
        near_ns = self._rules.ours_ns
        pages = self._evidence.pages.between(start_ns - near_ns, end_ns + near_ns)
        return any(
            each.running is not None and each.ours_at_most is not None and each.running > each.ours_at_most
            for each in pages
        )

    def _recomputed(self, stall: Stall) -> int:
        """Tokens of preempted streams that were computed again when they came back, with the end of this stall."""
        back = [
            (tokens, other)
            for ended_ns, tokens, other in self._left_out
            if other is not stall and other.engine == stall.engine and self._leads_to(stall, ended_ns, tokens)
        ]
        if not back:
            return 0
        pages = self._pages_around(min(other.started_ns for _, other in back), stall.ended_ns)
        if _preemptions(*pages) == 0.0:
            return 0  # upstream counts its preemptions, and there was none since before these streams fell silent
        return sum(tokens for tokens, _ in back)

    def _leads_to(self, stall: Stall, back_ns: int, tokens: int) -> bool:
        """Whether a stream came back to the batch with the end of this stall, or with one of the long steps right after
        it: a context may take several to be computed again."""
        ahead_ns = back_ns - stall.ended_ns
        if abs(ahead_ns) <= self._rules.back_together_ns:
            return True
        if not 0 < ahead_ns <= self._costs.slack * stall.cost.law.expect_ns(tokens):
            return False
        return not self._steps(stall).went_on(
            stall.ended_ns + self._rules.spread_ns, back_ns, round(self._rules.quick * stall.baseline_ns)
        )

    # --- Its engine, of several ---

    def _is_placed(self, stall: Stall) -> bool:
        """Whether it can be judged by one engine alone."""
        return self._engines.is_placed(stall.slot, stall.place, stall.started_ns)

    def _steps(self, stall: Stall) -> StepLog:
        if self._engines.several and self._is_placed(stall):
            return self._evidence.of_engine(stall.engine)[0]
        return self._evidence.steps

    def _timeline_of(self, stall: Stall) -> PrefillTimeline:
        return self._engines.timeline_of(stall.place)

    # --- Pages of upstream's metrics ---

    def _pages_around(self, start_ns: int, end_ns: int) -> tuple[EnginePage | None, EnginePage | None]:
        pages = self._evidence.pages
        before, after = pages.last_before(start_ns), pages.first_after(end_ns) or pages.newest
        if before is not None and before.at_ns < start_ns - self._rules.stale_page_ns:
            before = None
        if after is not None and not start_ns < after.at_ns < end_ns + self._rules.stale_page_ns:
            after = None
        return before, after

    def _fullest(self, before: EnginePage | None, after: EnginePage | None) -> float | None:
        if before is None or after is None:
            return None
        pages = self._evidence.pages.between(before.at_ns, after.at_ns)
        return max((page.kv_usage for page in pages if page.kv_usage is not None), default=None)


def _preemptions(before: EnginePage | None, after: EnginePage | None) -> float | None:
    """How many there were between the two pages; None where they do not report it."""
    if before is None or after is None or before.preemptions is None or after.preemptions is None:
        return None
    return max(0.0, after.preemptions - before.preemptions)


def _caught_up(stalls: Sequence[Stall], rules: VerdictRules) -> tuple[float, float, float]:
    """Tokens that came in a bunch at the end of a stall, by events and by text, and those that had been due; means
    over the streams, since one long word proves nothing."""
    over = [stall for stall in stalls if stall.ended_ns and stall.baseline_ns]
    if not over:
        return max((stall.events - 1.0 for stall in stalls if stall.ended_ns), default=0.0), 0.0, 0.0
    events = sum(_by_events(stall, rules) for stall in over) / len(over)
    text = sum(_by_text(stall, rules) for stall in over) / len(over)
    withheld = sum((stall.ended_ns - stall.started_ns) / stall.baseline_ns - 1 for stall in over) / len(over)
    return events, text, withheld


def _by_events(stall: Stall, rules: VerdictRules) -> float:
    window_ns = _aftermath_ns(stall, rules)
    after = sum(read.events for read in stall.after if read.time_ns <= stall.ended_ns + window_ns)
    return stall.tokens - 1 + max(0.0, after - window_ns / stall.baseline_ns)


def _by_text(stall: Stall, rules: VerdictRules) -> float:
    until_ns = stall.ended_ns + _aftermath_ns(stall, rules)
    return stall.held_back + sum(read.held_back for read in stall.after if read.time_ns <= until_ns)


def _aftermath_ns(stall: Stall, rules: VerdictRules) -> int:
    third_ns = (stall.ended_ns - stall.started_ns) // 3
    return min(max(third_ns, rules.least_aftermath_ns), rules.most_aftermath_ns)
