"""The law of step times: what a step takes, by the prompt tokens in it.

    step = base + mixed + tokens x (token + context x (tokens before in the KV cache + tokens / 2))

``base`` is a clear step, ``mixed`` what it costs to carry any prompt at all, ``context`` is attention: a token of a
late chunk looks back at all tokens before it. Two estimators make such a law, for two uses; see `costs`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

#: More tokens than any prompt has.
WITHOUT_END: Final = 1 << 40


@dataclass(frozen=True, slots=True)
class StepLaw:
    """In nanoseconds. All zero: nothing learned yet."""

    token_ns: float = 0.0
    context_ns: float = 0.0
    mixed_ns: float = 0.0
    #: Learned from more than a few busy times.
    trusted: bool = False
    #: A step without a prompt; 0 where the law is of the excess over clear steps alone.
    base_ns: float = 0.0
    #: R squared over the steps it was learned from; 0 where it was not learned from single steps.
    fit: float = 0.0
    #: How many steps with prompts those were.
    steps: int = 0
    #: The most prompt tokens in one of them.
    largest: int = 0

    @property
    def known(self) -> bool:
        return self.token_ns > 0

    def expect_ns(self, tokens: int, before: int = 0) -> float:
        """Time beyond a clear step for so many uncached prompt tokens that follow ``before`` tokens in the KV cache."""
        if tokens <= 0:
            return 0.0
        return self.mixed_ns + tokens * (self.token_ns + self.context_ns * (before + tokens / 2))

    def step_ns(self, tokens: int) -> float:
        """The whole step."""
        return self.base_ns + self.expect_ns(tokens)

    def most_ns(self, tokens: int, cached: int, prompt: int) -> float:
        """What ``tokens`` uncached tokens of a prompt of ``prompt`` tokens, ``cached`` of them in the cache, can take:
        attention over the cached ones costs too, so these count as if they were computed."""
        most = tokens + cached
        return self.expect_ns(most, max(0, prompt - most))

    def scaled(self, factor: float) -> StepLaw:
        """Prompt tokens cost so many times as much."""
        return StepLaw(factor * self.token_ns, factor * self.context_ns, factor * self.mixed_ns, self.trusted)

    def tokens_in(self, excess_ns: float) -> int:
        """The inverse: prompt tokens, without context before them, that take so long beyond a clear step; without end
        while nothing is learned."""
        if not self.known:
            return WITHOUT_END
        rest_ns = max(0.0, excess_ns - self.mixed_ns)
        if not self.context_ns:
            return round(rest_ns / self.token_ns)
        slope = self.token_ns / self.context_ns
        return round(math.sqrt(slope**2 + 2 * rest_ns / self.context_ns) - slope)
