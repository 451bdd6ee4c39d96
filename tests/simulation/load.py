"""What an engine is asked in one run: some who chat all the time, and prompts that come in between."""

from __future__ import annotations

import random
from collections.abc import Iterator

from tests.simulation.engine import Job, Speed
from tests.simulation.shapes import Shape

FIRST_PROMPT = 4000.0
SIZES = (60, 150, 300, 300, 800, 1500, 2500, 4000, 6000)
BUSY = 0.45  # share of its time in which an engine reads prompts, at most


def speed(rng: random.Random) -> Speed:
    return Speed(base=rng.uniform(9, 25), per_prompt_token=rng.uniform(0.06, 0.2))


def load(shape: Shape, pace: Speed, rng: random.Random, until: float, quiet: bool = False) -> list[Job]:
    """``quiet``: nobody asks but those who chat."""
    jobs = []
    for number in range(shape.crowd + rng.randint(3, 8)):
        answer = round(until / pace.base)
        jobs.append(Job(f"chat-{number}", 50.0 * number + rng.uniform(0, 30), rng.randint(20, 200), answer))
    at = 1000.0
    while shape.passers_by and at < until - 4000.0:
        jobs.append(Job(f"passer-by-{len(jobs)}", at, rng.randint(200, 500), rng.randint(300, 700)))
        at += rng.uniform(0.5, 1.5) * shape.passers_by
    if not quiet:
        arrive = rng.choice((_alone, _together, _steadily))
        jobs += [_prompt(shape, rng, number, at) for number, at in enumerate(arrive(rng, pace, until - 4000.0))]
    for number, job in enumerate(jobs):
        job.rank = number % shape.ranks
    return jobs


def _prompt(shape: Shape, rng: random.Random, number: int, at: float) -> Job:
    tokens = rng.choice(SIZES)
    shared = shape.shared if shape.shared and rng.random() < 0.7 else 0
    job = Job(f"prompt-{number}", at, tokens + shared, rng.randint(4, 60), shape.choices, shared)
    job.streams = rng.random() >= shape.in_json
    if rng.random() < shape.leaving:
        job.leaves = at + rng.uniform(50, 900)
    return job


def _alone(rng: random.Random, pace: Speed, until: float) -> Iterator[float]:
    at = FIRST_PROMPT
    while at < until:
        yield at
        at += rng.uniform(1500, 4000)


def _together(rng: random.Random, pace: Speed, until: float) -> Iterator[float]:
    at = FIRST_PROMPT
    while at < until:
        yield from (at + 8 * rng.random() for _ in range(rng.randint(3, 7)))
        at += rng.uniform(6000, 9000)


def _steadily(rng: random.Random, pace: Speed, until: float) -> Iterator[float]:
    usual = pace.per_prompt_token * sum(SIZES) / len(SIZES)
    at = FIRST_PROMPT
    while at < until:
        yield at
        at += rng.expovariate(1.0) * usual / BUSY
