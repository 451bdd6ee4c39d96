"""An engine with continuous batching in virtual time, which keeps a log of its own: who was in each step, and why it
took as long as it did.

It is written from how the engines are documented to schedule, and shares nothing with the code that is judged by it.
Times are milliseconds from the start of the run.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

Span = tuple[float, float]


@dataclass(frozen=True)
class Scheduling:
    """How an engine makes up its steps; the defaults are those of a current vLLM."""

    ahead: bool = True  # the next step is made up while one runs, so that who arrives meanwhile joins the one after
    budget: int = 2048  # tokens per step
    chunked: bool = True
    slice: int = 0  # prompt tokens of one request per step, at most; 0: as many as fit
    prefill_first: bool = False  # a step has prompts or decoding streams, prompts first
    seats: int = 128  # sequences at once
    cache_tokens: int = 10_000_000
    block: int = 16
    prefix_caching: bool = False
    aborts: bool = True  # whose client left is dropped


@dataclass(frozen=True)
class Speed:
    """What a step takes."""

    base: float = 15.0
    per_sequence: float = 0.05
    per_prompt_token: float = 0.1
    attention_tokens: float = 40_000.0  # so deep into a prompt, its tokens cost twice as much
    noise: float = 0.02


@dataclass(eq=False)
class Job:
    """A request. Its prompt begins with ``shared`` tokens that others begin with, too."""

    name: str
    arrives: float
    prompt: int
    answer: int
    choices: int = 1
    shared: int = 0
    streams: bool = True
    leaves: float | None = None  # its client does
    rank: int = 0
    uncached: int = 0  # prompt tokens that it had to compute; known when it was begun


@dataclass(eq=False)
class Sequence:
    job: Job
    choice: int
    target: int  # tokens of context that have to be there before it decodes
    computed: int = 0
    made: int = 0
    planned: int = 0  # tokens made or in a step that is under way
    recomputes: bool = False
    given_up: bool = False

    @property
    def prefilling(self) -> bool:
        return self.computed < self.target

    @property
    def done(self) -> bool:
        return self.planned >= self.job.answer


@dataclass(frozen=True)
class Share:
    """Tokens of one sequence in one step."""

    sequence: Sequence
    tokens: int
    at: int  # tokens of context before them
    prompt: bool
    recomputed: bool
    emits: bool


@dataclass(eq=False)
class Step:
    """``clear + prefill + recomputing + stopped`` are what it took."""

    start: float
    end: float
    clear: float
    prefill: float
    recomputing: float
    stopped: float
    prompts: dict[str, int]
    members: frozenset[Sequence]


@dataclass(frozen=True)
class Token:
    sequence: Sequence
    made: float
    step: int


@dataclass(frozen=True)
class State:
    """What the page of metrics would tell."""

    at: float
    running: int
    waiting: int
    usage: float
    preemptions: int


@dataclass
class Rank:
    """One engine process, and the log of all it did."""

    scheduling: Scheduling
    speed: Speed
    rng: random.Random
    stops: list[Span] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    tokens: list[Token] = field(default_factory=list)
    states: list[State] = field(default_factory=list)
    preempted: set[Sequence] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []
        self._preemptions = 0
        self._cached: set[int] = set()

    def run(self, jobs: Iterable[Job], until: float) -> None:
        arriving = deque(sorted(jobs, key=lambda job: job.arrives))
        leaving = sorted((job.leaves, job.name) for job in arriving if job.leaves is not None)
        now = 0.0
        planned: list[Share] = []
        while now < until:
            self._admit(arriving, now)
            if self.scheduling.aborts:
                self._drop({name for at, name in leaving if at <= now})
            batch = planned if self.scheduling.ahead and planned else self._schedule()
            planned = []
            if not batch:
                if not arriving:
                    break
                now = max(now, arriving[0].arrives)
                continue
            self._note(now)
            if self.scheduling.ahead:
                planned = self._schedule()
            now = self._carry_out(batch, now)

    def state(self, at: float) -> State:
        index = bisect_right(self.states, at, key=lambda state: state.at)
        return self.states[index - 1] if index else State(at, 0, 0, 0.0, 0)

    def _admit(self, arriving: deque[Job], now: float) -> None:
        while arriving and arriving[0].arrives <= now:
            job = arriving.popleft()
            self._waiting.extend(Sequence(job, choice, job.prompt) for choice in range(job.choices))

    def _drop(self, gone: set[str]) -> None:
        for sequence in (*self._waiting, *self._running):
            sequence.given_up = sequence.given_up or sequence.job.name in gone
        self._waiting = deque(each for each in self._waiting if not each.given_up)
        self._running = [each for each in self._running if not each.given_up]

    # --- What is in a step ---

    def _schedule(self) -> list[Share]:
        self._running = [each for each in self._running if not each.done]
        if self.scheduling.prefill_first:
            return self._prompts_alone() or [self._take(each, 1) for each in self._running]
        batch: list[Share] = []
        left, preempted = self.scheduling.budget, False
        for sequence in list(self._running):
            if sequence not in self._running:
                continue
            tokens = min(self._wanted(sequence), left)
            while tokens and not self._fits(tokens) and len(self._running) > 1:
                preempted = True
                victim = self._preempt()
                batch = [share for share in batch if share.sequence is not victim]
                tokens = 0 if victim is sequence else tokens
            if tokens:
                batch.append(self._take(sequence, tokens))
                left -= tokens
        return batch if preempted else batch + self._join(left)

    def _prompts_alone(self) -> list[Share]:
        left, batch = self.scheduling.budget, []
        for sequence in self._running:
            if sequence.prefilling and left:
                batch.append(self._take(sequence, min(sequence.target - sequence.computed, left)))
                left -= batch[-1].tokens
        return batch + self._join(left)

    def _join(self, left: int) -> list[Share]:
        batch = []
        while self._waiting and left > 0 and len(self._running) < self.scheduling.seats:
            sequence = self._waiting[0]
            if not sequence.computed:
                sequence.computed = self._known(sequence)
            tokens = self._wanted(sequence)
            if not self._fits(sequence.target - sequence.computed) or (tokens > left and not self.scheduling.chunked):
                sequence.computed = 0
                break
            if not sequence.recomputes:
                sequence.job.uncached += sequence.target - sequence.computed
            self._running.append(self._waiting.popleft())
            batch.append(self._take(sequence, min(tokens, left)))
            left -= batch[-1].tokens
        return batch

    def _wanted(self, sequence: Sequence) -> int:
        if not sequence.prefilling:
            return 1
        rest = sequence.target - sequence.computed
        return min(rest, self.scheduling.slice) if self.scheduling.slice else rest

    def _known(self, sequence: Sequence) -> int:
        """Tokens at its beginning that are in the cache: whole blocks, and never all."""
        job, block = sequence.job, self.scheduling.block
        if not self.scheduling.prefix_caching:
            return 0
        known = job.prompt - 1 if sequence.choice else job.shared if job.shared in self._cached else 0
        return min(known, job.prompt - 1) // block * block

    def _used(self) -> int:
        return sum(each.computed for each in self._running)

    def _fits(self, tokens: int) -> bool:
        return self._used() + tokens <= self.scheduling.cache_tokens

    def _preempt(self) -> Sequence:
        victim = self._running.pop()
        victim.recomputes = victim.recomputes or not victim.prefilling
        victim.target, victim.computed = victim.job.prompt + victim.planned, 0
        self._waiting.appendleft(victim)
        self._preemptions += 1
        self.preempted.add(victim)
        return victim

    def _take(self, sequence: Sequence, tokens: int) -> Share:
        prompt = sequence.prefilling
        at = sequence.computed
        sequence.computed += tokens
        emits = not sequence.prefilling
        if not prompt:
            sequence.target += 1
        sequence.planned += emits
        if emits and prompt:
            self._cached.add(sequence.job.shared)
        recomputed = sequence.recomputes
        if emits:
            sequence.recomputes = False
        return Share(sequence, tokens, at, prompt, prompt and recomputed, emits)

    # --- What it takes ---

    def _carry_out(self, batch: list[Share], now: float) -> float:
        speed = self.speed
        factor = max(0.8, self.rng.gauss(1.0, speed.noise))
        clear = (speed.base + speed.per_sequence * len(batch)) * factor
        prefill = recomputing = 0.0
        prompts: dict[str, int] = {}
        for share in batch:
            if share.prompt:
                depth = 1 + (share.at + share.tokens / 2) / speed.attention_tokens
                cost = speed.per_prompt_token * share.tokens * depth * factor
                if share.recomputed:
                    recomputing += cost
                else:
                    prefill += cost
                    prompts[share.sequence.job.name] = prompts.get(share.sequence.job.name, 0) + share.tokens
        end, stopped = now + clear + prefill + recomputing, 0.0
        for since, until in self.stops:
            if since < end and until > now:
                stopped += until - max(since, now)
                end += until - max(since, now)
        members = frozenset(share.sequence for share in batch)
        self.steps.append(Step(now, end, clear, prefill, recomputing, stopped, prompts, members))
        for share in batch:
            if share.emits and not share.sequence.given_up:
                share.sequence.made += 1
                self.tokens.append(Token(share.sequence, end, len(self.steps) - 1))
        return end

    def _note(self, now: float) -> None:
        usage = min(1.0, self._used() / self.scheduling.cache_tokens)
        self.states.append(State(now, len(self._running), len(self._waiting), usage, self._preemptions))


def clear_step(ranks: Iterable[Rank]) -> float:
    """Median of the steps that had nobody's prompt in them and were not held up."""
    took = sorted(step.clear for rank in ranks for step in rank.steps if not step.prefill and not step.stopped)
    return took[len(took) // 2] if took else 20.0


def spans(rng: random.Random, every: Span, length: Span, until: float, since: float = 6000.0) -> Iterator[Span]:
    at = since + rng.uniform(0, every[0])
    while at < until - length[1]:
        span = (at, at + rng.uniform(*length))
        yield span
        at = span[1] + rng.uniform(*every)
