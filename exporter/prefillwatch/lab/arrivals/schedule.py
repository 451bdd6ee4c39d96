"""What a file of arrivals becomes: requests with times and sizes, in order."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from prefillwatch.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Hashable

#: Tokens that one of Mooncake's `hash_ids` stands for.
MOONCAKE_BLOCK: Final = 512


class ArrivalsError(ConfigError):
    """The file of arrivals cannot be used; the message names the file, the line and what to do."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request: seconds after the first one, and sizes in tokens."""

    at_seconds: float
    prompt_tokens: int
    output_tokens: int
    #: Equal ones stand for equal pieces of the prompt; empty where the file does not tell.
    blocks: tuple[Hashable, ...] = ()
    #: Tokens of each piece; the last may be cut short by the prompt's end.
    block_tokens: int = MOONCAKE_BLOCK
    #: Whose it is, where there are several; sent as the request's `user`. The same load for a server whoever it is.
    tenant: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Schedule:
    """Arrivals in order of time, the first at 0. `left_out` were in the file but not sent: failed or beyond a limit."""

    arrivals: tuple[Arrival, ...]
    left_out: int = 0
    #: What was taken for granted in reading the file, in words: units, block sizes, what was left out.
    said: tuple[str, ...] = field(default=(), compare=False)

    @property
    def seconds(self) -> float:
        """From the first arrival to the last."""
        return self.arrivals[-1].at_seconds if self.arrivals else 0.0

    @property
    def prompt_tokens(self) -> int:
        return sum(arrival.prompt_tokens for arrival in self.arrivals)

    @property
    def output_tokens(self) -> int:
        return sum(arrival.output_tokens for arrival in self.arrivals)

    def most_tokens(self, template_tokens: int) -> int:
        """Prompts and answers together, on a server whose chat template has at most so many: none is shorter."""
        return sum(max(each.prompt_tokens, template_tokens) + max(1, each.output_tokens) for each in self.arrivals)

    def fitting(self, max_model_len: int | None) -> Schedule:
        """Without those that with their answers are longer than the model takes, which are counted as left out."""
        if max_model_len is None:
            return self
        kept = tuple(each for each in self.arrivals if each.prompt_tokens + each.output_tokens <= max_model_len)
        return replace(self, arrivals=kept, left_out=self.left_out + len(self.arrivals) - len(kept))

    def since(self, seconds: float) -> Schedule:
        """Without its first so many seconds, counted as left out. Raises ConfigError where nothing is left."""
        kept = [each for each in self.arrivals if each.at_seconds >= seconds]
        if not kept:
            raise ConfigError(f"the arrivals end after {self.seconds:g} s, before {seconds:g} s; begin earlier")
        first = kept[0].at_seconds
        moved = tuple(replace(each, at_seconds=each.at_seconds - first) for each in kept)
        return replace(self, arrivals=moved, left_out=self.left_out + len(self.arrivals) - len(moved))

    def limited(
        self,
        *,
        speed: float = 1.0,
        requests: int | None = None,
        tokens: int | None = None,
        seconds: float | None = None,
        prompt_tokens: int | None = None,
    ) -> Schedule:
        """Its beginning, `speed` times as fast: not more than so many requests, tokens (prompts and answers together)
        and seconds (after speeding up), and without prompts longer than `prompt_tokens`, which the model may not take.
        """
        if not speed > 0:
            raise ConfigError(f"speed must be above 0, not {speed:g}: 2 plays arrivals twice as fast")
        kept: list[Arrival] = []
        spent = 0
        for arrival in self.arrivals:
            at_seconds = arrival.at_seconds / speed
            cost = arrival.prompt_tokens + arrival.output_tokens
            if prompt_tokens is not None and arrival.prompt_tokens > prompt_tokens:
                continue
            if len(kept) == requests or (seconds is not None and at_seconds > seconds):
                break
            if tokens is not None and spent + cost > tokens:
                break
            spent += cost
            kept.append(replace(arrival, at_seconds=at_seconds))
        return replace(self, arrivals=tuple(kept), left_out=self.left_out + len(self.arrivals) - len(kept))
