"""What a probe does and the most that it can cost; both are said before anything is sent."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from prefillwatch.analysis.settings import StallRule
from prefillwatch.errors import ConfigError
from prefillwatch.lab.arrivals import Schedule
from prefillwatch.lab.prompts import LARGEST_TEMPLATE, learning_tokens
from prefillwatch.report import duration

#: Room for a victim's prompt, a sentence or two and the chat template, in tokens.
VICTIM_PROMPT_TOKENS: Final = 256
#: Seconds in which victims must have begun to stream.
START_LIMIT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class ProbeSettings:
    """One run is made for every size in `prompt_tokens`, and all of it `repeats` times over."""

    victims: int = 6
    #: Long prompts sent at once.
    inject: int = 12
    prompt_tokens: tuple[int, ...] = (6000,)
    repeats: int = 1
    warmup_seconds: float = 3.0
    #: After the first token of the last long prompt.
    recovery_seconds: float = 5.0
    #: Of a long prompt.
    answer_tokens: int = 16
    #: Prompts and answers of one victim in one run; when they are used up it falls silent.
    victim_tokens: int = 8192
    #: The long prompts are abandoned after this long.
    injection_seconds: float = 120.0
    max_tokens: int = 2_000_000
    max_seconds: float = 900.0
    stall: StallRule = field(default_factory=StallRule)
    #: Prompts and answers as recorded traffic had them, in place of `inject` prompts at once. The other two are then
    #: `len(arrivals.arrivals)` and the size of the longest: see `of_arrivals`.
    arrivals: Schedule | None = None
    #: Recorded arrivals that were longer than the model takes.
    arrivals_left_out: int = 0
    #: What the server is called in the report, such as "chunked prefill off".
    label: str = ""
    #: The same seed makes the same prompts, which a server may then have in its prefix cache.
    seed: str = ""

    def __post_init__(self) -> None:
        _check(self)

    def of_arrivals(self, schedule: Schedule) -> ProbeSettings:
        """The same with recorded arrivals in place of the prompts at once."""
        longest = max(arrival.prompt_tokens for arrival in schedule.arrivals)
        return replace(self, arrivals=schedule, inject=len(schedule.arrivals), prompt_tokens=(longest,))

    @property
    def arriving_seconds(self) -> float:
        """From the first long prompt sent to the last."""
        return self.arrivals.seconds if self.arrivals else 0.0

    @property
    def runs(self) -> int:
        return len(self.prompt_tokens) * self.repeats


@dataclass(frozen=True, slots=True)
class Plan:
    """Bounds on what will be sent. Tokens are those of prompts and answers together."""

    long_prompt_tokens: int
    victim_tokens: int
    #: Including the rehearsal.
    learning_tokens: int
    shortest_seconds: float
    longest_seconds: float

    @property
    def tokens(self) -> int:
        return self.long_prompt_tokens + self.victim_tokens + self.learning_tokens

    def sentence(self) -> str:
        return (
            f"at most {self.tokens:,} tokens ({self.long_prompt_tokens:,} of long prompts and their answers, "
            f"{self.victim_tokens:,} of victims, {self.learning_tokens:,} to get to know the server), "
            f"between {duration(self.shortest_seconds)} and {duration(self.longest_seconds)}"
        )


def plan(settings: ProbeSettings) -> Plan:
    """The bounds of a probe. Raises ConfigError when they are beyond what the settings allow."""
    shortest = settings.runs * (settings.warmup_seconds + settings.arriving_seconds + settings.recovery_seconds)
    longest = shortest + settings.runs * (START_LIMIT_S + settings.injection_seconds)
    planned = Plan(
        long_prompt_tokens=_long_prompt_tokens(settings),
        victim_tokens=settings.runs * settings.victims * settings.victim_tokens,
        learning_tokens=learning_tokens() + max(settings.prompt_tokens) + 1,
        shortest_seconds=shortest,
        longest_seconds=min(longest, settings.max_seconds),
    )
    if planned.tokens > settings.max_tokens:
        raise ConfigError(
            f"the probe may send up to {planned.tokens:,} tokens, more than --max-tokens {settings.max_tokens:,} "
            "allows; allow more, or take fewer prompts, sizes, repeats or victims"
        )
    if planned.shortest_seconds > settings.max_seconds:
        raise ConfigError(
            f"the probe takes at least {duration(shortest)}, more than --max-time {duration(settings.max_seconds)} "
            "allows; allow more, or take fewer sizes or repeats, or a shorter warm-up or recovery"
        )
    return planned


def fitted(settings: ProbeSettings, max_model_len: int | None) -> ProbeSettings:
    """The same settings without the recorded arrivals that the model cannot take. Raises ConfigError when it cannot
    take the longest prompt, or none of the arrivals."""
    if settings.arrivals:
        kept = settings.arrivals.fitting(max_model_len)
        if not kept.arrivals:
            raise ConfigError(f"none of the recorded arrivals fits the model's context of {max_model_len:,}")
        left_out = settings.arrivals_left_out + len(settings.arrivals.arrivals) - len(kept.arrivals)
        return replace(settings.of_arrivals(kept), arrivals_left_out=left_out)
    longest = max(settings.prompt_tokens) + settings.answer_tokens
    if max_model_len is not None and longest > max_model_len:
        raise ConfigError(
            f"a prompt of {max(settings.prompt_tokens):,} tokens and {settings.answer_tokens} tokens of answer do not "
            f"fit the model's context of {max_model_len:,}; take a smaller --prompt-tokens"
        )
    return settings


def _long_prompt_tokens(settings: ProbeSettings) -> int:
    if settings.arrivals:
        return settings.repeats * settings.arrivals.most_tokens(LARGEST_TEMPLATE)
    each = sum(tokens + settings.answer_tokens for tokens in settings.prompt_tokens)
    return settings.repeats * settings.inject * each


def _check(settings: ProbeSettings) -> None:
    for name in ("victims", "inject", "repeats", "answer_tokens", "victim_tokens"):
        if getattr(settings, name) < 1:
            raise ConfigError(f"{name} must be at least 1, not {getattr(settings, name)}")
    for name in ("warmup_seconds", "recovery_seconds", "injection_seconds", "max_seconds"):
        if not 0 < getattr(settings, name) < float("inf"):
            raise ConfigError(f"{name} must be a time above 0, not {getattr(settings, name)}")
    if settings.victim_tokens < 2 * VICTIM_PROMPT_TOKENS:
        raise ConfigError(f"victim_tokens must be at least {2 * VICTIM_PROMPT_TOKENS}, prompt included")
    if not settings.prompt_tokens or min(settings.prompt_tokens) < 1:
        raise ConfigError("prompt_tokens must name at least one size, each of 1 token or more")
