"""Which steps a prompt rode in, given the step that made its first token.

The engine serves prompts in order, each step up to its token budget, and goes on with a prompt it has begun in every
step until it is done. So a prompt's steps are a run without a hole that ends with the step of its first token, every
one of them but the last long enough for all the prompt tokens it had room for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

UNLIMITED = 1 << 40

TOO_SHORT = 0.5
"""A step shorter than this part of what its tokens should cost did not carry them."""

TOO_LONG = 2.0
"""What a step may hold beyond its time, given the learned cost per token."""


MUCH_MORE = 1.4
"""A step that took so many times what a full step costs held more than the supposed budget."""


@dataclass(slots=True, eq=False)
class Prompt:
    """A request between being sent and its place in the timeline becoming final."""

    rid: Hashable
    sent_ns: int
    tokens: int
    uncached: int
    group: Hashable = None
    streamed: bool = True
    blind: bool = False
    """Reads were lost while it waited: where it was served is unknown."""
    first_ns: int | None = None
    gone_ns: int | None = None
    engine_prefill_ns: int | None = None
    engine_start_ns: int | None = None
    guessed: int = 0
    """Tokens given to it by guesses, before its first token told."""

    @property
    def over_ns(self) -> int:
        """When it stopped waiting; only for one that did."""
        over_ns = self.first_ns if self.gone_ns is None else self.gone_ns
        assert over_ns is not None
        return over_ns


@dataclass(slots=True, eq=False)
class Beat:
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
    released: list[Prompt] = field(default_factory=list)
    """Prompts whose first tokens it made."""
    riders: list[tuple[Prompt, int]] = field(default_factory=list)
    guesses: list[tuple[Prompt, int]] = field(default_factory=list)

    @property
    def excess_ns(self) -> int:
        """Time beyond a clear step: what the prompts in it cost."""
        return max(0, self.end_ns - self.start_ns - self.clear_ns)

    @property
    def largest(self) -> int:
        """Size of the largest prompt in it; by guess as long as nothing is known."""
        aboard = [prompt.tokens for prompt, _ in self.riders or self.guesses]
        return max(aboard + [prompt.tokens for prompt in self.released], default=0)

    def board(self, prompt: Prompt, tokens: int) -> None:
        self.used += tokens
        self.riders.append((prompt, tokens))


@dataclass(frozen=True, slots=True)
class Engine:
    """What has been learned about the engine so far; zero: unknown."""

    budget: int = 0
    cost_ns: float = 0.0
    """Nanoseconds of step time per uncached prompt token."""
    chunked: bool = True

    def room(self, beat: Beat) -> int:
        """Prompt tokens the step could still take. A step far longer than a full one refutes the budget."""
        if not self.budget:
            return UNLIMITED
        in_time = self.tokens_in(beat.excess_ns)
        full = in_time if UNLIMITED > in_time > MUCH_MORE * self.budget else self.budget - beat.decoders
        return max(0, full - beat.used)

    def tokens_in(self, excess_ns: int) -> int:
        """Prompt tokens that take this long; UNLIMITED while the cost is unknown."""
        return round(excess_ns / self.cost_ns) if self.cost_ns else UNLIMITED


def place(beats: Sequence[Beat], last: int, prompt: Prompt, engine: Engine) -> int:
    """Put a prompt into its steps; ``last`` is the index of the one that made its first token. Returns the first."""
    lowest = _lowest(beats, last, prompt, engine)
    first = _first(beats, lowest, last, prompt, engine)
    if first < last and not engine.budget:
        _board_by_time(beats[first : last + 1], prompt)
    else:
        _board_in_order(beats[first : last + 1], prompt, engine)
    return first


def _lowest(beats: Sequence[Beat], last: int, prompt: Prompt, engine: Engine) -> int:
    """The earliest step the prompt can have been in: after it arrived, and in a run of steps that had room and time."""
    first = last
    while first > 0 and engine.chunked and may_carry(beats[first - 1], prompt, engine):
        first -= 1
    return first


def may_carry(beat: Beat, prompt: Prompt, engine: Engine) -> bool:
    """Whether the step may have carried a chunk of the prompt without finishing it.

    A prompt that the engine has begun gets all the room there is, so the step must be long enough for that.
    """
    if not beat.long or beat.start_ns < prompt.sent_ns:
        return False
    chunk = min(prompt.uncached, engine.room(beat))
    if chunk <= 0:
        return False
    if chunk >= UNLIMITED or not engine.cost_ns:
        return True
    return beat.excess_ns >= TOO_SHORT * engine.cost_ns * (beat.used + (chunk if engine.budget else 1))


def _first(beats: Sequence[Beat], lowest: int, last: int, prompt: Prompt, engine: Engine) -> int:
    """The earliest step from which on the prompt would have finished in its last step, not before."""
    if not engine.budget:
        return lowest
    before_last = 0
    first = last
    for index in range(last - 1, lowest - 1, -1):
        before_last += engine.room(beats[index])
        if before_last >= prompt.uncached:
            break  # begun there, it would have been done before
        first = index
    return first


def _board_in_order(beats: Sequence[Beat], prompt: Prompt, engine: Engine) -> None:
    """Fill the steps from the first on; the last one takes the rest, as far as it was long enough for it."""
    rest = prompt.uncached
    for beat in beats[:-1]:
        chunk = min(engine.room(beat), rest - 1)
        if chunk > 0:
            beat.board(prompt, chunk)
            rest -= chunk
    beats[-1].board(prompt, max(1, min(rest, capacity(beats[-1], engine))))


def capacity(beat: Beat, engine: Engine) -> int:
    """Prompt tokens for which a step has room and time left."""
    if not engine.cost_ns:
        return engine.room(beat)
    in_time = round(TOO_LONG * engine.tokens_in(max(beat.excess_ns, beat.clear_ns))) - beat.used
    return max(0, min(engine.room(beat), in_time))


def _board_by_time(beats: Sequence[Beat], prompt: Prompt) -> None:
    """Without a known budget the tokens go by the time the steps took."""
    total_ns = sum(beat.excess_ns for beat in beats) or 1
    for beat in beats:
        beat.board(prompt, max(1, round(prompt.uncached * beat.excess_ns / total_ns)))
