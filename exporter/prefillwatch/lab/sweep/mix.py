"""A realistic mix: steady readers, and short chats, questions and documents that arrive meanwhile. Pure.

The same arrivals, at the same times and with the same sizes, for every setting.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from prefillwatch.errors import ConfigError
from prefillwatch.lab.arrivals import Arrival, Schedule
from prefillwatch.lab.load import CHAT, DOCUMENT, QUESTION, Kind

KINDS: Final = (CHAT, QUESTION, DOCUMENT)
#: Only a bound: no server is expected to give one reader this many.
MOST_TOKENS_PER_READER_SECOND: Final = 500
#: Prompts are made before the mix begins; a server that takes longer to count their tokens has something else wrong.
PREPARATION_LIMIT_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class MixSettings:
    """How a mix is made and played."""

    #: 0: there is no mix.
    seconds: float = 60.0
    #: Answers that stream all the time, one request after the other.
    readers: int = 4
    #: Arrivals come so many times as often as `KINDS` say, or as they did when they were recorded.
    rate: float = 1.0
    #: Arrivals that are not answered by the end are waited for, but not longer.
    drain_seconds: float = 30.0
    max_in_flight: int = 64
    seed: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.seconds < float("inf") or not 0 < self.rate < float("inf"):
            raise ConfigError("the mix needs a length of 0 or more and a rate above 0")
        if self.readers < 1:
            raise ConfigError("the mix needs at least 1 reader, whose stream is what others' prompts disturb")

    @property
    def longest_seconds(self) -> float:
        """Includes preparation: the prompts are made, and counted by the server."""
        return PREPARATION_LIMIT_S + self.seconds + self.drain_seconds

    @property
    def reader_tokens(self) -> int:
        """Of prompts and answers of one reader at most."""
        return round((self.seconds + self.drain_seconds) * MOST_TOKENS_PER_READER_SECOND)


def mix_schedule(settings: MixSettings, max_model_len: int | None = None) -> Schedule:
    """Arrivals of all kinds. A prompt that would not fit into the model with its answer is made shorter."""
    arrivals = itertools.chain(*(_arrivals(kind, settings, max_model_len) for kind in KINDS))
    return Schedule(tuple(sorted(arrivals, key=lambda arrival: arrival.at_seconds)))


def _arrivals(kind: Kind, settings: MixSettings, max_model_len: int | None) -> Iterable[Arrival]:
    rng = random.Random(f"mix {kind.name} {settings.seed}")
    at_seconds = 0.0
    while True:
        # Between half and one and a half of the average apart, so that none is long in coming.
        at_seconds += rng.uniform(0.5, 1.5) / (kind.per_second * settings.rate)
        prompt, answer = rng.randint(*kind.prompt_tokens), rng.randint(*kind.answer_tokens)
        if at_seconds >= settings.seconds:
            return
        if max_model_len is not None and prompt + answer > max_model_len:
            answer = min(answer, max_model_len // 10)
            prompt = (max_model_len - answer) * 85 // 100
        yield Arrival(at_seconds, prompt, answer)
