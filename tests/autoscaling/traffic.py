"""What the fleets are asked: recorded arrivals, thinned to what a few slow engines can take, and a law of our own where
the recordings are not there.

What is kept of a recording is when its requests came and how long they and their answers were; equal beginnings of
prompts are not. The day's curve makes of its minutes a day: quiet, a rise, a peak, and the way back.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Final

from tests.foreign.files.located import file
from tests.simulation.engine import Job

from prefillwatch.lab.arrivals import Arrival, read_arrivals

#: Seconds.
LENGTH: Final = 1800.0
AZURE_CHAT: Final = "azure_conv.csv.gz"
AZURE_CODE: Final = "azure_code.csv.gz"
MOONCAKE: Final = "mooncake_conversation.jsonl.gz"


@dataclass(frozen=True)
class Scene:
    name: str
    trouble: str  # what it is made to be about
    origin: str
    jobs: Callable[[], list[Job]]
    length: float = LENGTH


def _day(part: float) -> float:
    """Share of the peak, by the part of the day that is over."""
    corners = ((0.0, 0.15), (0.2, 0.2), (0.4, 1.0), (0.65, 1.0), (0.8, 0.25), (1.0, 0.15))
    for (since, low), (until, high) in pairwise(corners):
        if part <= until:
            return low + (high - low) * (part - since) / (until - since)
    return corners[-1][1]


@cache
def _recorded(name: str) -> tuple[Arrival, ...]:
    return read_arrivals(file(f"arrivals/{name}")).arrivals


def _thinned(
    name: str, seed: str, share: Callable[[float], float], speed: float = 1.0, prompts: range = range(1, 32_000)
) -> Iterator[Job]:
    """Each request of a recording with this chance, by the part of the scene that is over."""
    rng = random.Random(seed)
    for number, each in enumerate(_recorded(name)):
        at = each.at_seconds / speed
        if at >= LENGTH:
            return
        if each.prompt_tokens in prompts and rng.random() < share(at / LENGTH):
            yield Job(f"{seed}-{number}", at * 1000.0, each.prompt_tokens, max(each.output_tokens, 2))


def _in_order(*parts: Iterator[Job]) -> list[Job]:
    return sorted((job for part in parts for job in part), key=lambda job: job.arrives)


def made(
    seed: int, length: float, rates: Callable[[float], float], longest: int = 3000, every: float = 0.0
) -> list[Job]:
    """``rates``: requests a second, by the second. ``every``: seconds between prompts of 16,000 tokens; 0: none."""
    rng = random.Random(f"made {seed}")
    jobs, at, number = [], 0.0, 0
    while at < length:
        at += rng.expovariate(rates(at))
        jobs.append(Job(f"made-{number}", at * 1000.0, rng.randint(100, longest), rng.randint(20, 150)))
        number += 1
    at = every
    while every and at < length:
        jobs.append(Job(f"long-{at}", at * 1000.0, 16_000, 40))
        at += every
    return sorted((job for job in jobs if job.arrives < length * 1000.0), key=lambda job: job.arrives)


SCENES: Final = (
    Scene(
        "a day of chat",
        "capacity is short at its peak",
        "Azure's conversations of 2023, an hour in half of one, thinned by a day's curve",
        lambda: _in_order(_thinned(AZURE_CHAT, "chat", lambda part: 0.2 * _day(part), speed=2.0)),
    ),
    Scene(
        "bursts of code",
        "capacity is short for a minute at a time",
        "Azure's code completions of 2023, the first half hour, every sixth",
        lambda: _in_order(_thinned(AZURE_CODE, "code", lambda part: 1 / 6)),
    ),
    Scene(
        "long prompts, room to spare",
        "interference",
        "Azure's conversations, thinned to what two engines take with ease, and of Mooncake's every thirtieth request "
        "of 8,000 to 32,000 tokens",
        lambda: _in_order(
            _thinned(AZURE_CHAT, "chat", lambda part: 0.08),
            _thinned(MOONCAKE, "long", lambda part: 1 / 30, prompts=range(8000, 32_000)),
        ),
    ),
    Scene(
        "a day with long prompts",
        "both",
        "the day of chat, and of Mooncake's every thirtieth request of 8,000 to 32,000 tokens",
        lambda: _in_order(
            _thinned(AZURE_CHAT, "chat", lambda part: 0.2 * _day(part), speed=2.0),
            _thinned(MOONCAKE, "long", lambda part: 1 / 30, prompts=range(8000, 32_000)),
        ),
    ),
    Scene(
        "long contexts throughout",
        "both; a third of the prompts alone takes longer than is promised",
        "Mooncake's conversations up to 32,000 tokens, an hour in half of one, thinned by a day's curve",
        lambda: _in_order(_thinned(MOONCAKE, "contexts", lambda part: 0.12 * _day(part), speed=2.0)),
    ),
)
