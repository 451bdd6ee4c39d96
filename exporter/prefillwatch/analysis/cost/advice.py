"""What step budget keeps the gaps under their target, what it costs in TTFT, and when there is nothing to advise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from prefillwatch.analysis.cost.costmodel import FEWEST_MIXED, StepLaw

#: A law that explains less than this of the step times carries no advice.
WORST_FIT: Final = 0.5
#: Beyond so many times the fullest step seen the law is a guess.
FARTHEST: Final = 4
#: A full step that takes no more than so many clear ones is an effect that nobody notices.
HARDLY: Final = 2.0
#: Budgets are advised in multiples of a KV block.
_GRAIN: Final = 16


@dataclass(frozen=True, slots=True)
class Engine:
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


def advise(law: StepLaw | None, target_s: float, engine: Engine, longest_prompt: int, steps_seen: int = 0) -> Advice:
    """Advice for one model."""
    reason = _no_advice(law, target_s, engine, steps_seen)
    if reason is not None or law is None:
        return Advice(reason or "no advice")
    room = int((target_s - law.base_s) / law.token_s)
    if room > FARTHEST * law.largest:
        return Advice(
            f"no advice: even steps of {FARTHEST * law.largest} prompt tokens, {FARTHEST} times the fullest seen, "
            f"stay under the target of {_ms(target_s)}"
        )
    tokens = (engine.decoding + room) // _GRAIN * _GRAIN
    return _advice(law, target_s, engine, longest_prompt, max(tokens, engine.decoding + 1))


def _no_advice(law: StepLaw | None, target_s: float, engine: Engine, steps_seen: int) -> str | None:
    if law is None:
        return f"no advice yet: {steps_seen} engine steps with prompts were seen, at least {FEWEST_MIXED} are needed"
    full = _full_step(law, engine)
    if law.step_s(full) <= HARDLY * law.base_s:
        return (
            f"no advice needed: on this model a step with {full} prompt tokens takes {_ms(law.step_s(full))} instead "
            f"of {_ms(law.base_s)}, so prompts hardly slow anybody down"
        )
    if law.fit < WORST_FIT:
        return f"no advice: prompt tokens explain only {law.fit:.0%} of the step times, so something else decides them"
    if law.base_s + law.token_s * _GRAIN >= target_s:
        return (
            f"no budget keeps the gap under {_ms(target_s)}: a step without any prompt takes {_ms(law.base_s)} already"
        )
    return None


def _full_step(law: StepLaw, engine: Engine) -> int:
    """Prompt tokens of the fullest step that is to be expected."""
    return max(law.largest, engine.budget - engine.decoding if engine.chunked else 0)


def _advice(law: StepLaw, target_s: float, engine: Engine, longest_prompt: int, tokens: int) -> Advice:
    full = _full_step(law, engine)
    now_s = _first_token_s(law, longest_prompt, full)
    then_s = _first_token_s(law, longest_prompt, min(full, tokens - engine.decoding))
    if law.step_s(full) <= target_s:
        words = f"a full step takes {_ms(law.step_s(full))}, within the target; up to {tokens} tokens per step would be"
    else:
        switch = "" if engine.chunked else "with chunked prefill on, "
        words = (
            f"{switch}max_num_batched_tokens={tokens} keeps gaps under {_ms(target_s)} (a full step takes "
            f"{_ms(law.step_s(full))} now); a prompt of {longest_prompt} tokens then has its first token after "
            f"{then_s:.2f} s instead of {now_s:.2f} s"
        )
    return Advice(words, tokens, longest_prompt, now_s, then_s)


def _first_token_s(law: StepLaw, prompt: int, per_step: int) -> float:
    """Time to read a prompt alone, so many tokens per step."""
    steps = max(1, math.ceil(prompt / max(1, per_step)))
    return steps * law.base_s + law.token_s * prompt


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms"
