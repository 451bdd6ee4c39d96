"""The prefill timeline: which request's prompt was in which engine step, worked out from outside.

Known are the steps (see heartbeat.py), when each request was sent, how long its prompt is, and when its first token
came. The engine serves prompts in order under a token budget per step. So every first token names the step in which a
prompt was completed, and packing leads back from there to the step in which the engine began with it.

An answer comes in two stages. While a prompt waits, it is guessed from all the work that was waiting: enough to say
*that* a prompt was in service. Whose it was shows when first tokens arrive; then the steps become final, in order of
time. A run of long steps is final when a clear step ends it, since the engine goes on with a prompt in every step until
it is done: a prompt without a first token by then was not in service. Within a run, a step is final when finished
prompts fill it.

Example, in milliseconds. Six streams decode in clear steps of 20; the budget is known to be 2,048, and a token to cost
0.14. A document of 6,000 tokens is sent at 5. Steps end at 20, 326, 632, 920 and 940, and its first token comes at 921.

=======  ====================  ==========================================  ====================  ==================
at       `_queue`              `_steps` (open)                             `_run` (busy time)    final
=======  ====================  ==========================================  ====================  ==================
5        waiting: document     (all before are final)
326      waiting: document     20-326 long, guess: document 2,042
632      waiting: document     and 326-632 long, guess: document 2,042
921      firsts: document      and 632-920 long, guess: document 1,916
~1,000   (empty)               the three, 632-920 finished the document    the three             (clear: up to 20)
~1,020   (empty)               and 920-940 clear                           (learned from, gone)  document 2,042,
                                                                                                 2,042, 1,916
=======  ====================  ==========================================  ====================  ==================

Until about 1,000, all that is said of the gaps is that 6,000 tokens are in service: from `_guess`. Then it is certain
that no other step can have made the first token (`_scan`), the document is packed back from 920 (`_place`), and with
the clear step the run is over (`_end_run`), so that its steps cannot change any more (`_finalise`).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from prefillwatch.analysis.arrays import IntArray
from prefillwatch.analysis.cost import ClearStep, StepLaw
from prefillwatch.analysis.steps.budget import Learner
from prefillwatch.analysis.steps.engine_reported import shares_of_totals
from prefillwatch.analysis.steps.history import Columns, Overlap, StepHistory, joined, largest_during
from prefillwatch.analysis.steps.open_steps import OpenSteps
from prefillwatch.analysis.steps.packing import UNLIMITED, Engine, OpenStep, Packing, Prompt
from prefillwatch.analysis.steps.queue import OLDEST, PromptQueue, by_arrival
from prefillwatch.analysis.steps.unread_work import UnreadWork
from prefillwatch.analysis.tokens import StepFlow
from prefillwatch.analysis.tuning import DEFAULT, Tuning

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator

    from prefillwatch.analysis.steps.heartbeat import Step

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StepFacts:
    """A final step. Times in monotonic nanoseconds."""

    start_ns: int
    end_ns: int
    decoders: int
    #: Uncached prompt tokens in it.
    prefill_tokens: int
    #: Requests whose prompts were in it, and how many tokens of each.
    members: tuple[tuple[Hashable, int], ...]
    #: False: no stream was decoding, so its start and whether it was one step are inferred.
    observed: bool
    #: What it would have taken without a prompt.
    clear_ns: int = 0
    #: Size of the largest prompt in it.
    largest: int = 0

    @property
    def excess_ns(self) -> int:
        """Time beyond a clear step."""
        return max(0, self.end_ns - self.start_ns - self.clear_ns)


@dataclass(frozen=True, slots=True)
class Split:
    """Time to first token of a request in two parts, from when it was sent: in the queue, and its prompt being read."""

    rid: Hashable
    queue_ns: int
    prefill_ns: int


class PrefillTimeline:
    """Feed it what the wire shows, call `settle`, drain what became final.

    Events must be given in order of time as far as that matters: everything before ``now_ns`` before
    `settle(now_ns)`. Give ``clear``, what a clear step takes, to the `Heartbeat`. Steps older than
    `TimelineRules.horizon_ns` become final by guess, and so do all but the last ``most_steps``. One for an engine
    ``beside`` another, behind the same door, shares with that what is learned, and any prompt that waits may be in it.
    """

    def __init__(self, tuning: Tuning = DEFAULT, beside: PrefillTimeline | None = None) -> None:
        self.clear: ClearStep = ClearStep(tuning.clear_steps) if beside is None else beside.clear
        self.settled_ns = 0
        """Everything that ended before this moment is final."""
        self._tuning = tuning
        self._rules = tuning.timeline
        self._first_tokens = tuning.first_tokens
        self._closed_after_ns = tuning.clock.widest_spread_ns + tuning.first_tokens.after_first_read_ns
        """By so much later every step around a first token has been closed by the heartbeat."""
        self._queue: PromptQueue = PromptQueue() if beside is None else beside._queue.without_a_first_token()
        self._steps = OpenSteps(self.clear, tuning)
        self.unread: UnreadWork = UnreadWork() if beside is None else beside.unread
        self._flow = StepFlow(tuning.flow)
        self._flow_rules = tuning.flow
        self._slow_since_ns = 0  # since when no step was about as long as a clear one; 0: the last one was
        self._learner: Learner = Learner(tuning) if beside is None else beside._learner
        self._packed = Packing(self._learner.engine, tuning)
        self._run: list[OpenStep] = []
        """The busy time: steps since the last clear one, all of whose first tokens are known."""
        self._run_finished: list[tuple[Prompt, OpenStep]] = []
        """The prompts that it finished, each with its step."""
        self._unlearned: list[tuple[Prompt, OpenStep]] = []
        """Those of them that wait to be placed until the busy time has been learned from."""
        self._closed_ns = 0
        """No prompt that comes to be known later can have been in a step that ended by then."""
        self._passed_over_ns = 0
        """Prompts sent by then were passed over by a clear step: the engine did not have them yet, or has a queue."""
        self._reported_until_ns: int | None = None
        self._final: deque[StepFacts] = deque(maxlen=self._rules.most_steps)
        self._splits: deque[Split] = deque(maxlen=self._rules.most_steps)
        self._history = StepHistory()

    # What the wire shows.

    def sent(self, rid: Hashable, t_ns: int, tokens: int, uncached: int | None = None, streamed: bool = True) -> None:
        """A prompt went upstream, of so many tokens as far as known. Only ``streamed`` answers show a first token."""
        uncached = tokens if uncached is None else uncached
        self._queue.enter(Prompt(rid, t_ns, max(1, tokens), max(1, uncached), streamed))

    def sent_several(self, rid: int, t_ns: int, prompts: int, tokens: int, uncached: int) -> None:
        """A list of prompts went upstream, with so many tokens together. The first token of any shows where one of them
        was read; the others are found in what long steps have left, under the negative number."""
        self.sent(rid, t_ns, tokens // prompts, uncached // prompts)
        self.sent(-rid, t_ns, tokens - tokens // prompts, uncached - uncached // prompts, streamed=False)

    def sized_several(self, rid: int, prompts: int, tokens: int, uncached: int, *, sure: bool = True) -> None:
        """The size of a list of prompts became known better."""
        self.sized(rid, tokens // prompts, uncached // prompts, sure=sure)
        self.sized(-rid, tokens - tokens // prompts, uncached - uncached // prompts, sure=sure)

    def sized(self, rid: Hashable, tokens: int, uncached: int | None = None, *, sure: bool = True) -> None:
        """The size of a prompt became known better, often late; ``sure``: it is the true one, from usage."""
        prompt = self._queue[rid]
        if prompt is not None:
            prompt.tokens = max(1, tokens)
            prompt.uncached = max(1, tokens if uncached is None else uncached)
            prompt.sure = prompt.sure or sure
            self._learner.resized(prompt)

    def streams(self, rid: Hashable) -> None:
        """The answer to a prompt shows its first token, other than was thought when it went upstream."""
        prompt = self._queue[rid]
        if prompt is not None:
            prompt.streamed = True

    def shows(self, rid: Hashable) -> None:
        """The first token of a prompt will be known after all, other than was thought when it went upstream."""
        self._queue.show(rid)

    def first_token(self, rid: Hashable, t_ns: int) -> None:
        """The first token of a request was read."""
        prompt = self._queue[rid]
        if prompt is not None and t_ns - self._steps.last_end_ns > self._rules.idle_ns:
            self._flow.woke(t_ns, t_ns - prompt.sent_ns)
        self._queue.first_token(rid, t_ns)

    def gone(self, rid: Hashable, t_ns: int, *, reads_on: bool = False) -> None:
        """A request ended without a first token: its client left, it failed, or its answer was not streamed.
        ``reads_on``: the engine reads its prompt to the end all the same."""
        if reads_on:
            self._queue.leave_unnoticed(rid, t_ns)
        else:
            self._queue.leave(rid, t_ns)

    def elsewhere(self, rid: Hashable) -> None:
        """A prompt that waited turns out to have been with another engine."""
        prompt = self._queue.drop(rid)
        if prompt is not None:
            for step in self._steps.all:
                step.guesses = [each for each in step.guesses if each[0] is not prompt]

    def nobody_reads_on(self, t_ns: int) -> None:
        """The engine had nothing to do at this moment but what we know of."""
        self._queue.end_all_that_left(t_ns)

    def steps(self, steps: Iterable[Step]) -> None:
        """Steps that closed, from the heartbeat."""
        for step in steps:
            carries = self._may_carry_a_prompt(step)
            if self._teaches(step, carries=carries):
                self.clear.observe(step.duration_ns, step.streams, waiting=carries)
            reported_ns = self._reported_until_ns
            if reported_ns is not None and step.end_ns < reported_ns + self._first_tokens.reports_stop_ns:
                continue
            self._reported_until_ns = None
            self._append(self._steps.make(step.start_ns, step.end_ns, step.streams))

    def hole(self, t_ns: int) -> None:
        """Reads were lost. What was served until now stays as it is; prompts that wait get no split."""
        for prompt in self._queue.unplaced.values():
            prompt.blind = True
        self._finish_all()
        self._steps.last_end_ns = max(self._steps.last_end_ns, t_ns)

    # What the engine itself reports, where it does.

    def engine_step(self, start_ns: int, end_ns: int, decoders: int, members: Iterable[tuple[Hashable, int]]) -> None:
        """A step with all prompts in it. It replaces the steps of the heartbeat."""
        self._reported_until_ns = end_ns
        for prompt in self._steps.take_back(start_ns):
            self._queue.find_step_of(prompt)
        step = self._steps.make(start_ns, end_ns, decoders)
        step.reported = True
        for rid, tokens in members:
            prompt = self._queue[rid] or Prompt(rid, start_ns, tokens, tokens)
            if prompt.engine_start_ns is None:
                prompt.engine_start_ns = start_ns
            step.put(prompt, tokens, prompt.cached + prompt.reported, self.engine.cost)
            prompt.reported += tokens
        self._append(step)

    def engine_totals(self, start_ns: int, end_ns: int, decoders: int, tokens: int, requests: int) -> None:
        """A step of which the engine reports only how many prompt tokens of how many requests were in it.

        In order of time, and before `settle` is called for `FirstTokens.reported_late_ns` after its end.
        """
        queue = self._queue
        prompts = [*queue.unplaced.values(), *queue.left, *queue.silent]
        members = shares_of_totals(start_ns, end_ns, tokens, requests, prompts, self._first_tokens)
        self.engine_step(start_ns, end_ns, decoders, members)

    def engine_prefill(self, rid: Hashable, prefill_ns: int) -> None:
        """The engine's own prefill time of a request overrules ours; its queue time is still what remains of TTFT."""
        prompt = self._queue[rid]
        if prompt is not None:
            prompt.engine_prefill_ns = prefill_ns

    # Answers.

    @property
    def engine(self) -> Engine:
        """Step budget and cost per uncached prompt token, as learned so far."""
        return self._learner.engine

    @property
    def _packing(self) -> Packing:
        """How this engine fills its steps, as learned so far."""
        engine = self._learner.engine
        if engine is not self._packed.engine:
            self._packed = Packing(engine, self._tuning)
        return self._packed

    def recall(self, engine: Engine) -> None:
        """What another learned about this engine counts until enough was seen here."""
        self._learner.recall(engine)

    def law_apart(self, start_ns: int, end_ns: int) -> tuple[StepLaw, int]:
        """What prompts cost by all that is known by now but what happened between these moments, and the largest prompt
        that this is known of."""
        return self._learner.law_apart(start_ns, end_ns)

    def in_service_now(self) -> list[tuple[Hashable, int]]:
        """Requests whose prompts are probably in the step that is running now, and the sizes of those prompts."""
        room = self.engine.budget or UNLIMITED
        return [(prompt.rid, prompt.tokens) for prompt, _ in self._guess(self._steps.last_end_ns, room)]

    def unread_prompts(self) -> Iterator[tuple[Hashable, int]]:
        """Of the requests that wait longest for their first tokens: uncached prompt tokens that no step is thought to
        have had by now."""
        for prompt in islice(self._queue.waiting.values(), OLDEST):
            yield prompt.rid, max(1, prompt.uncached - max(prompt.guessed, prompt.reported))

    def in_service(self, starts_ns: IntArray, ends_ns: IntArray) -> Overlap:
        """The largest prompt in service during each gap."""
        starts_ns, ends_ns = np.asarray(starts_ns, np.int64), np.asarray(ends_ns, np.int64)
        columns = self._history.columns()
        provisional = ends_ns > self.settled_ns
        if provisional.any():
            columns = joined(columns, self._undecided())
        return Overlap(largest_during(starts_ns, ends_ns, columns), provisional)

    def drain_final(self) -> list[StepFacts]:
        """Steps that became final since the last call, in order of time."""
        return _drained(self._final)

    def drain_splits(self) -> list[Split]:
        """Splits of TTFT that became final since the last call."""
        return _drained(self._splits)

    # Settling.

    def settle(self, now_ns: int) -> None:
        """Work out what is known by now. Everything that happened before ``now_ns`` must have been fed."""
        if self._reported_until_ns is not None:
            now_ns -= self._first_tokens.reported_late_ns
        firsts = self._queue.take_firsts(now_ns - self._closed_after_ns)
        fresh_ns = self._queue.oldest_fresh_ns(self._passed_over_ns) if firsts else None
        for prompt in firsts:
            since_ns = prompt.sent_ns if fresh_ns is None else min(fresh_ns, prompt.sent_ns)
            self._steps.note_finished(prompt, self._packing, since_ns)
        self._scan(now_ns - self._closed_after_ns - self._first_tokens.after_first_read_ns)
        self._finalise(now_ns)
        self._queue.forget(now_ns - self._rules.horizon_ns, self._rules.most_steps)
        self._history.forget(now_ns - self._rules.horizon_ns, self._rules.most_steps)
        self.unread.forget(now_ns - self._rules.horizon_ns)

    def _may_carry_a_prompt(self, step: Step) -> bool:
        """Prompts passed over by a clear step before count as absent as long as steps stay clear."""
        if self.unread.during(step.start_ns, step.end_ns):
            return True
        if not self._queue.none_waited(step.start_ns, step.end_ns, self._passed_over_ns):
            return True
        long_ns = self.clear.long_ns(step.streams)
        return step.duration_ns > long_ns > 0 and not self._queue.none_waited(step.start_ns, step.end_ns, 0)

    def _teaches(self, step: Step, *, carries: bool) -> bool:
        """Whether a step may show what a clear one takes. What is several times as long is a delay, until nobody has
        caused it for a while: then it is what steps take now."""
        if not self._flow.teaches(step.start_ns, step.end_ns, carries=carries):
            return False
        known_ns = self.clear.known_ns(step.streams)
        if step.duration_ns < self._flow_rules.long_ns or not 0 < self._flow_rules.jump * known_ns < step.duration_ns:
            self._slow_since_ns = 0
            return True
        self._slow_since_ns = self._slow_since_ns or step.start_ns
        return step.end_ns - self._slow_since_ns >= self._flow_rules.plateau_ns

    def _append(self, step: OpenStep) -> None:
        if step.long and not step.reported:
            step.guesses = self._guess(step.start_ns, self._packing.room(step))
            for prompt, tokens in step.guesses:
                prompt.guessed += tokens
        self._steps.append(step)

    def _guess(self, start_ns: int, room: int) -> list[tuple[Prompt, int]]:
        """Which prompts may be in a step that begins now: by arrival, unless a clear step has passed them over.

        Where there are none, those passed over that need more than one step: the engine may have begun with one now,
        and first tokens of others will show at once if it did not.
        """
        guesses: list[tuple[Prompt, int]] = []
        fresh = self._queue.fresh(self._passed_over_ns, start_ns)
        for prompt in fresh or self._queue.large(room, start_ns):
            if room <= 0:
                break
            if prompt.first_ns is not None and prompt.first_ns <= start_ns + self._first_tokens.after_first_read_ns:
                continue  # done by the step before
            tokens = min(room, max(1, prompt.uncached - prompt.guessed))
            guesses.append((prompt, tokens))
            room -= tokens
        return guesses

    def _scan(self, until_ns: int) -> None:
        """Place the prompts that each step finished, and notice where clear steps end a run."""
        while step := self._steps.next_until(until_ns):
            self._steps.scanned += 1
            self._take_finished(step)
            if step.is_clear:
                self._end_run()
                self._passed_over_ns = max(self._passed_over_ns, step.start_ns - self._first_tokens.on_its_way_ns)
            else:
                enough = self._rules.long_busy_time if self.engine.proven else self._rules.first_look
                if len(self._run) > enough and self._run_finished:
                    self._learn()
        all_scanned = self._steps.scanned == len(self._steps)
        if self._run and all_scanned and self._queue.all_served(self._steps.last_end_ns):
            self._end_run()

    def _take_finished(self, step: OpenStep) -> None:
        """The prompts that a step finished are known: place them, or learn first."""
        finished = [(prompt, step) for prompt in sorted(step.finished, key=by_arrival)]
        step.finished = []
        if not step.reported:
            self._run.append(step)
            self._run_finished += finished
            self._run_finished += [(each, step) for each in self._queue.left if step.covers(each.over_ns)]
        if self.engine.proven or step.reported:
            self._place_all(finished, self._packing)
            self._place_left(step.end_ns, self._packing)
        else:
            self._unlearned += finished

    def _place_all(self, finished: list[tuple[Prompt, OpenStep]], packing: Packing) -> None:
        for step in {id(step): step for _, step in finished if not step.observed}.values():
            prompts = [prompt for prompt, its in finished if its is step]
            other = self._queue.oldest_unplaced(*prompts)
            others_wait = other is not None and other.sent_ns < step.end_ns
            self._steps.split(step, sum(prompt.uncached for prompt in prompts), others_wait, packing)
        for prompt, step in finished:
            self._place(prompt, step, packing)

    def _place(self, prompt: Prompt, step: OpenStep, packing: Packing) -> None:
        """Put a prompt into its steps; the split of its TTFT follows from the first of them."""
        start_ns, index = step.start_ns, self._steps.index(step)
        if prompt.engine_start_ns is not None:
            start_ns = prompt.engine_start_ns
        elif index is not None:
            start_ns = self._steps.all[packing.pack_back(self._steps.all, index, prompt)].start_ns
        self._queue.placed(prompt)
        prompt.placed_size = prompt.uncached
        ttft_ns = prompt.over_ns - prompt.sent_ns
        prefill_ns = prompt.over_ns - start_ns if prompt.engine_prefill_ns is None else prompt.engine_prefill_ns
        prefill_ns = max(0, min(prefill_ns, ttft_ns))
        if not prompt.blind:
            self._splits.append(Split(prompt.rid, ttft_ns - prefill_ns, prefill_ns))

    def _place_left(self, until_ns: int, packing: Packing, *, run_is_over: bool = False) -> None:
        """Place the prompts whose clients left, once all that had arrived before them are placed."""
        oldest = None if run_is_over else self._queue.oldest_unplaced()
        for prompt in self._queue.take_left(until_ns, oldest.sent_ns if oldest else until_ns):
            packing.pack_gone(self._steps.all[: self._steps.scanned], prompt)

    def _end_run(self) -> None:
        """After a clear step: a prompt without a first token was not in service before, or the engine would have gone
        on with it."""
        if self._run:
            self._closed_ns = self._run[-1].end_ns
            self._learn()

    def _learn(self) -> None:
        """Learn from the busy time so far, and place the prompts for which that was waited for."""
        if self._run_finished:
            self._learner.add(self._run, self._run_finished)
        packing = Packing(self._learner.engine_of_last_run, self._tuning)
        self._place_all(self._unlearned, packing)
        self._place_left(self._run[-1].end_ns, packing, run_is_over=True)
        self._unlearned = []
        self._run_finished = []
        self._run = []

    def _finalise(self, now_ns: int) -> None:
        """Hand out the steps that nothing can change any more, in order of time."""
        oldest_ns = min((prompt.sent_ns for prompt in self._queue.oldest_without_place()), default=now_ns)
        done = 0
        for step in self._steps.all[: self._steps.scanned]:
            if not self._is_final(step, oldest_ns):
                held_ns = now_ns - self._rules.horizon_ns
                if len(self._steps) - done <= self._rules.most_steps and step.end_ns >= held_ns:
                    break
                if self._unlearned:
                    self._learn()
            self._emit(step)
            done += 1
        self._steps.drop(done)
        if not self._steps.all and not self._queue.firsts:
            quiet_ns = now_ns - self._closed_after_ns - self._first_tokens.after_first_read_ns
            self.settled_ns = max(self.settled_ns, quiet_ns)

    def _is_final(self, step: OpenStep, oldest_ns: int) -> bool:
        """Whether no prompt without a place can have been in a step; the oldest of them was sent at ``oldest_ns``."""
        if step.reported or not step.long or step.end_ns <= self._closed_ns:
            return True
        return oldest_ns > step.start_ns or self._packing.fills(step)

    def _emit(self, step: OpenStep) -> None:
        if step.long and step.shares:
            self._learner.add_step(step)
        if step.is_clear:
            self._queue.pass_over_silent(step.start_ns - self._first_tokens.on_its_way_ns, step.end_ns)
        elif step.long and not step.reported and not self._packing.explains(step):
            self._explain(step)
        tokens = sum(each for _, each in step.shares)
        members = tuple((prompt.rid, each) for prompt, each in step.shares)
        largest = max((each.tokens for each, _ in step.shares), default=0)
        clear_ns = self.clear.expect_ns(step.decoders)
        self._final.append(
            StepFacts(step.start_ns, step.end_ns, step.decoders, tokens, members, step.observed, clear_ns, largest)
        )
        self._history.append(step.start_ns, step.end_ns, largest)
        self.settled_ns = max(self.settled_ns, step.end_ns)

    def _explain(self, step: OpenStep) -> None:
        """Give a long step to prompts whose first tokens never show, or to the guess when time has run out for it."""
        silent = self._queue.silent
        for prompt in sorted(silent, key=by_arrival):
            self._queue.read_silently(prompt, self._packing.fill_rest(step, prompt, silent[prompt]), step.end_ns)
        if step.end_ns > self._closed_ns:
            for prompt, tokens in step.guesses:
                if not prompt.is_over and prompt not in silent:
                    step.put(prompt, tokens, 0, self.engine.cost)

    def _finish_all(self) -> None:
        """Make everything final as it is now."""
        self._place_all(self._unlearned, self._packing)
        for step in self._steps.all:
            self._emit(step)
        self._steps.drop(len(self._steps))
        self._unlearned = []
        self._run_finished = []
        self._run = []

    def _undecided(self) -> Columns:
        """Starts, ends and largest prompts of the steps that are not final, and of the one that runs now."""
        steps = self._steps.all
        now = max((tokens for _, tokens in self.in_service_now()), default=0)
        starts = [step.start_ns for step in steps] + [self._steps.last_end_ns]
        ends = [step.end_ns for step in steps] + [np.iinfo(np.int64).max]
        largest = [step.largest for step in steps] + [now]
        return np.array(starts, np.int64), np.array(ends, np.int64), np.array(largest, np.int64)


def _drained(queue: deque[T]) -> list[T]:
    items = list(queue)
    queue.clear()
    return items
