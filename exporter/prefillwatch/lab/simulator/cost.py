"""What one engine step costs. All times are nanoseconds, fractions allowed until the sum is rounded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MICROSECOND: Final = 1_000.0


@dataclass(frozen=True, slots=True)
class CostModel:
    """Step time as a sum of parts, each with a physical reading.

    A step reads all the weights once (`base`), moves every decoding sequence by a token (`per_sequence`), and
    multiplies each prompt token through the layers (`per_prefill_token`). Attention makes a prompt token dearer the
    more context stands before it (`per_prefill_token_context`, per token of prompt and token of context). A step
    that carries any prompt at all leaves the fast decode-only path (`mixed_step`).
    """

    base: float
    per_sequence: float
    per_prefill_token: float
    per_prefill_token_context: float = 0.0
    per_decode_token_context: float = 0.0
    mixed_step: float = 0.0

    def prefill(self, start: int, tokens: int) -> float:
        """Nanoseconds for `tokens` prompt tokens that follow `start` tokens already in the KV cache."""
        mean_context = start + tokens / 2
        return tokens * (self.per_prefill_token + self.per_prefill_token_context * mean_context)
