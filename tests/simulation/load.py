"""What an engine is asked in one run: some who chat all the time, and prompts that come in between."""

from __future__ import annotations

import random
from collections.abc import Iterator

from tests.simulation.engine import Job, Speed
from tests.simulation.shapes import Shape
from tests.simulation.wire import ONLY_READ

FIRST_PROMPT = 2500.0
SIZES = (60, 150, 300, 300, 800, 1500, 2500, 4000, 6000)
NEVER = 1e12
BUSY = 0.45  # share of its time in which an engine reads prompts, at most


def speed(shape: Shape, rng: random.Random) -> Speed:
    return Speed(
        base=rng.uniform(*shape.base),
        per_context_token=rng.choice((0.0, 0.0003, 0.001)),
        per_prompt_token=rng.uniform(0.06, 0.2),
    )


def load(shape: Shape, pace: Speed, rng: random.Random, until: float, quiet: bool = False) -> list[Job]:
    """``quiet``: nobody asks but those who chat."""
    asked, jobs = shape.asked, []
    for number in range(asked.crowd + rng.randint(2, 6)):
        answer = round(until / pace.base) * (1 + 2 * bool(shape.scheduling.drafts))
        job = Job(f"chat-{number}", 50.0 * number + rng.uniform(0, 30), rng.randint(20, 200), answer)
        if number % 2:
            job.interval = asked.interval
        if asked.withheld:
            since = rng.randrange(100, 400)
            job.withheld = (since, since + asked.withheld)
        jobs.append(job)
    at = 1000.0
    while asked.passers_by and at < until - 3000.0:
        jobs.append(Job(f"passer-by-{len(jobs)}", at, rng.randint(200, 500), rng.randint(300, 700)))
        at += rng.uniform(0.5, 1.5) * asked.passers_by
    if not quiet:
        arrive = rng.choice((_alone, _together, _steadily))
        moments = arrive(rng, pace, (until - 3000.0) / asked.rarer)
        jobs += [_prompt(shape, rng, number, at * asked.rarer) for number, at in enumerate(moments)]
    for number, job in enumerate(jobs):
        job.rank = number % shape.ranks
        if job.rank >= shape.ranks - shape.unseen:
            job.seen = False
    return jobs


def _prompt(shape: Shape, rng: random.Random, number: int, at: float) -> Job:
    asked, tokens = shape.asked, rng.choice(SIZES)
    shared = asked.shared if asked.shared and rng.random() < 0.7 else 0
    job = Job(f"prompt-{number}", at, tokens + shared, rng.randint(4, 60), asked.choices, shared)
    job.streams = rng.random() >= asked.in_json
    if asked.prompts > 1 and rng.random() < 0.6:
        job.endpoint, job.prompts, job.prompt = "completions", rng.randint(2, asked.prompts), min(tokens, 800)
    if rng.random() < asked.leaving:
        job.leaves = at + rng.uniform(50, 900)
    if rng.random() < asked.only_read:
        job.endpoint, job.answer, job.streams = rng.choice(ONLY_READ), 1, False
    if rng.random() < asked.background:
        job.endpoint, job.background = "responses", True
        job.streams = rng.random() < 0.5
        job.leaves = at + rng.uniform(20, 200) if job.streams else None
    job.seen = rng.random() >= asked.elsewhere
    job.salt = f"salt-{number}" if rng.random() < asked.salted else ""
    if asked.hidden[1] and rng.random() < 0.6:
        job.hidden = rng.randint(*asked.hidden)
        job.answer += job.hidden
    if asked.encoded[1] and rng.random() < 0.5:
        job.encoded = rng.uniform(*asked.encoded)
    job.grammar = rng.random() < asked.grammar
    job.fetched = NEVER if rng.random() < asked.lost else rng.uniform(*asked.fetched)
    job.uneven, job.end_held = asked.uneven, asked.end_held
    if asked.uneven:
        job.answer = rng.randint(300, 900)
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
