"""The prefill timeline: which request's prompt rode in which engine step, worked out from outside.

Known are the steps (see heartbeat.py), when each request was sent, how long its prompt is, and when its first token
came. The engine serves prompts in order under a token budget per step. So every first token names the step in which a
prompt was completed, and packing leads back from there to the step in which the engine began with it.

An answer comes in two stages. While a prompt waits, it is guessed from all the work that was waiting: enough to say
*that* a prompt was in service. Whose it was shows when first tokens arrive; then the steps become final, in order of
time. A run of long steps is final when a clear step ends it, since the engine goes on with a prompt in every step until
it is done: whoever got no first token by then was not in service. Within a run, a step is final when finished prompts
fill it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from prefillwatch.analysis.arrays import IntArray
from prefillwatch.analysis.steps.budget import Learner
from prefillwatch.analysis.steps.clear_step import ClearStep
from prefillwatch.analysis.steps.engine_reported import board
from prefillwatch.analysis.steps.heartbeat import WIDEST_SPREAD_NS
from prefillwatch.analysis.steps.history import Columns, Overlap, StepHistory, joined, largest_during
from prefillwatch.analysis.steps.open_steps import TRAIL_NS, OpenSteps
from prefillwatch.analysis.steps.packing import UNLIMITED, Engine, OpenStep, Prompt, fill_up, place, place_gone
from prefillwatch.analysis.steps.queue import PromptQueue, by_arrival
from prefillwatch.units import NS

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from prefillwatch.analysis.steps.heartbeat import Step

T = TypeVar("T")

HORIZON_NS = 120 * NS
MAX_STEPS = 20_000

CLOSED_AFTER_NS = WIDEST_SPREAD_NS + TRAIL_NS
"""By so much later every step around a first token has been closed by the heartbeat."""

ON_ITS_WAY_NS = 100_000_000
"""A prompt may be with the API server so long, which tokenises it. A clear step then does not mean it was passed
over."""

LONG_RUN = 200
"""A busy time of more steps is learned from in parts …"""
FIRST_LOOK = 32
"""… and earlier while nothing is certain yet, since prompts wait for their place until then."""

ENGINE_IS_LIVE_NS = 5 * NS
"""Steps told by the engine replace those of the heartbeat while they come at least this often."""

TOLD_LATE_NS = 100_000_000
"""… and may come to be known so late."""


@dataclass(frozen=True, slots=True)
class StepFacts:
    """A final step. Times in monotonic nanoseconds."""

    start_ns: int
    end_ns: int
    decoders: int
    prefill_tokens: int
    """Uncached prompt tokens that rode in it."""
    members: tuple[tuple[Hashable, int], ...]
    """Requests whose prompts rode in it, and how many tokens of each."""
    observed: bool
    """False: nobody was decoding, so its start and whether it was one step are inferred."""


@dataclass(frozen=True, slots=True)
class Split:
    """Time to first token of a request apart, from when it was sent: waiting, and having its prompt read."""

    rid: Hashable
    queue_ns: int
    prefill_ns: int
    group: Hashable = None


class PrefillTimeline:
    """Feed it what the wire shows, call `settle`, drain what became final.

    Events must be given in order of time as far as that matters: everything before ``now_ns`` before
    `settle(now_ns)`. Give ``clear``, what a clear step takes, to the `Heartbeat`. Steps older than ``horizon_ns``
    become final by guess, and so do all but the last ``max_steps``.
    """

    def __init__(self, horizon_ns: int = HORIZON_NS, max_steps: int = MAX_STEPS) -> None:
        self.clear = ClearStep()
        self.settled_ns = 0
        """Everything that ended before this moment is final."""
        self._horizon_ns = horizon_ns
        self._max_steps = max_steps
        self._room = PromptQueue()
        self._beats = OpenSteps(self.clear)
        self._learner = Learner()
        self._run: list[OpenStep] = []
        self._run_released: list[tuple[Prompt, OpenStep]] = []
        self._unlearned: list[tuple[Prompt, OpenStep]] = []
        self._closed_ns = 0
        self._passed_over_ns = 0
        self._engine_until_ns: int | None = None
        self._final: deque[StepFacts] = deque(maxlen=max_steps)
        self._splits: deque[Split] = deque(maxlen=max_steps)
        self._history = StepHistory()

    # What the wire shows.

    def sent(
        self,
        rid: Hashable,
        t_ns: int,
        tokens: int,
        uncached: int | None = None,
        group: Hashable = None,
        streamed: bool = True,
    ) -> None:
        """A prompt went upstream, of so many tokens as far as known. Only ``streamed`` answers show a first token.
        ``group`` ties the prompts of one request."""
        uncached = tokens if uncached is None else uncached
        self._room.enter(Prompt(rid, t_ns, max(1, tokens), max(1, uncached), group, streamed))

    def sized(self, rid: Hashable, tokens: int, uncached: int | None = None, *, sure: bool = True) -> None:
        """The size of a prompt became known better, often late; ``sure``: usage told its true size."""
        prompt = self._room[rid]
        if prompt is not None:
            prompt.tokens = max(1, tokens)
            prompt.uncached = max(1, tokens if uncached is None else uncached)
            prompt.sure = prompt.sure or sure
            self._learner.resized()

    def streams(self, rid: Hashable) -> None:
        """The answer to a prompt shows its first token, other than was thought when it went upstream."""
        prompt = self._room[rid]
        if prompt is not None:
            prompt.streamed = True

    def first_token(self, rid: Hashable, t_ns: int) -> None:
        """The first token of a request was read."""
        self._room.first_token(rid, t_ns)

    def gone(self, rid: Hashable, t_ns: int) -> None:
        """A request ended without a first token: its client left, it failed, or its answer was not streamed."""
        self._room.leave(rid, t_ns)

    def steps(self, steps: Iterable[Step]) -> None:
        """Steps that closed, from the heartbeat."""
        for step in steps:
            self.clear.observe(step.duration_ns, step.streams, waiting=self._may_carry_a_prompt(step))
            if self._engine_until_ns is not None and step.end_ns < self._engine_until_ns + ENGINE_IS_LIVE_NS:
                continue
            self._engine_until_ns = None
            self._append(self._beats.make(step.start_ns, step.end_ns, step.streams))

    def hole(self, t_ns: int) -> None:
        """Reads were lost. What was served until now stays as it is; those who wait get no split."""
        for prompt in self._room.unplaced.values():
            prompt.blind = True
        self._finish_all()
        self._beats.last_end_ns = max(self._beats.last_end_ns, t_ns)

    # What the engine itself tells, where it does.

    def engine_step(self, start_ns: int, end_ns: int, decoders: int, members: Iterable[tuple[Hashable, int]]) -> None:
        """A step with all that rode in it. It replaces the steps of the heartbeat."""
        self._engine_until_ns = end_ns
        for prompt in self._beats.replace_end(start_ns):
            self._room.find_step_of(prompt)
        beat = self._beats.make(start_ns, end_ns, decoders)
        beat.told = True
        for rid, tokens in members:
            prompt = self._room[rid] or Prompt(rid, start_ns, tokens, tokens)
            if prompt.engine_start_ns is None:
                prompt.engine_start_ns = start_ns
            beat.board(prompt, tokens, prompt.cached + prompt.told, self.engine.cost)
            prompt.told += tokens
        self._append(beat)

    def engine_totals(self, start_ns: int, end_ns: int, decoders: int, tokens: int, requests: int) -> None:
        """A step of which the engine tells only how many prompt tokens of how many requests rode in it.

        In order of time, and before `settle` is called for `TOLD_LATE_NS` after its end.
        """
        room = self._room
        members = board(start_ns, end_ns, tokens, requests, [*room.unplaced.values(), *room.left, *room.silent])
        self.engine_step(start_ns, end_ns, decoders, members)

    def engine_prefill(self, rid: Hashable, prefill_ns: int) -> None:
        """The engine's own prefill time of a request overrules ours; its queue time is still what remains of TTFT."""
        prompt = self._room[rid]
        if prompt is not None:
            prompt.engine_prefill_ns = prefill_ns

    # Answers.

    @property
    def engine(self) -> Engine:
        """Step budget and cost per uncached prompt token, as learned so far."""
        return self._learner.engine

    def recall(self, engine: Engine) -> None:
        """What another learned about this engine counts until enough was seen here."""
        self._learner.recall(engine)

    def waiting_now(self) -> list[tuple[Hashable, int]]:
        """Requests without a first token and the sizes of their prompts, oldest first."""
        return [(prompt.rid, prompt.tokens) for prompt in self._room.waiting.values()]

    def in_service_now(self) -> list[tuple[Hashable, int]]:
        """Requests whose prompts are probably in the step that is running now, and the sizes of those prompts."""
        room = self.engine.budget or UNLIMITED
        return [(prompt.rid, prompt.tokens) for prompt, _ in self._guess(self._beats.last_end_ns, room)]

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
        if self._engine_until_ns is not None:
            now_ns -= TOLD_LATE_NS
        for prompt in self._room.take_firsts(now_ns - CLOSED_AFTER_NS):
            fresh = self._room.fresh(self._passed_over_ns, prompt.sent_ns)
            since_ns = fresh[0].sent_ns if fresh else prompt.sent_ns
            self._beats.release(prompt, self.engine, since_ns)
        self._scan(now_ns - CLOSED_AFTER_NS - TRAIL_NS)
        self._finalise(now_ns)
        self._room.forget(now_ns - self._horizon_ns, self._max_steps)
        self._history.forget(now_ns - self._horizon_ns, self._max_steps)

    def _may_carry_a_prompt(self, step: Step) -> bool:
        """Those passed over by a clear step before are taken for absent as long as steps stay clear."""
        if not self._room.nobody(step.start_ns, step.end_ns, self._passed_over_ns):
            return True
        long_ns = self.clear.long_ns(step.streams)
        return step.duration_ns > long_ns > 0 and not self._room.nobody(step.start_ns, step.end_ns, 0)

    def _append(self, beat: OpenStep) -> None:
        if beat.long and not beat.told:
            beat.guesses = self._guess(beat.start_ns, self.engine.room(beat))
            for prompt, tokens in beat.guesses:
                prompt.guessed += tokens
        self._beats.append(beat)

    def _guess(self, start_ns: int, room: int) -> list[tuple[Prompt, int]]:
        """Who may ride in a step that begins now: in order of arrival, unless a clear step has passed them over.

        Failing those, somebody passed over who needs more than one step: others' first tokens will tell at once.
        """
        riders: list[tuple[Prompt, int]] = []
        fresh = self._room.fresh(self._passed_over_ns, start_ns)
        for prompt in fresh or self._room.large(room, start_ns):
            if room <= 0:
                break
            if prompt.first_ns is not None and prompt.first_ns <= start_ns + TRAIL_NS:
                continue  # done by the step before
            tokens = min(room, max(1, prompt.uncached - prompt.guessed))
            riders.append((prompt, tokens))
            room -= tokens
        return riders

    def _scan(self, until_ns: int) -> None:
        """Place the prompts that each step finished, and notice where clear steps end a run."""
        while beat := self._beats.next_until(until_ns):
            self._beats.scanned += 1
            self._take_released(beat)
            if beat.is_clear:
                self._end_run()
                self._passed_over_ns = max(self._passed_over_ns, beat.start_ns - ON_ITS_WAY_NS)
            elif len(self._run) > (LONG_RUN if self.engine.proven else FIRST_LOOK) and self._run_released:
                self._learn()
        all_scanned = self._beats.scanned == len(self._beats)
        if self._run and all_scanned and self._room.all_served(self._beats.last_end_ns):
            self._end_run()

    def _take_released(self, beat: OpenStep) -> None:
        released = [(prompt, beat) for prompt in sorted(beat.released, key=by_arrival)]
        beat.released = []
        if not beat.told:
            self._run.append(beat)
            self._run_released += released
            self._run_released += [(each, beat) for each in self._room.left if beat.covers(each.over_ns)]
        if self.engine.proven or beat.told:
            self._place_all(released, self.engine)
            self._place_left(beat.end_ns, self.engine)
        else:
            self._unlearned += released

    def _place_all(self, released: list[tuple[Prompt, OpenStep]], engine: Engine) -> None:
        for beat in {id(beat): beat for _, beat in released if not beat.observed}.values():
            prompts = [prompt for prompt, its in released if its is beat]
            other = self._room.oldest_unplaced(*prompts)
            others_wait = other is not None and other.sent_ns < beat.end_ns
            self._beats.part(beat, sum(prompt.uncached for prompt in prompts), others_wait, engine)
        for prompt, beat in released:
            self._place(prompt, beat, engine)

    def _place(self, prompt: Prompt, beat: OpenStep, engine: Engine) -> None:
        start_ns, index = beat.start_ns, self._beats.index(beat)
        if prompt.engine_start_ns is not None:
            start_ns = prompt.engine_start_ns
        elif index is not None:
            start_ns = self._beats.all[place(self._beats.all, index, prompt, engine)].start_ns
        self._room.placed(prompt)
        prompt.placed_size = prompt.uncached
        ttft_ns = prompt.over_ns - prompt.sent_ns
        prefill_ns = prompt.over_ns - start_ns if prompt.engine_prefill_ns is None else prompt.engine_prefill_ns
        prefill_ns = max(0, min(prefill_ns, ttft_ns))
        if not prompt.blind:
            self._splits.append(Split(prompt.rid, ttft_ns - prefill_ns, prefill_ns, prompt.group))

    def _place_left(self, until_ns: int, engine: Engine, *, run_is_over: bool = False) -> None:
        """Place the prompts of those who left, once all that had arrived before them are placed."""
        oldest = None if run_is_over else self._room.oldest_unplaced()
        for prompt in self._room.take_left(until_ns, oldest.sent_ns if oldest else until_ns):
            place_gone(self._beats.all[: self._beats.scanned], prompt, engine)

    def _end_run(self) -> None:
        """After a clear step whoever has no first token was not in service before, or it would have gone on."""
        if self._run:
            self._closed_ns = self._run[-1].end_ns
            self._learn()

    def _learn(self) -> None:
        """Learn from the busy time so far, and place the prompts for which that was waited for."""
        if self._run_released:
            self._learner.add(self._run, self._run_released)
        engine = self._learner.engine_of_last_run
        self._place_all(self._unlearned, engine)
        self._place_left(self._run[-1].end_ns, engine, run_is_over=True)
        self._unlearned = []
        self._run_released = []
        self._run = []

    def _finalise(self, now_ns: int) -> None:
        """Hand out the steps that nothing can change any more, in order of time."""
        oldest_ns = min((prompt.sent_ns for prompt in self._room.oldest_without_place()), default=now_ns)
        done = 0
        for beat in self._beats.all[: self._beats.scanned]:
            if not self._is_final(beat, oldest_ns):
                if len(self._beats) - done <= self._max_steps and beat.end_ns >= now_ns - self._horizon_ns:
                    break
                if self._unlearned:
                    self._learn()
            self._emit(beat)
            done += 1
        self._beats.drop(done)
        if not self._beats.all and not self._room.firsts:
            self.settled_ns = max(self.settled_ns, now_ns - CLOSED_AFTER_NS - TRAIL_NS)

    def _is_final(self, beat: OpenStep, oldest_ns: int) -> bool:
        """Whether no prompt without a place can have been in a step; the oldest of them was sent at ``oldest_ns``."""
        if beat.told or not beat.long or beat.end_ns <= self._closed_ns:
            return True
        return oldest_ns > beat.start_ns or self.engine.fills(beat)

    def _emit(self, beat: OpenStep) -> None:
        if beat.long and beat.riders:
            self._learner.add_step(beat)
        if beat.is_clear:
            self._room.pass_over_silent(beat.start_ns - ON_ITS_WAY_NS, beat.end_ns)
        elif beat.long and not beat.told and not self.engine.explains(beat):
            self._explain(beat)
        tokens = sum(each for _, each in beat.riders)
        members = tuple((prompt.rid, each) for prompt, each in beat.riders)
        self._final.append(StepFacts(beat.start_ns, beat.end_ns, beat.decoders, tokens, members, beat.observed))
        self._history.append(beat.start_ns, beat.end_ns, max((each.tokens for each, _ in beat.riders), default=0))
        self.settled_ns = max(self.settled_ns, beat.end_ns)

    def _explain(self, beat: OpenStep) -> None:
        """Give a long step to prompts whose first tokens never show, or to the guess when time has run out for it."""
        for prompt in sorted(self._room.silent, key=by_arrival):
            self._room.silent[prompt] = fill_up(beat, prompt, self._room.silent[prompt], self.engine)
        if beat.end_ns > self._closed_ns:
            for prompt, tokens in beat.guesses:
                if not prompt.is_over:
                    beat.board(prompt, tokens, 0, self.engine.cost)

    def _finish_all(self) -> None:
        """Make everything final as it is now."""
        self._place_all(self._unlearned, self.engine)
        for beat in self._beats.all:
            self._emit(beat)
        self._beats.drop(len(self._beats))
        self._unlearned = []
        self._run_released = []
        self._run = []

    def _undecided(self) -> Columns:
        """Starts, ends and largest prompts of the steps that are not final, and of the one that runs now."""
        beats = self._beats.all
        now = max((tokens for _, tokens in self.in_service_now()), default=0)
        starts = [beat.start_ns for beat in beats] + [self._beats.last_end_ns]
        ends = [beat.end_ns for beat in beats] + [np.iinfo(np.int64).max]
        largest = [beat.largest for beat in beats] + [now]
        return np.array(starts, np.int64), np.array(ends, np.int64), np.array(largest, np.int64)


def _drained(queue: deque[T]) -> list[T]:
    items = list(queue)
    queue.clear()
    return items
