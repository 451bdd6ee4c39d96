"""Follows stalls from the first silence to the final verdict, and keeps them in incidents.

A stall is judged three times: while it lasts, from all work that was waiting; when it ended, the same way; and for
good when the prefill timeline is settled there, a page of upstream's metrics from after it has come, and it has shown
whether its tokens had only been held back. Nothing waits for that longer than half a minute.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from prefillwatch.analysis.arrays import BoolArray, IntArray
from prefillwatch.analysis.cost import Costs
from prefillwatch.analysis.delays import Stall
from prefillwatch.analysis.engines import Engines
from prefillwatch.analysis.facts import Sink
from prefillwatch.analysis.requests import LOST, PromptBuckets, Request
from prefillwatch.analysis.settings import WaitRule
from prefillwatch.analysis.steps import Step, StepFacts
from prefillwatch.analysis.tokens import Gaps, StreamIntervals
from prefillwatch.analysis.tuning import DEFAULT, Tuning
from prefillwatch.analysis.verdicts.case import CaseBuilder
from prefillwatch.analysis.verdicts.evidence import EnginePage, EvidenceLog
from prefillwatch.analysis.verdicts.incidents import IncidentBook
from prefillwatch.analysis.verdicts.stalls import StallWatch, held_by_client
from prefillwatch.analysis.verdicts.verdict import weigh
from prefillwatch.analysis.verdicts.waits import WaitWatch
from prefillwatch.contract.causes import PREFILL
from prefillwatch.units import NS
from prefillwatch.wire.controls import ended_by, reason_of

#: Of more stalls than this that are judged together, one is measured for all.
_CROWD: Final = 64
#: Outcomes of a request that the server did as it was asked.
_DONE: Final = frozenset({"ok", "client_closed"})
#: Outcomes of an answer that upstream broke off: the silence before was real.
_BROKEN: Final = frozenset({"error_in_stream", "upstream_truncated"})


class StallTracker:
    """Owns what was seen around stalls and waits, and follows each until its verdict is final."""

    def __init__(
        self,
        watch: StallWatch,
        engines: Engines,
        buckets: PromptBuckets,
        sink: Sink,
        wait_rule: WaitRule,
        costs: Costs,
        tuning: Tuning = DEFAULT,
    ) -> None:
        self.watch = watch
        self.evidence = EvidenceLog()
        self.incidents = IncidentBook(tuning.incidents)
        self._engines = engines
        self._buckets = buckets
        self._sink = sink
        self._costs = costs
        self._rules = tuning.verdicts
        self._late_ns = tuning.gaps.late_ns
        self._intervals = StreamIntervals(tuning.gaps)
        self._cases = CaseBuilder(watch, engines, self.evidence, costs, self._intervals, buckets.edges[0], tuning)
        self._waits = WaitWatch(wait_rule, self.evidence, self.incidents, costs, buckets.edges[0], tuning)
        #: Hears of each stall whose cause is final.
        self.heard: Callable[[Stall], None] | None = None
        self._ended: list[Stall] = []  # not measured yet
        self._pending: list[Stall] = []

    # --- What was seen ---

    def sent(self, request: Request) -> None:
        """A prompt was handed to upstream."""
        self.evidence.requests.sent(request)

    def steps(self, engine: int, steps: list[Step]) -> None:
        """Steps of an engine seen from the wire."""
        self.evidence.steps.add(steps)
        if self._engines.several:
            self.evidence.of_engine(engine)[0].add(steps)

    def page(self, page: EnginePage) -> None:
        """Upstream's metrics were read."""
        self.evidence.pages.add(page)

    def hole(self, now_ns: int) -> None:
        """Records of a relay were lost: any of its streams may have been read."""
        self.evidence.holes.add(now_ns, now_ns, 1.0)

    def lagged(self, start_ns: int, end_ns: int) -> None:
        """A relay did not run between these moments."""
        self.evidence.own_lag.add(start_ns, end_ns, (end_ns - start_ns) / NS)

    def lagged_at(self, times_ns: IntArray) -> BoolArray:
        """For each moment whether a relay did not run then, so that what was read is late by our own fault."""
        return self.evidence.own_lag.touching(times_ns, self._late_ns)

    def control_sent(self, request: Request, time_ns: int) -> None:
        """Somebody asks, through us, for something that stops the engine or lets it go on."""
        control = request.control
        self.evidence.controls.sent(control, reason_of(control), ended_by(control), time_ns)

    def control_over(self, request: Request, time_ns: int, outcome: str) -> None:
        self.evidence.controls.answered(request.control, time_ns, done=outcome in _DONE)

    def request(self, rid: int) -> Request | None:
        """One of the last minutes."""
        return self.evidence.requests.find(rid)

    def facts(self, engine: int, facts: list[StepFacts]) -> None:
        """Steps of an engine that became final."""
        self.evidence.facts.add(facts)
        if self._engines.several:
            self.evidence.of_engine(engine)[1].add(facts)

    def gaps(self, gaps: Gaps) -> None:
        """Gaps that ended."""
        found, none = self.watch.ended(gaps, self._engines.pace_ns)
        for stall in none:
            self.incidents.drop(stall)
        if found:
            self._take(found)

    def _take(self, stalls: list[Stall]) -> None:
        self._note_surroundings(stalls)
        self._ended += stalls

    def _note_surroundings(self, stalls: list[Stall]) -> None:
        """What is learned about cost by now is not learned from these stalls yet; and how many streams there were."""
        cost = self._costs.known
        joined: dict[int, int] = {}  # by the moment since, as stalls that began together share it
        for stall in stalls:
            stall.cost = cost
            stall.place = stall.place or self._engines.place_of(stall.slot)
            if not stall.decoding:
                moment = stall.started_ns // self._rules.judged_together_ns
                if moment not in joined:
                    joined[moment] = sum(1 for _ in self.evidence.requests.served_since(stall.started_ns))
                stall.decoding = max(1, self._engines.decoding - joined[moment])

    def first_token(self, request: Request, time_ns: int) -> None:
        self.evidence.requests.first_token(request)
        self._waits.over(request, time_ns)

    def forget_model(self, model: int) -> None:
        """Its number goes to another model."""
        self._intervals.forget_model(model)

    def left(self, request: Request, time_ns: int, outcome: str) -> None:
        """A stream is over. A silence that its client ended is no stall; one that upstream ended is."""
        if request.generated:
            self._intervals.answered(request.model, request.generated, request.events, max(1, len(request.slots)))
        if not request.first_ns:
            request.abandoned = outcome == "client_closed"
            self.evidence.requests.over(request, time_ns)
            if outcome == LOST:
                self._waits.drop(request)
            else:
                self._waits.over(request, time_ns)
        for slot in request.slots.values():
            stall = self.watch.leave(slot)
            if stall is None:
                continue
            if outcome in _BROKEN:
                stall.ended_ns = time_ns
                self._take([stall])
            else:
                self.incidents.drop(stall)

    def interrupted(self, slot: int) -> None:
        """Reads of a stream were lost: a stall that lasts may have ended."""
        stall = self.watch.interrupt(slot)
        if stall is not None:
            self.incidents.drop(stall)

    def advance(self, now_ns: int) -> None:
        self._look_at_open(now_ns)
        self._measure_ended(now_ns)
        self._finish_ripe(now_ns)
        self._waits.advance(now_ns)
        for incident in self.incidents.close(now_ns):
            self._sink.incident(incident)

    def _look_at_open(self, now_ns: int) -> None:
        stalls = self.watch.lasting(now_ns, self._engines.pace_ns)
        if not stalls:
            return
        self._note_surroundings(stalls)
        for group in _together(stalls, self._rules.judged_together_ns):
            self._cases.measure(group[0], now_ns)
            for stall in group:
                stall.common_ns, stall.ticks = group[0].common_ns, group[0].ticks
            self._judge(group, now_ns)
            for stall in group:
                self.incidents.hold(stall, now_ns)

    def _measure_ended(self, now_ns: int) -> None:
        """First verdict on what ended, as soon as all engine steps in it are known."""
        closed_ns = max(self._engines.closed_ns, now_ns - NS // 4 - 1)
        ready = [stall for stall in self._ended if stall.ended_ns <= closed_ns]
        if not ready:
            return
        measured = set(ready)
        self._ended = [stall for stall in self._ended if stall not in measured]
        groups = _together(ready, self._rules.judged_together_ns)
        for stall in itertools.chain.from_iterable(map(self._measured, groups)):
            silent_ns = self._rules.most * (stall.ended_ns - stall.started_ns)
            if stall.ticks > self._cases.usual_steps(stall) and stall.common_ns < silent_ns:
                self._cases.note_left_out(stall)
        for group in groups:
            self._judge(group, now_ns)
            for stall in group:
                self.incidents.hold(stall, now_ns)
        self._pending += ready

    def _measured(self, group: list[Stall]) -> list[Stall]:
        """Each stall of its own, but of a crowd only one: hundreds that stall together saw the same steps."""
        alone = group if len(group) <= _CROWD else group[:1]
        for stall in alone:
            self._cases.measure(stall, stall.ended_ns)
        for stall in group[len(alone) :]:
            stall.common_ns, stall.ticks = group[0].common_ns, group[0].ticks
        return group

    def _finish_ripe(self, now_ns: int) -> None:
        known_ns = max(self._engines.settled_ns, now_ns - self._rules.patience_ns - 1)
        ripe_ns = min(known_ns, now_ns - self._rules.ripe_ns)
        until_ns = max((each.ended_ns for each in self._pending if each.ended_ns <= ripe_ns), default=0)
        if not until_ns:
            return
        until_ns += self._rules.judged_together_ns  # those that ended with it, only a little later
        ripe = [stall for stall in self._pending if stall.ended_ns <= until_ns]
        self._pending = [stall for stall in self._pending if stall.ended_ns > until_ns]
        for group in _together(ripe, self._rules.judged_together_ns):
            if self._engines.several:
                self._measured(group)  # their engine may be known better by now
            self._cases.judged_for_good(group)
            self._judge(group, now_ns)
            if self._may_learn_more(group, now_ns):
                self._pending += group
                continue
            for stall in group:
                self.incidents.settle(stall, now_ns)
                self._write(stall)
            self._cases.note_final(group[0])

    def _may_learn_more(self, group: Sequence[Stall], now_ns: int) -> bool:
        """Whether a prompt is suspected, but no other like it was seen yet: the next ones show what it should take."""
        unsure = any(each.evidence.get("price_not_seen_before") for each in group)
        return unsure and now_ns < group[0].ended_ns + self._rules.price_patience_ns

    def _judge(self, group: Sequence[Stall], now_ns: int) -> None:
        """One verdict for stalls that began and ended together, but for those whose clients held them up."""
        own = [each for each in group if self._is_held(each, now_ns)]
        held = set(own)
        rest = [each for each in group if each not in held] if held else group
        for members in (own, rest):
            if members:
                case, shares = self._cases.case(members, now_ns)
                cause, strength = weigh(case)
                evidence = case.evidence() | {"strength": strength}
                for stall in members:
                    stall.cause, stall.evidence = cause, evidence
                    stall.shares = shares if cause == PREFILL else ()

    def _is_held(self, stall: Stall, now_ns: int) -> bool:
        return held_by_client(stall.request, stall.started_ns, stall.ended_ns or now_ns, self._rules.most)

    def _write(self, stall: Stall) -> None:
        seconds = stall.excess_ns / NS
        self._sink.stall(stall)
        if self.heard is not None:
            self.heard(stall)
        blamed: dict[int, float] = {}
        for share in stall.shares:
            bucket = self._buckets.bucket(share.request.prompt_tokens)
            blamed[bucket] = blamed.get(bucket, 0.0) + share.part * seconds
        for bucket, part in blamed.items():
            self._sink.blame(stall.model, bucket, part)


def _together(stalls: Iterable[Stall], within_ns: int) -> list[list[Stall]]:
    """Groups whose silence began and ended at the same time, on one engine."""
    groups: list[list[Stall]] = []
    for stall in sorted(stalls, key=lambda each: (each.ended_ns, each.started_ns)):
        for group in reversed(groups[-8:]):
            first = group[0]
            if (
                abs(first.ended_ns - stall.ended_ns) <= within_ns
                and abs(first.started_ns - stall.started_ns) <= within_ns
                and first.engine == stall.engine
            ):
                group.append(stall)
                break
        else:
            groups.append([stall])
    return groups
