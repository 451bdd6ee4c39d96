"""Which steps a prompt was in, given the step that made its first token.

The engine serves prompts in order, each step up to its token budget, and goes on with a prompt it has begun in every
step until it is done. So a prompt's steps are a run without a hole that ends with the step of its first token, every
one of them but the last long enough for all the prompt tokens it had room for.

Example. The budget is 2,048 tokens, 8 streams decode, a clear step takes 20 ms and a prompt token 0.1 ms. Steps of 20,
224, 224, 212 and 20 ms were seen, and the first token of a prompt of 6,000 tokens right after the fourth:

- The way back (`Packing.may_carry`): the third and the second step each had room for 2,040 tokens (2,048 less the 8
  decoders) and took the 204 ms that these cost. The first was clear; there the run begins at the earliest.
- Where it began (`_first`): two full steps before the last make 4,080 tokens, fewer than 6,000, so it was in both.
- The shares (`_fill_in_order`): 2,040, 2,040, and the rest of 1,920 in the last, which had time for that.
- What is left of the fourth step (120 tokens of room) goes to the next prompt in order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from prefillwatch.analysis.cost import StepLaw
from prefillwatch.analysis.tuning import DEFAULT, Tuning

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

UNLIMITED: Final = 1 << 40


@dataclass(slots=True, eq=False)
class Prompt:
    """A request between being sent and its place in the timeline becoming final."""

    rid: Hashable
    sent_ns: int
    tokens: int
    uncached: int
    streamed: bool = True
    #: The size is known from usage.
    sure: bool = False
    #: What steps cost was learned from it, too.
    taught: bool = False
    #: Uncached tokens that were assumed when it was placed.
    placed_size: int = 0
    #: Reads were lost while it waited: where it was served is unknown.
    blind: bool = False
    first_ns: int | None = None
    gone_ns: int | None = None
    #: Its client left, and the engine reads on.
    left_ns: int | None = None
    engine_prefill_ns: int | None = None
    engine_start_ns: int | None = None
    #: Tokens of it in the steps that the engine reported so far.
    reported: int = 0
    #: Tokens given to it by guesses, before its first token came.
    guessed: int = 0

    @property
    def is_over(self) -> bool:
        return self.first_ns is not None or self.gone_ns is not None

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

    def was_right(self, size_error: float) -> bool:
        """Whether it was placed with the size that turned out to be true, up to this part of it."""
        return self.sure and abs(self.uncached - self.placed_size) <= size_error * self.uncached


@dataclass(slots=True, eq=False)
class OpenStep:
    """A step while it is worked out which prompts were in it.

    In the example above the third step ends up with ``shares`` of one pair (the prompt, 2,040), ``tokens`` 2,040 and
    ``expected_ns`` 204 ms; its excess is 204 ms, so it is explained. ``finished`` of the fourth is the prompt.
    """

    start_ns: int
    end_ns: int
    decoders: int
    #: What the step would have taken without a prompt.
    clear_ns: int
    #: It took more than decoding does.
    long: bool
    #: False: no stream was decoding; the step was made up from first tokens.
    observed: bool = True
    #: The engine itself reported which prompts were in it.
    reported: bool = False
    #: It shows that the engine made a step without a prompt.
    is_clear: bool = False
    #: Prompt tokens in it so far.
    tokens: int = 0
    #: What these should cost.
    expected_ns: float = 0.0
    #: Prompts whose first tokens it made.
    finished: list[Prompt] = field(default_factory=list)
    #: Prompts that were in it, and how many tokens of each.
    shares: list[tuple[Prompt, int]] = field(default_factory=list)
    #: Tokens of its prompts times the context before each of them.
    token_contexts: float = 0.0
    #: What the shares probably are, from when the step was seen; for as long as nothing better is known.
    guesses: list[tuple[Prompt, int]] = field(default_factory=list)

    def emptied(self) -> OpenStep:
        """The same step before any prompt was put into it."""
        return OpenStep(self.start_ns, self.end_ns, self.decoders, self.clear_ns, self.long, self.observed)

    @property
    def excess_ns(self) -> int:
        """Time beyond a clear step: what the prompts in it cost."""
        return max(0, self.end_ns - self.start_ns - self.clear_ns)

    def covers(self, at_ns: int) -> bool:
        return self.start_ns < at_ns <= self.end_ns

    @property
    def largest(self) -> int:
        """Size of the largest prompt in it; by guess as long as nothing is known."""
        sizes = [prompt.tokens for prompt, _ in self.shares or self.guesses]
        return max(sizes + [prompt.tokens for prompt in self.finished], default=0)

    def put(self, prompt: Prompt, tokens: int, before: int, law: StepLaw) -> None:
        """Put some tokens of a prompt into the step, which follow ``before`` others in the KV cache."""
        self.tokens += tokens
        self.expected_ns += law.expect_ns(tokens, before)
        self.token_contexts += tokens * (before + tokens / 2)
        self.shares.append((prompt, tokens))


@dataclass(frozen=True, slots=True)
class Engine:
    """What has been learned about the engine so far."""

    #: Tokens per step, decoders included; 0: unknown.
    budget: int = 0
    #: Tokens of one prompt per step.
    cap: int = UNLIMITED
    chunked: bool = True
    #: Steps were seen that a larger budget would have made otherwise; else the budget may be larger.
    proven: bool = False
    cost: StepLaw = field(default_factory=StepLaw)


class Packing:
    """How this engine fills its steps, as far as it is known."""

    __slots__ = ("_rules", "_slack", "engine", "law")

    def __init__(self, engine: Engine, tuning: Tuning = DEFAULT) -> None:
        self.engine = engine
        self.law = engine.cost
        self._rules = tuning.packing
        self._slack = tuning.cost.slack

    # --- What a step has left ---

    def room(self, step: OpenStep) -> int:
        """Prompt tokens the step could still take."""
        if not self.engine.budget:
            return UNLIMITED
        return max(0, self.engine.budget - step.decoders - step.tokens)

    def chunk(self, step: OpenStep) -> int:
        """Tokens of one more prompt that the step could take."""
        return min(self.engine.cap, self.room(step))

    def fitting(self, step: OpenStep, prompt: Prompt, tokens: int) -> int:
        """How many of these tokens of a prompt the step had room for, and time. Where the time was far too short,
        only as many as it paid for: the others were in the cache, unless usage says otherwise."""
        tokens = min(tokens, self.chunk(step))
        if (prompt.sure and prompt.first_ns is not None) or not self.law.trusted:
            return tokens
        if step.expected_ns + self.law.expect_ns(tokens) <= self._slack * max(step.excess_ns, step.clear_ns):
            return tokens
        return max(0, min(tokens, self.law.tokens_in(step.excess_ns - step.expected_ns)))

    def fills(self, step: OpenStep) -> bool:
        """Whether the prompts in it leave a step no room for others."""
        budget = self.engine.budget
        return bool(budget) and step.tokens >= self._rules.full * (budget - step.decoders)

    def explains(self, step: OpenStep) -> bool:
        """Whether the prompts in it leave a step no room or no time for others."""
        return self.fills(step) or (self.law.known and step.expected_ns >= self._rules.explained * step.excess_ns)

    def too_short_ns(self, expected_ns: float) -> float:
        """A step whose time beyond a clear one is less than this did not carry tokens that should take so long."""
        return self._rules.too_short * expected_ns

    def may_carry(self, step: OpenStep, prompt: Prompt) -> bool:
        """Whether the step may have carried a chunk of the prompt without finishing it.

        A prompt that the engine has begun gets all the room there is, so the step must be long enough for that.
        """
        if not step.long or step.start_ns < prompt.sent_ns:
            return False
        if not self.engine.budget:
            return not self.explains(step)
        chunk = min(prompt.uncached, self.chunk(step))
        return chunk > 0 and step.excess_ns >= self.too_short_ns(step.expected_ns + self.law.expect_ns(chunk))

    # --- Putting prompts into steps ---

    def pack_back(self, steps: Sequence[OpenStep], last: int, prompt: Prompt) -> int:
        """Put a prompt into its steps; ``last`` is the index of the one that made its first token. Returns the index of
        the first."""
        first = last
        while first > 0 and self.engine.chunked and self.may_carry(steps[first - 1], prompt):
            first -= 1
        if self.engine.budget:
            first = self._first(steps, first, last, prompt)
            self._fill_in_order(steps[first : last + 1], prompt)
        else:
            self._fill_by_time(steps[first : last + 1], prompt)
        return first

    def fill_rest(self, step: OpenStep, prompt: Prompt, rest: int) -> int:
        """Give what room and time a long step has left to a prompt whose first token never shows. Returns its new
        rest."""
        there = prompt.sent_ns <= step.start_ns and (prompt.gone_ns is None or prompt.gone_ns > step.start_ns)
        if not step.long or not there:
            return rest
        tokens = self.fitting(step, prompt, rest)
        # Begun with, it would have had all there was room for. A law of few steps may be wrong by far: by it, only what
        # is shorter than two clear steps is too short.
        expected_ns = step.expected_ns + self.law.expect_ns(tokens)
        is_short = self.law.known and step.excess_ns < self.too_short_ns(expected_ns)
        if is_short and (self.law.trusted or step.excess_ns < step.clear_ns):
            return rest
        if tokens:
            step.put(prompt, tokens, prompt.tokens - rest, self.law)
        return rest - tokens

    def pack_gone(self, steps: Sequence[OpenStep], prompt: Prompt) -> None:
        """Put a prompt whose client left into what room and time the steps had left until then."""
        rest = prompt.uncached
        for step in steps:
            if rest <= 0 or step.start_ns >= prompt.over_ns:
                break
            rest = self.fill_rest(step, prompt, rest)

    def _first(self, steps: Sequence[OpenStep], lowest: int, last: int, prompt: Prompt) -> int:
        """The earliest step from which on the prompt would have finished in its last step, not before."""
        before_last = 0
        first = last
        for index in range(last - 1, lowest - 1, -1):
            before_last += self.chunk(steps[index])
            if before_last >= prompt.uncached:
                break  # begun there, it would have been done before
            first = index
        return first

    def _fill_in_order(self, steps: Sequence[OpenStep], prompt: Prompt) -> None:
        """Fill the steps from the first on; the last one takes the rest, as far as it was long enough for it."""
        done = 0
        for step in steps[:-1]:
            chunk = min(self.chunk(step), prompt.uncached - 1 - done)
            if chunk > 0:
                step.put(prompt, chunk, prompt.cached + done, self.law)
                done += chunk
        rest = max(1, self.fitting(steps[-1], prompt, prompt.uncached - done))
        steps[-1].put(prompt, rest, prompt.cached + done, self.law)

    def _fill_by_time(self, steps: Sequence[OpenStep], prompt: Prompt) -> None:
        """Without a known budget the tokens go by the time the steps took."""
        total_ns = sum(step.excess_ns for step in steps) or 1
        for step in steps:
            step.put(prompt, max(1, round(prompt.uncached * step.excess_ns / total_ns)), 0, self.law)
