"""Which steps a prompt rode in, given the step that made its first token.

The engine serves prompts in order, each step up to its token budget, and goes on with a prompt it has begun in every
step until it is done. So a prompt's steps are a run without a hole that ends with the step of its first token, every
one of them but the last long enough for all the prompt tokens it had room for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from prefillwatch.analysis.cost import StepCost

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

UNLIMITED = 1 << 40

TOO_SHORT = 0.5
"""A step shorter than this part of what its tokens should cost did not carry them."""

TOO_LONG = 2.0
"""A step carries at most so many times the tokens that its time should pay for."""

NEARLY = 0.1
"""A size estimated this well does no harm."""

FULL = 0.99
"""A step with so much of its budget used is full."""

CLEAR_AT_LEAST = 0.6
"""A step shorter than this part of a clear one is a splinter of another and proves nothing."""

EXPLAINED = 0.75
"""A step whose known prompts should take so much of its time has no unknown ones."""


@dataclass(slots=True, eq=False)
class Prompt:
    """A request between being sent and its place in the timeline becoming final."""

    rid: Hashable
    sent_ns: int
    tokens: int
    uncached: int
    group: Hashable = None
    streamed: bool = True
    sure: bool = False
    """Usage has told the size."""
    placed_size: int = 0
    """Uncached tokens that were assumed when it was placed."""
    blind: bool = False
    """Reads were lost while it waited: where it was served is unknown."""
    first_ns: int | None = None
    gone_ns: int | None = None
    engine_prefill_ns: int | None = None
    engine_start_ns: int | None = None
    told: int = 0
    """Tokens that the engine itself told of."""
    guessed: int = 0
    """Tokens given to it by guesses, before its first token told."""

    @property
    def is_over(self) -> bool:
        return self.first_ns is not None or self.gone_ns is not None

    @property
    def was_right(self) -> bool:
        """Whether it was placed with the size that turned out to be true."""
        return self.sure and abs(self.uncached - self.placed_size) <= NEARLY * self.uncached

    @property
    def cached(self) -> int:
        """Prompt tokens the engine found in its cache."""
        return self.tokens - self.uncached

    @property
    def over_ns(self) -> int:
        """When it stopped waiting; only for one that did."""
        over_ns = self.first_ns if self.gone_ns is None else self.gone_ns
        assert over_ns is not None
        return over_ns


@dataclass(slots=True, eq=False)
class OpenStep:
    """A step of the heartbeat while its riders are worked out."""

    start_ns: int
    end_ns: int
    decoders: int
    clear_ns: int
    """What the step would have taken without a prompt."""
    long: bool
    observed: bool = True
    """False: no stream was decoding; the step was made up from first tokens."""
    told: bool = False
    """The engine itself told what rode in it."""
    used: int = 0
    used_ns: float = 0.0
    """What its riders should cost."""
    released: list[Prompt] = field(default_factory=list)
    """Prompts whose first tokens it made."""
    riders: list[tuple[Prompt, int]] = field(default_factory=list)
    token_contexts: float = 0.0
    """Tokens of its riders times the context before each of them."""
    guesses: list[tuple[Prompt, int]] = field(default_factory=list)

    def blank(self) -> OpenStep:
        """The same step without riders."""
        return OpenStep(self.start_ns, self.end_ns, self.decoders, self.clear_ns, self.long, self.observed)

    @property
    def excess_ns(self) -> int:
        """Time beyond a clear step: what the prompts in it cost."""
        return max(0, self.end_ns - self.start_ns - self.clear_ns)

    @property
    def is_clear(self) -> bool:
        """Whether it shows that the engine made a step without a prompt."""
        return not self.long and self.end_ns - self.start_ns >= CLEAR_AT_LEAST * self.clear_ns

    def covers(self, at_ns: int) -> bool:
        return self.start_ns < at_ns <= self.end_ns

    @property
    def largest(self) -> int:
        """Size of the largest prompt in it; by guess as long as nothing is known."""
        aboard = [prompt.tokens for prompt, _ in self.riders or self.guesses]
        return max(aboard + [prompt.tokens for prompt in self.released], default=0)

    def board(self, prompt: Prompt, tokens: int, before: int, cost: StepCost) -> None:
        """Give a prompt a place for some of its tokens, which follow ``before`` others in the KV cache."""
        self.used += tokens
        self.used_ns += cost.expect_ns(tokens, before)
        self.token_contexts += tokens * (before + tokens / 2)
        self.riders.append((prompt, tokens))


@dataclass(frozen=True, slots=True)
class Engine:
    """What has been learned about the engine so far."""

    budget: int = 0
    """Tokens per step, decoders included; 0: unknown."""
    cap: int = UNLIMITED
    """Tokens of one prompt per step."""
    chunked: bool = True
    proven: bool = False
    """Steps were seen that a larger budget would have made otherwise; else the budget may be larger."""
    cost: StepCost = field(default_factory=StepCost)

    def room(self, beat: OpenStep) -> int:
        """Prompt tokens the step could still take."""
        if not self.budget:
            return UNLIMITED
        return max(0, self.budget - beat.decoders - beat.used)

    def chunk(self, beat: OpenStep) -> int:
        """Tokens of one more prompt that the step could take."""
        return min(self.cap, self.room(beat))

    def fitting(self, beat: OpenStep, prompt: Prompt, tokens: int) -> int:
        """How many of these tokens of a prompt the step had room for, and time. Where the time was far too short,
        only as many as it paid for: the others were in the cache, unless usage has told better."""
        tokens = min(tokens, self.chunk(beat))
        if (prompt.sure and prompt.first_ns is not None) or not self.cost.trusted:
            return tokens
        if beat.used_ns + self.cost.expect_ns(tokens) <= TOO_LONG * max(beat.excess_ns, beat.clear_ns):
            return tokens
        return max(0, min(tokens, self.cost.tokens_in(beat.excess_ns - beat.used_ns)))

    def fills(self, beat: OpenStep) -> bool:
        """Whether known prompts leave a step no room for others."""
        return bool(self.budget) and beat.used >= FULL * (self.budget - beat.decoders)

    def explains(self, beat: OpenStep) -> bool:
        """Whether known prompts leave a step no room or no time for others."""
        return self.fills(beat) or (self.cost.known and beat.used_ns >= EXPLAINED * beat.excess_ns)


def place(beats: Sequence[OpenStep], last: int, prompt: Prompt, engine: Engine) -> int:
    """Put a prompt into its steps; ``last`` is the index of the one that made its first token. Returns the first."""
    lowest = _lowest(beats, last, prompt, engine)
    if engine.budget:
        first = _first(beats, lowest, last, prompt, engine)
        _board_in_order(beats[first : last + 1], prompt, engine)
    else:
        first = lowest
        _board_by_time(beats[first : last + 1], prompt, engine.cost)
    return first


def fill_up(beat: OpenStep, prompt: Prompt, rest: int, engine: Engine) -> int:
    """Give what room and time a long step has left to a prompt whose first token never shows. Returns its new rest."""
    there = prompt.sent_ns <= beat.start_ns and (prompt.gone_ns is None or prompt.gone_ns > beat.start_ns)
    if not beat.long or not there:
        return rest
    tokens = engine.fitting(beat, prompt, rest)
    if tokens:
        beat.board(prompt, tokens, prompt.tokens - rest, engine.cost)
    return rest - tokens


def place_gone(beats: Sequence[OpenStep], prompt: Prompt, engine: Engine) -> None:
    """Put a prompt whose client left into what room and time the steps had left until then."""
    rest = prompt.uncached
    for beat in beats:
        if rest <= 0 or beat.start_ns >= prompt.over_ns:
            break
        rest = fill_up(beat, prompt, rest, engine)


def _lowest(beats: Sequence[OpenStep], last: int, prompt: Prompt, engine: Engine) -> int:
    """The earliest step the prompt can have been in: after it arrived, in a run of steps that had room and time."""
    first = last
    while first > 0 and engine.chunked and may_carry(beats[first - 1], prompt, engine):
        first -= 1
    return first


def may_carry(beat: OpenStep, prompt: Prompt, engine: Engine) -> bool:
    """Whether the step may have carried a chunk of the prompt without finishing it.

    A prompt that the engine has begun gets all the room there is, so the step must be long enough for that.
    """
    if not beat.long or beat.start_ns < prompt.sent_ns:
        return False
    if not engine.budget:
        return not engine.explains(beat)
    chunk = min(prompt.uncached, engine.chunk(beat))
    return chunk > 0 and beat.excess_ns >= TOO_SHORT * (beat.used_ns + engine.cost.expect_ns(chunk))


def _first(beats: Sequence[OpenStep], lowest: int, last: int, prompt: Prompt, engine: Engine) -> int:
    """The earliest step from which on the prompt would have finished in its last step, not before."""
    before_last = 0
    first = last
    for index in range(last - 1, lowest - 1, -1):
        before_last += engine.chunk(beats[index])
        if before_last >= prompt.uncached:
            break  # begun there, it would have been done before
        first = index
    return first


def _board_in_order(beats: Sequence[OpenStep], prompt: Prompt, engine: Engine) -> None:
    """Fill the steps from the first on; the last one takes the rest, as far as it was long enough for it."""
    done = 0
    for beat in beats[:-1]:
        chunk = min(engine.chunk(beat), prompt.uncached - 1 - done)
        if chunk > 0:
            beat.board(prompt, chunk, prompt.cached + done, engine.cost)
            done += chunk
    rest = max(1, engine.fitting(beats[-1], prompt, prompt.uncached - done))
    beats[-1].board(prompt, rest, prompt.cached + done, engine.cost)


def _board_by_time(beats: Sequence[OpenStep], prompt: Prompt, cost: StepCost) -> None:
    """Without a known budget the tokens go by the time the steps took."""
    total_ns = sum(beat.excess_ns for beat in beats) or 1
    for beat in beats:
        beat.board(prompt, max(1, round(prompt.uncached * beat.excess_ns / total_ns)), 0, cost)
