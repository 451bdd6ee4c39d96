"""The prefill timeline: which request's prompt rode in which engine step, worked out from outside.

Known are the steps (see heartbeat.py), when each request was sent, how long its prompt is, and when its first token
came. The engine serves prompts in order under a token budget per step. So every first token names the step in which a
prompt was completed, and packing leads back from there to the step in which the engine began with it.

An answer comes in two stages. While a prompt waits, it is guessed from all the work that was waiting: enough to say
*that* a prompt was in service. Whose it was shows when first tokens arrive; then the steps become final, in order of
time. A run of long steps is final when a clear step ends it, since the engine goes on with a prompt in every step
until it is done: whoever got no first token by then was not in service. Within a run, a step is final when finished
prompts explain it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from prefillwatch.analysis.budget import Learner
from prefillwatch.analysis.clear_step import ClearStep
from prefillwatch.analysis.heartbeat import WIDEST_SPREAD_NS
from prefillwatch.analysis.overlap import IntArray, Overlap, StepHistory, joined, largest_during
from prefillwatch.analysis.packing import TOO_SHORT, UNLIMITED, Beat, Engine, Prompt, fill_up, place

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from prefillwatch.analysis.heartbeat import Step

T = TypeVar("T")

SECOND = 1_000_000_000
HORIZON_NS = 120 * SECOND
MAX_STEPS = 20_000

TRAIL_NS = 15_000_000
"""First tokens come up to so much later than the first read of the step that made them …"""
LEAD_NS = 10_000_000
"""… and up to so much earlier, since delivery after a long step spreads."""

CLOSED_AFTER_NS = WIDEST_SPREAD_NS + TRAIL_NS
"""By so much later every step around a first token has been closed by the heartbeat."""

CLEAR_AT_LEAST = 0.6
"""A step shorter than this part of a clear one is a splinter of another and proves nothing."""

ENGINE_IS_LIVE_NS = 5 * SECOND
"""Steps told by the engine replace those of the heartbeat while they come at least this often."""

_end = attrgetter("end_ns")


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
    become final by guess.
    """

    def __init__(self, horizon_ns: int = HORIZON_NS, max_steps: int = MAX_STEPS) -> None:
        self.clear = ClearStep()
        self._learner = Learner()
        self._horizon_ns = horizon_ns
        self._max_steps = max_steps
        self._prompts: dict[Hashable, Prompt] = {}
        self._waiting: dict[Hashable, Prompt] = {}
        self._silent: dict[Hashable, Prompt] = {}
        self._firsts: list[Prompt] = []
        self._gone: list[Prompt] = []
        self._unseen: dict[Prompt, int] = {}
        self._over: deque[Prompt] = deque()
        self._beats: list[Beat] = []
        self._scanned = 0
        self._run: list[Beat] = []
        self._run_released: list[tuple[Prompt, Beat]] = []
        self._unlearned: list[tuple[Prompt, Beat]] = []
        self._closed_ns = 0
        self._clear_start_ns = 0
        self._last_end_ns = 0
        self._told_end_ns = 0
        self._busy_until_ns = 0
        self._engine_until_ns: int | None = None
        self._final: deque[StepFacts] = deque(maxlen=max_steps)
        self._splits: deque[Split] = deque(maxlen=max_steps)
        self._history = StepHistory()
        self.settled_ns = 0
        """Everything that ended before this moment is final."""

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
        """A prompt went upstream; ``group`` ties those of one request. Only ``streamed`` ones show a first token."""
        prompt = Prompt(rid, t_ns, tokens, tokens if uncached is None else uncached, group, streamed)
        self._prompts[rid] = prompt
        if streamed:
            self._waiting[rid] = prompt
        else:
            self._silent[rid] = prompt
            self._unseen[prompt] = prompt.uncached

    def sized(self, rid: Hashable, tokens: int, uncached: int | None = None) -> None:
        """Usage told the true size of a prompt, often late."""
        prompt = self._prompts.get(rid)
        if prompt is not None:
            prompt.tokens = tokens
            prompt.uncached = tokens if uncached is None else uncached
            self._learner.resized()

    def first_token(self, rid: Hashable, t_ns: int) -> None:
        """The first token of a request was read."""
        prompt = self._waiting.pop(rid, None) or self._silent.pop(rid, None)
        if prompt is not None:
            prompt.first_ns = t_ns
            self._busy_until_ns = max(self._busy_until_ns, t_ns)
            self._firsts.append(prompt)
            self._over.append(prompt)

    def gone(self, rid: Hashable, t_ns: int) -> None:
        """A request ended without a first token: its client left, or it failed."""
        prompt = self._waiting.pop(rid, None)
        if prompt is not None:
            prompt.gone_ns = t_ns
            self._busy_until_ns = max(self._busy_until_ns, t_ns)
            self._gone.append(prompt)
            self._unseen[prompt] = prompt.uncached
            self._over.append(prompt)
        elif (silent := self._silent.get(rid)) is not None:
            silent.gone_ns = t_ns
            self._over.append(silent)

    def steps(self, steps: Iterable[Step]) -> None:
        """Steps that closed, from the heartbeat."""
        for step in steps:
            if self._engine_until_ns is not None:
                if step.end_ns < self._engine_until_ns + ENGINE_IS_LIVE_NS:
                    continue
                self._engine_until_ns = None
            waiting = not self._nobody_waiting(step.start_ns, step.end_ns)
            self.clear.observe(step.duration_ns, step.streams, waiting=waiting)
            self._append(self._beat(step.start_ns, step.end_ns, step.streams))

    def hole(self, t_ns: int) -> None:
        """Reads were lost. What was served until now stays as it is; the waiting ones get no split."""
        for prompt in self._waiting.values():
            prompt.blind = True
        self._finish_all()
        self._last_end_ns = max(self._last_end_ns, t_ns)

    # What the engine itself tells, where it does.

    def engine_step(self, start_ns: int, end_ns: int, decoders: int, members: Iterable[tuple[Hashable, int]]) -> None:
        """A step with all that rode in it. It replaces the steps of the heartbeat."""
        self._engine_until_ns = end_ns
        while self._beats and not self._beats[-1].told and self._beats[-1].end_ns > start_ns:
            self._beats.pop()
        self._scanned = min(self._scanned, len(self._beats))
        beat = self._beat(start_ns, end_ns, decoders)
        beat.told = True
        for rid, tokens in members:
            prompt = self._prompts.get(rid) or Prompt(rid, start_ns, tokens, tokens)
            if prompt.engine_start_ns is None:
                prompt.engine_start_ns = start_ns
            beat.board(prompt, tokens, 0, self.engine.cost)
        self._append(beat)

    def engine_prefill(self, rid: Hashable, prefill_ns: int) -> None:
        """The engine's own prefill time of a request overrules ours; its queue time is still what remains of TTFT."""
        prompt = self._prompts.get(rid)
        if prompt is not None:
            prompt.engine_prefill_ns = prefill_ns

    # Answers.

    @property
    def engine(self) -> Engine:
        """Step budget and cost per uncached prompt token, as learned so far."""
        return self._learner.engine

    def waiting_now(self) -> list[tuple[Hashable, int]]:
        """Requests without a first token and the sizes of their prompts, oldest first."""
        return [(prompt.rid, prompt.tokens) for prompt in self._waiting.values()]

    def in_service_now(self) -> list[tuple[Hashable, int]]:
        """Requests whose prompts are probably in the step that is running now, and the sizes of those prompts."""
        room = self.engine.budget or UNLIMITED
        return [(prompt.rid, prompt.tokens) for prompt, _ in self._guess(self._last_end_ns, room)]

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
        self._firsts.sort(key=attrgetter("first_ns"))
        done = 0
        for prompt in self._firsts:
            assert prompt.first_ns is not None
            if prompt.first_ns > now_ns - CLOSED_AFTER_NS:
                break
            self._release(prompt)
            done += 1
        del self._firsts[:done]
        self._scan(now_ns - CLOSED_AFTER_NS - TRAIL_NS)
        self._finalise(now_ns)
        self._forget(now_ns)

    def _nobody_waiting(self, start_ns: int, end_ns: int) -> bool:
        """Whether nobody was without a first token between these moments, apart from those passed over before."""
        if self._busy_until_ns > start_ns:
            return False
        return not any(
            self._clear_start_ns < prompt.sent_ns < end_ns
            for prompts in (self._waiting, self._silent)
            for prompt in reversed(prompts.values())
        )

    def _beat(self, start_ns: int, end_ns: int, decoders: int, observed: bool = True) -> Beat:
        long_ns = self.clear.long_ns(decoders)
        long = 0 < long_ns < end_ns - start_ns
        return Beat(start_ns, end_ns, decoders, self.clear.expect_ns(decoders), long, observed)

    def _append(self, beat: Beat) -> None:
        if beat.long and not beat.told:
            beat.guesses = self._guess(beat.start_ns, self.engine.room(beat))
            for prompt, tokens in beat.guesses:
                prompt.guessed += tokens
        self._beats.append(beat)
        self._last_end_ns = max(self._last_end_ns, beat.end_ns)

    def _guess(self, start_ns: int, room: int) -> list[tuple[Prompt, int]]:
        """Who may ride in a step that begins now: in order of arrival, unless a clear step has passed them over."""
        riders: list[tuple[Prompt, int]] = []
        for prompt in self._waiting.values():
            if prompt.sent_ns > start_ns or room <= 0:
                break
            if prompt.sent_ns > self._clear_start_ns:
                tokens = min(room, max(1, prompt.uncached - prompt.guessed))
                riders.append((prompt, tokens))
                room -= tokens
        return riders

    def _release(self, prompt: Prompt) -> None:
        """Find the step that made a first token, or make one up where no stream was there to show it."""
        first_ns = prompt.first_ns
        assert first_ns is not None
        low = bisect_left(self._beats, first_ns - TRAIL_NS, key=_end)
        high = bisect_right(self._beats, first_ns + LEAD_NS, key=_end)
        low = max(low, self._scanned)
        index = self._maker(prompt, first_ns, low, high) if low < high else self._make_up(prompt, first_ns)
        self._beats[index].released.append(prompt)

    def _maker(self, prompt: Prompt, first_ns: int, low: int, high: int) -> int:
        """The step among those near the first token: the latest that was long enough, else the last one before it."""
        needed_ns = TOO_SHORT * self.engine.cost.expect_ns(min(prompt.uncached, self.engine.budget or prompt.uncached))
        last = low
        for index in range(high - 1, low - 1, -1):
            beat = self._beats[index]
            if beat.start_ns < prompt.sent_ns:
                break
            if beat.end_ns <= first_ns:
                last = max(last, index)
            if beat.long and beat.excess_ns >= needed_ns:
                return index
        return last

    def _make_up(self, prompt: Prompt, first_ns: int) -> int:
        """Insert a step that ends with this first token."""
        index = max(self._scanned, bisect_right(self._beats, first_ns, key=_end))
        following = self._beats[index] if index < len(self._beats) else None
        if following is not None and following.start_ns < first_ns:
            start_ns, following.start_ns = following.start_ns, first_ns
        else:
            previous_ns = self._beats[index - 1].end_ns if index else self._told_end_ns
            start_ns = max(previous_ns, min(prompt.sent_ns, self._oldest_not_passed_over(prompt.sent_ns)))
        self._beats.insert(index, self._beat(min(start_ns, first_ns), first_ns, 0, observed=False))
        self._last_end_ns = max(self._last_end_ns, first_ns)
        return index

    def _oldest_not_passed_over(self, default_ns: int) -> int:
        sent = (each.sent_ns for each in self._waiting.values() if each.sent_ns > self._clear_start_ns)
        return next(sent, default_ns)

    def _scan(self, until_ns: int) -> None:
        """Place the prompts that each step finished, and notice where clear steps end a run."""
        while self._scanned < len(self._beats) and self._beats[self._scanned].end_ns <= until_ns:
            beat = self._beats[self._scanned]
            released = [(prompt, beat) for prompt in sorted(beat.released, key=attrgetter("sent_ns"))]
            self._run_released += released
            self._run_released += [(each, beat) for each in self._gone if beat.start_ns < each.over_ns <= beat.end_ns]
            if self.engine.proven:
                self._place_all(released, self.engine)
            else:
                self._unlearned += released
            beat.released.clear()
            self._run.append(beat)
            if not beat.long and beat.end_ns - beat.start_ns >= CLEAR_AT_LEAST * beat.clear_ns:
                self._end_run()
                self._clear_start_ns = beat.start_ns
            self._scanned += 1
        if self._run and self._scanned == len(self._beats) and not any(self._unplaced()):
            self._end_run()

    def _place_all(self, released: list[tuple[Prompt, Beat]], engine: Engine) -> None:
        for beat in {id(beat): beat for _, beat in released if not beat.observed}.values():
            self._part(beat, [prompt for prompt, its in released if its is beat], engine)
        for prompt, beat in released:
            self._place(prompt, bisect_left(self._beats, beat.end_ns, key=_end), engine)

    def _part(self, beat: Beat, prompts: list[Prompt], engine: Engine) -> None:
        """Part a made-up step into as many as its prompts need; the last one may be less than full."""
        budget = engine.budget
        tokens = sum(prompt.uncached for prompt in prompts)
        steps = -(-tokens // budget) if budget else 1
        if budget and engine.cost.known:
            full_ns = beat.clear_ns + engine.cost.expect_ns(budget)
            steps = min(steps, round((beat.end_ns - beat.start_ns) / full_ns))
        if steps < 2 or not beat.long:
            return
        waiting = any(each.sent_ns < beat.end_ns for each in self._unplaced() if each not in prompts)
        step_ns = round((beat.end_ns - beat.start_ns) / (steps if waiting else max(steps - 1, tokens / budget)))
        index = bisect_left(self._beats, beat.end_ns, key=_end)
        starts = [beat.start_ns + each * step_ns for each in range(steps)]
        parts = [self._beat(start_ns, start_ns + step_ns, 0, observed=False) for start_ns in starts[:-1]]
        beat.start_ns = starts[-1]
        self._beats[index:index] = parts
        self._scanned += len(parts)

    def _place(self, prompt: Prompt, index: int, engine: Engine) -> None:
        if prompt.engine_start_ns is not None:
            start_ns = prompt.engine_start_ns
        else:
            start_ns = self._beats[place(self._beats, index, prompt, engine)].start_ns
        assert prompt.first_ns is not None
        prefill_ns = min(prompt.first_ns - start_ns, prompt.first_ns - prompt.sent_ns)
        if prompt.engine_prefill_ns is not None:
            prefill_ns = min(prompt.engine_prefill_ns, prompt.first_ns - prompt.sent_ns)
        if not prompt.blind:
            self._splits.append(
                Split(prompt.rid, prompt.first_ns - prompt.sent_ns - prefill_ns, prefill_ns, prompt.group)
            )

    def _end_run(self) -> None:
        """After a clear step whoever has no first token was not in service before, or it would have gone on."""
        self._closed_ns = self._run[-1].end_ns
        if self._run_released:
            self._learner.add(self._run, self._run_released)
        self._place_all(self._unlearned, self._learner.engine_of_last_run)
        self._unlearned = []
        self._run_released = []
        self._run = []

    def _finalise(self, now_ns: int) -> None:
        """Hand out the steps that nothing can change any more, in order of time."""
        done = 0
        for beat in self._beats[: self._scanned]:
            if not self._is_final(beat, now_ns, len(self._beats) - done):
                break
            self._emit(beat)
            done += 1
        self._drop(done)
        if not self._beats and not self._firsts:
            self.settled_ns = max(self.settled_ns, now_ns - CLOSED_AFTER_NS - TRAIL_NS)

    def _is_final(self, beat: Beat, now_ns: int, undecided: int) -> bool:
        if beat.told or not beat.long or beat.end_ns <= self._closed_ns:
            return True
        oldest = min((each.sent_ns for each in self._unplaced()), default=beat.end_ns)
        if oldest > beat.start_ns or self.engine.fills(beat):
            return True
        return beat.end_ns < now_ns - self._horizon_ns or undecided > self._max_steps

    def _unplaced(self) -> Iterable[Prompt]:
        """Prompts that may still be found to have been in service: the oldest waiting one, and those being placed."""
        yield from self._firsts
        yield from (prompt for beat in self._beats[self._scanned :] for prompt in beat.released)
        yield from (prompt for prompt, _ in self._unlearned)
        oldest = next(iter(self._waiting.values()), None)
        if oldest is not None:
            yield oldest

    def _emit(self, beat: Beat) -> None:
        if beat.long and beat.riders:
            self._learner.add_step(beat)
        if beat.long and not beat.told and not self.engine.explains(beat):
            self._explain(beat)
        tokens = sum(each for _, each in beat.riders)
        members = tuple((prompt.rid, each) for prompt, each in beat.riders)
        self._final.append(StepFacts(beat.start_ns, beat.end_ns, beat.decoders, tokens, members, beat.observed))
        self._history.append(beat.start_ns, beat.end_ns, max((each.tokens for each, _ in beat.riders), default=0))
        self._told_end_ns = beat.end_ns
        self.settled_ns = max(self.settled_ns, beat.end_ns)

    def _explain(self, beat: Beat) -> None:
        """Give a long step to prompts whose first tokens never show, or to the guess when time has run out for it."""
        fill_up(beat, self._unseen, self.engine)
        if beat.end_ns > self._closed_ns:
            for prompt, tokens in beat.guesses:
                if prompt.first_ns is None and prompt.gone_ns is None:
                    beat.board(prompt, tokens, 0, self.engine.cost)

    def _drop(self, done: int) -> None:
        del self._beats[:done]
        self._scanned -= done

    def _finish_all(self) -> None:
        """Make everything final as it is now."""
        self._place_all(self._unlearned, self.engine)
        self._unlearned = []
        for beat in self._beats:
            self._emit(beat)
        self._beats.clear()
        self._run = []
        self._run_released = []
        self._scanned = 0

    def _forget(self, now_ns: int) -> None:
        """Keep memory bounded: old steps, and prompts long placed."""
        old_ns = now_ns - self._horizon_ns
        self._history.forget(old_ns, self._max_steps)
        self._gone = [each for each in self._gone if each.over_ns > old_ns]
        if len(self._run) > self._max_steps:
            del self._run[: self._max_steps // 2]
        while self._over and (self._over[0].over_ns < old_ns or len(self._over) > self._max_steps):
            prompt = self._over.popleft()
            rid = prompt.rid
            self._unseen.pop(prompt, None)
            self._prompts.pop(rid, None)
            self._silent.pop(rid, None)

    def _undecided(self) -> tuple[IntArray, IntArray, IntArray]:
        """Starts, ends and largest prompts of the steps that are not final, and of the one that runs now."""
        now = max((tokens for _, tokens in self.in_service_now()), default=0)
        starts = [beat.start_ns for beat in self._beats] + [self._last_end_ns]
        ends = [beat.end_ns for beat in self._beats] + [np.iinfo(np.int64).max]
        largest = [beat.largest for beat in self._beats] + [now]
        return np.array(starts, np.int64), np.array(ends, np.int64), np.array(largest, np.int64)


def _drained(queue: deque[T]) -> list[T]:
    items = list(queue)
    queue.clear()
    return items
