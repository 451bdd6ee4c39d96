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


PLENTY = 10_000_000  # tokens that a cache takes which nobody fills


@dataclass(frozen=True)
class Scheduling:
    """How an engine makes up its steps; the defaults are those of a current vLLM."""

    ahead: bool = True  # the next step is made up while one runs, so that who arrives meanwhile joins the one after
    stages: int = 1  # of a pipeline: so many steps are under way, and nobody decodes in two of them
    budget: int = 2048  # tokens per step
    chunked: bool = True
    slice: int = 0  # prompt tokens of one request per step, at most; 0: as many as fit
    prefill_first: bool = False  # a step has prompts or decoding streams, prompts first
    mixed: bool = False  # … and beside the prompts those who decode
    rests: int = 0  # steps without prompts after each with prompts, while somebody decodes
    delay: int = 0  # steps that a prompt waits for others to come, while somebody decodes
    drafts: tuple[tuple[int, int], ...] = ()  # up to so many who decode, so many guessed tokens for each
    seats: int = 128  # sequences at once
    cache_tokens: int = PLENTY
    block: int = 16
    prefix_caching: bool = False
    aborts: bool = True  # whose client left is dropped


@dataclass(frozen=True)
class Speed:
    """What a step takes."""

    base: float = 15.0
    per_sequence: float = 0.05
    per_context_token: float = 0.0  # of those who decode
    per_prompt_token: float = 0.1
    per_draft: float = 1.5  # a step of the model that guesses
    grammar: float = 4.0  # while an answer has to keep to one
    accepted: float = 0.7  # of guessed tokens, each after the one before
    attention_tokens: float = 40_000.0  # so deep into a prompt, its tokens cost twice as much
    noise: float = 0.02


@dataclass(eq=False)
class Job:
    """A request: ``prompts`` of ``prompt`` tokens each, which begin with ``shared`` tokens that others begin with, too,
    and to each of them ``choices`` answers."""

    name: str
    arrives: float
    prompt: int
    answer: int
    choices: int = 1
    shared: int = 0
    streams: bool = True
    leaves: float | None = None  # its client does
    rank: int = 0
    endpoint: str = "chat"
    prompts: int = 1
    salt: str = ""  # shares nothing with those of another
    interval: int = 1  # tokens per event that it asks for
    hidden: int = 0  # tokens at the beginning of its answer that nobody is shown
    withheld: tuple[int, int] = (0, 0)  # of the answer, from which to which; shown all at once
    encoded: float = 0.0  # milliseconds for its pictures
    grammar: bool = False
    uneven: bool = False  # each of its answers is longer than the one before
    end_held: float = 0.0  # milliseconds until the server says that it was the end
    fetched: float = 0.0  # milliseconds until its context is there from elsewhere, which costs no step anything
    compiles: float = 0.0  # milliseconds that the engine stands still when it first meets it
    background: bool = False  # goes on without its reader
    seen: bool = True  # came through us
    uncached: int = 0  # prompt tokens that it had to compute; known when it was begun

    @property
    def answers(self) -> int:
        return self.prompts * self.choices

    def answer_of(self, choice: int) -> int:
        """Tokens of one of its answers."""
        return max(self.answer * (choice + 1) // self.answers, 1) if self.uneven else self.answer

    @property
    def generated(self) -> int:
        return sum(self.answer_of(choice) for choice in range(self.answers))


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
        return self.planned >= self.job.answer_of(self.choice)


@dataclass(frozen=True)
class Share:
    """Tokens of one sequence in one step."""

    sequence: Sequence
    tokens: int
    at: int  # tokens of context before them
    prompt: bool
    recomputed: bool
    emits: int  # tokens of the answer


@dataclass(eq=False)
class Step:
    """``clear + prefill + recomputing + stopped`` are what it took."""

    start: float
    end: float
    clear: float
    prefill: float
    recomputing: float
    stopped: float
    prompts: dict[str, float]  # in tokens; pictures as many as take as long
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
    prompts_read: int = 0  # tokens of all prompts that have their first token
    prompts_answered: int = 0  # … whose answers are whole
    generated: int = 0


@dataclass(frozen=True)
class Cost:
    """What a step takes, and whose prompts that is for."""

    clear: float
    prefill: float
    recomputing: float
    stopped: float
    prompts: dict[str, float] = field(default_factory=dict)

    @property
    def total(self) -> float:
        return self.clear + self.prefill + self.recomputing + self.stopped


@dataclass
class Rank:
    """One engine process, and the log of all it did."""

    scheduling: Scheduling
    speed: Speed
    rng: random.Random
    stops: list[Span] = field(default_factory=list)
    resets: list[float] = field(default_factory=list)  # of the prefix cache
    steps: list[Step] = field(default_factory=list)
    tokens: list[Token] = field(default_factory=list)
    states: list[State] = field(default_factory=list)
    preempted: set[Sequence] = field(default_factory=set)
    unseen: set[str] = field(default_factory=set)  # requests that did not come through us

    def __post_init__(self) -> None:
        self._arriving: deque[Job] = deque()
        self._leaving: deque[tuple[float, str]] = deque()
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []
        self._under_way: deque[tuple[list[Share], float]] = deque()  # steps of a pipeline, and when each ends
        self._now = 0.0
        self._planned: list[Share] = []  # the next step, where it is made up ahead
        self._preemptions = self._read = self._answered = 0
        self._met: set[str] = set()  # requests whose prompts were begun with
        self._cached: set[tuple[int, str]] = set()
        self._since_prompts = 0  # steps
        self._held = 0  # steps that prompts were held back for

    # --- In which order steps run ---

    def run(self, jobs: Iterable[Job], until: float) -> None:
        self.expect(jobs)
        if self.scheduling.stages > 1:
            self._run_stages(until)
        else:
            self.go_on(until)

    def go_on(self, until: float) -> None:
        """From where it was: every step that begins before then. Who knows of more requests by then tells it of them,
        and lets it go on."""
        while self._now < until:
            self.meet(self._now)
            batch = self._planned if self.scheduling.ahead and self._planned else self.schedule()
            self._planned = []
            if not batch:
                if self.next_arrival >= until:
                    break
                self._now = max(self._now, self.next_arrival)
                continue
            if self.scheduling.ahead:
                self._planned = self.schedule()
            self._now = self.carry_out(batch, self._now, self.cost(batch, self._now))

    def arrives(self, job: Job) -> None:
        """One more request, not before any that it knows of."""
        self._arriving.append(job)

    @property
    def idle(self) -> bool:
        return not (self._arriving or self._waiting or self._planned or any(not each.done for each in self._running))

    def _run_stages(self, until: float) -> None:
        """A step passes all stages; the next one follows as soon as the first is free. A step that is long in one stage
        is long in each, and holds up what comes behind it."""
        now = free = last = 0.0
        stages = self.scheduling.stages
        while now < until:
            self.meet(now)
            batch = self.schedule() if len(self._under_way) < stages and free <= now else []
            if batch:
                cost = self.cost(batch, now)
                stage = (cost.clear + cost.prefill + cost.recomputing) / stages
                free = now + stage
                end = max(now + stage * stages, last + stage) + cost.stopped
                begins = max(now, last)  # what it took beyond the step before
                part = (end - cost.stopped - begins) / (stage * stages)
                spent = Cost(cost.clear * part, cost.prefill * part, cost.recomputing * part, cost.stopped)
                self.log(batch, begins, end, spent, cost.prompts)
                self._under_way.append((batch, end))
                last = end
                continue
            moments = [self._under_way[0][1]] if self._under_way else []
            moments += [free] if free > now and len(self._under_way) < stages else []
            moments += [max(self.next_arrival, now + 0.01)] if self._arriving else []
            if not moments:
                break
            now = min(moments)
            while self._under_way and self._under_way[0][1] <= now:
                self._under_way.popleft()

    def expect(self, jobs: Iterable[Job]) -> None:
        jobs = list(jobs)
        self.unseen |= {job.name for job in jobs if not job.seen}
        self._arriving = deque(sorted(jobs, key=lambda job: job.arrives + job.fetched))
        leaving = ((job.leaves, job.name) for job in self._arriving if job.leaves is not None and not job.background)
        self._leaving = deque(sorted(leaving))

    @property
    def next_arrival(self) -> float:
        return self._arriving[0].arrives + self._arriving[0].fetched if self._arriving else float("inf")

    def state(self, at: float) -> State:
        index = bisect_right(self.states, at, key=lambda state: state.at)
        return self.states[index - 1] if index else State(at, 0, 0, 0.0, 0)

    def meet(self, now: float) -> None:
        """Who has come by now, and who has gone."""
        while self.next_arrival <= now:
            job = self._arriving.popleft()
            self._waiting.extend(Sequence(job, choice, job.prompt) for choice in range(job.answers))
        if self.resets and self.resets[0] <= now:
            self._cached.clear()
            self.resets = [each for each in self.resets if each > now]
        gone = set()
        while self._leaving and self._leaving[0][0] <= now:
            gone.add(self._leaving.popleft()[1])
        if gone and self.scheduling.aborts:
            for sequence in (*self._waiting, *self._running):
                sequence.given_up = sequence.given_up or sequence.job.name in gone
            self._waiting = deque(each for each in self._waiting if not each.given_up)
            self._running = [each for each in self._running if not each.given_up]
        usage = self._used() / self.scheduling.cache_tokens
        queues = len(self._running), len(self._waiting)
        self.states.append(State(now, *queues, usage, self._preemptions, self._read, self._answered, len(self.tokens)))

    # --- What is in a step ---

    def schedule(self) -> list[Share]:
        self._running = [each for each in self._running if not each.done]
        batch = self._prompts_first() if self.scheduling.prefill_first else self._all_together()
        if any(share.prompt for share in batch):
            self._since_prompts = self._held = 0
        else:
            self._since_prompts += 1
            self._held += bool(self._waiting)
        return batch

    def _resting(self) -> bool:
        """Whether no prompt may be in the next step."""
        decoding = any(not each.prefilling for each in self._running)
        waits = self._since_prompts < self.scheduling.rests or (self._waiting and self._held < self.scheduling.delay)
        return bool(decoding and waits)

    def _all_together(self) -> list[Share]:
        batch: list[Share] = []
        left, preempted, resting = self.scheduling.budget, False, self._resting()
        busy = {share.sequence for under_way, _ in self._under_way for share in under_way if share.emits}
        for sequence in list(self._running):
            if sequence not in self._running or (resting and sequence.prefilling) or sequence in busy:
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
        return batch if preempted or resting else batch + self._join(left)

    def _prompts_first(self) -> list[Share]:
        prompts = [] if self._resting() else self._prompts_alone()
        if prompts and not self.scheduling.mixed:
            return prompts
        decoding = [each for each in self._running if not each.prefilling]
        new = {share.sequence for share in prompts}
        while len(decoding) > 1 and not self._fits(len(decoding)):
            victim = self._preempt()
            decoding = [each for each in decoding if each is not victim]
        return prompts + [self._take(each, self._wanted(each)) for each in decoding if each not in new]

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
            return 1 + self._guessed()
        rest = sequence.target - sequence.computed
        return min(rest, self.scheduling.slice) if self.scheduling.slice else rest

    def _guessed(self) -> int:
        """Tokens that are guessed for each who decodes; the more there are, the fewer."""
        if not self.scheduling.drafts:
            return 0
        decoding = sum(not each.prefilling for each in self._running)
        return next((tokens for most, tokens in self.scheduling.drafts if decoding <= most), 0)

    def _known(self, sequence: Sequence) -> int:
        """Tokens at its beginning that are in the cache: whole blocks, and never all."""
        job, block = sequence.job, self.scheduling.block
        if job.fetched:
            return job.prompt - 1
        if not self.scheduling.prefix_caching:
            return 0
        sibling = sequence.choice % job.choices > 0
        known = job.prompt - 1 if sibling else job.shared if (job.shared, job.salt) in self._cached else 0
        return min(known, job.prompt - 1) // block * block

    def _used(self) -> int:
        return sum(each.computed for each in self._running)

    def _fits(self, tokens: int) -> bool:
        return self.scheduling.cache_tokens == PLENTY or self._used() + tokens <= self.scheduling.cache_tokens

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
        if prompt:
            sequence.computed += tokens
            emits = int(not sequence.prefilling)
        else:
            emits = min(1 + self._right(tokens - 1), sequence.job.answer_of(sequence.choice) - sequence.planned)
            sequence.computed += emits
            sequence.target += emits
        sequence.planned += emits
        if emits and prompt:
            self._cached.add((sequence.job.shared, sequence.job.salt))
        recomputed = sequence.recomputes
        if emits:
            sequence.recomputes = False
        return Share(sequence, tokens, at, prompt, prompt and recomputed, emits)

    def _right(self, guessed: int) -> int:
        """How many of so many guesses are."""
        right = 0
        while right < guessed and self.rng.random() < self.speed.accepted:
            right += 1
        return right

    # --- What it takes ---

    def cost(self, batch: list[Share], now: float) -> Cost:
        speed = self.speed
        factor = max(0.8, self.rng.gauss(1.0, speed.noise))
        guessed = max((share.tokens - 1 for share in batch if not share.prompt), default=0)
        grammar = speed.grammar if any(share.sequence.job.grammar for share in batch) else 0.0
        verified = sum(1 if share.prompt else share.tokens for share in batch)
        context = sum(share.at for share in batch if not share.prompt) if speed.per_context_token else 0
        clear = speed.base + speed.per_sequence * verified + speed.per_context_token * context
        clear = (clear + speed.per_draft * guessed + grammar) * factor
        prefill = recomputing = compiling = 0.0
        prompts: dict[str, float] = {}
        for share in batch:
            if not share.prompt:
                continue
            job = share.sequence.job
            pictures = 0.0
            if job.name not in self._met:
                self._met.add(job.name)
                compiling, pictures = compiling + job.compiles, job.encoded
            depth = 1 + (share.at + share.tokens / 2) / speed.attention_tokens
            cost = (speed.per_prompt_token * share.tokens * depth + pictures) * factor
            if share.recomputed:
                recomputing += cost
            else:
                prefill += cost
                tokens = share.tokens + pictures / speed.per_prompt_token
                prompts[job.name] = prompts.get(job.name, 0) + tokens
        end, stopped = now + clear + prefill + recomputing + compiling, compiling
        for since, until in self.stops:
            if since < end and until > now:
                stopped += until - max(since, now)
                end += until - max(since, now)
        return Cost(clear, prefill, recomputing, stopped, prompts)

    def carry_out(self, batch: list[Share], now: float, cost: Cost) -> float:
        self.log(batch, now, now + cost.total, cost, cost.prompts)
        return now + cost.total

    def log(self, batch: list[Share], start: float, end: float, cost: Cost, prompts: dict[str, float]) -> None:
        members = frozenset(share.sequence for share in batch)
        self.steps.append(Step(start, end, cost.clear, cost.prefill, cost.recomputing, cost.stopped, prompts, members))
        for share in batch:
            if share.emits and not share.sequence.given_up:
                sequence, job = share.sequence, share.sequence.job
                self._read += job.prompt if not sequence.made else 0
                sequence.made += share.emits
                self._answered += job.prompt if sequence.made >= job.answer_of(sequence.choice) else 0
                self.tokens += [Token(share.sequence, end, len(self.steps) - 1)] * share.emits


def run_in_step(ranks: list[Rank], jobs: Iterable[Job], until: float) -> None:
    """Ranks of one model whose experts are spread over them: a step ends for all when the slowest is done, and who has
    nothing to do does nothing for as long."""
    jobs = list(jobs)
    for number, rank in enumerate(ranks):
        rank.unseen = {job.name for job in jobs if not job.seen}
        rank.expect(job for job in jobs if job.rank == number)
    now = 0.0
    planned: list[list[Share]] = [[] for _ in ranks]
    while now < until:
        for rank in ranks:
            rank.meet(now)
        batches = [before or rank.schedule() for rank, before in zip(ranks, planned, strict=True)]
        planned = [[] for _ in ranks]
        if not any(batches):
            now = min(rank.next_arrival for rank in ranks)
            continue
        if ranks[0].scheduling.ahead:
            planned = [rank.schedule() for rank in ranks]
        costs = [rank.cost(batch, now) for rank, batch in zip(ranks, batches, strict=True)]
        slowest = max(costs, key=lambda cost: cost.total)
        most = max(cost.prefill for cost in costs)
        # Whose prompt took at least half as long would have held up the others as well.
        reading = [cost.prompts for cost in costs if cost.prefill >= most / 2]
        prompts = {name: tokens for each in reading for name, tokens in each.items()}
        for rank, batch in zip(ranks, batches, strict=True):
            rank.log(batch, now, now + slowest.total, slowest, prompts)
        now += slowest.total


def clear_step(ranks: Iterable[Rank]) -> float:
    """Median of the steps that had nobody's prompt in them and were not held up."""
    took = sorted(step.clear for rank in ranks for step in rank.steps if not step.prefill and not step.stopped)
    return took[len(took) // 2] if took else 20.0


def spans(
    rng: random.Random, every: Span, length: Span, until: float, since: float = 4000.0, grows: float = 1.0
) -> Iterator[Span]:
    at, factor = since + rng.uniform(0, every[0]), 1.0
    while at < until - length[1] * factor:
        span = (at, at + rng.uniform(*length) * factor)
        yield span
        at = span[1] + rng.uniform(*every)
        factor *= grows
