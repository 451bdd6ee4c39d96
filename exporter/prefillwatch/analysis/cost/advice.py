"""What step budget keeps the gaps under their target, what it costs in TTFT, and when there is nothing to advise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from prefillwatch.analysis.cost.law import StepLaw
from prefillwatch.analysis.tuning import DEFAULT, AdviceRules
from prefillwatch.units import NS

#: Budgets are advised in multiples of a KV block.
_GRAIN: Final = 16


@dataclass(frozen=True, slots=True)
class Server:
    """How the server runs now, as far as it shows: tokens per step (0: unknown), and streams that decode."""

    budget: int = 0
    chunked: bool = True
    decoding: int = 0


@dataclass(frozen=True, slots=True)
class Advice:
    """``tokens`` is the largest step budget that keeps the gap under the target; None without advice, and ``words`` say
    why. The times to first token are those of the longest prompt of late, now and with that budget, in seconds."""

    words: str
    tokens: int | None = None
    prompt_tokens: int = 0
    ttft_now_s: float | None = None
    ttft_then_s: float | None = None


def advise(
    law: StepLaw | None,
    target_s: float,
    server: Server,
    longest_prompt: int,
    steps_seen: int = 0,
    rules: AdviceRules = DEFAULT.advice,
    fewest_steps: int = DEFAULT.cost.fewest_steps,
) -> Advice:
    """Advice for one model, by its line (`Costs.line`). ``steps_seen`` steps with prompts are known; from
    ``fewest_steps`` on there is a line."""
    if law is None:
        return Advice(
            f"no advice yet: {steps_seen} engine steps with prompts were seen, at least {fewest_steps} are needed"
        )
    full = max(law.largest, server.budget - server.decoding if server.chunked else 0)
    full_s, base_s, token_s = law.step_ns(full) / NS, law.base_ns / NS, law.token_ns / NS
    if full_s <= rules.hardly * base_s:
        return Advice(
            f"no advice needed: on this model a step with {full} prompt tokens takes {_ms(full_s)} instead "
            f"of {_ms(base_s)}, so prompts hardly slow anybody down"
        )
    if law.fit < rules.worst_fit:
        return Advice(
            f"no advice: prompt tokens explain only {law.fit:.0%} of the step times, so something else decides them"
        )
    if base_s + token_s * _GRAIN >= target_s:
        return Advice(
            f"no budget keeps the gap under {_ms(target_s)}: a step without any prompt takes {_ms(base_s)} already"
        )
    room = int((target_s - base_s) / token_s)
    if room > rules.farthest * law.largest:
        return Advice(
            f"no advice: even steps of {rules.farthest * law.largest} prompt tokens, {rules.farthest} times the "
            f"fullest seen, stay under the target of {_ms(target_s)}"
        )
    tokens = max((server.decoding + room) // _GRAIN * _GRAIN, server.decoding + 1)
    now_s = read_alone(law, longest_prompt, full).first_token_s
    then_s = read_alone(law, longest_prompt, min(full, tokens - server.decoding)).first_token_s
    if full_s <= target_s:
        words = f"a full step takes {_ms(full_s)}, within the target; up to {tokens} tokens per step would be"
    else:
        switch = "" if server.chunked else "with chunked prefill on, "
        words = (
            f"{switch}max_num_batched_tokens={tokens} keeps gaps under {_ms(target_s)} (a full step takes "
            f"{_ms(full_s)} now); a prompt of {longest_prompt} tokens then has its first token after "
            f"{then_s:.2f} s instead of {now_s:.2f} s"
        )
    return Advice(words, tokens, longest_prompt, now_s, then_s)


@dataclass(frozen=True, slots=True)
class ReadAlone:
    """A prompt that is read alone: in how many steps, how long the longest takes, and when its first token comes."""

    steps: int
    longest_s: float
    first_token_s: float


def read_alone(law: StepLaw, prompt: int, per_step: int) -> ReadAlone:
    """By the line, so many tokens of it per step."""
    per_step = max(1, per_step)
    steps = max(1, math.ceil(prompt / per_step))
    first_token_ns = steps * law.base_ns + law.token_ns * prompt
    return ReadAlone(steps, law.step_ns(min(prompt, per_step)) / NS, first_token_ns / NS)


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms"
