"""Workloads for the simulated engine: what heartbeat evidence was gathered on, as far as an engine model can do it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

from tests.judges.truth import Seen, from_simulator

from prefillwatch.lab.simulator import Arrival, Engine, Pause, SimRequest, preset_engine, run_virtual
from prefillwatch.units import MS, NS


def victims(count: int = 6, tokens: int = 1500) -> list[Arrival]:
    return [Arrival(i * 3 * MS, SimRequest(f"victim-{i}", 20 + i, tokens)) for i in range(count)]


def simulate(
    arrivals: Iterable[Arrival],
    pauses: Iterable[Pause] = (),
    seed: int = 1,
    preset: str = "article",
    until_ns: int | None = None,
    tokenise_ns: int = 0,
    jitter: bool = True,
    **fields: Any,
) -> Seen:
    run = run_virtual(Engine(preset_engine(preset, **fields)), arrivals, pauses=pauses, until_ns=until_ns)
    return from_simulator(run, seed, tokenise_ns=tokenise_ns, jitter=jitter)


def prompt(name: str, at_ns: int, tokens: int, answer: int = 40, abort_ns: int | None = None) -> Arrival:
    return Arrival(at_ns, SimRequest(name, tokens, answer), abort_ns)


def one_at_a_time(**fields: Any) -> Seen:
    return simulate(victims() + [prompt(f"p{i}", (3 + 8 * i) * NS, 2500) for i in range(4)], **fields)


def twelve_at_once(tokens: int = 6000, **fields: Any) -> Seen:
    lumps = [prompt(f"p{i}", round((3 + 0.0001 * i) * NS), tokens) for i in range(12)]
    return simulate(victims(tokens=600) + lumps, **fields)


def mixed_at_once(**fields: Any) -> Seen:
    rng = random.Random(5)
    lumps = [
        prompt(f"p{k}-{i}", round((3 + 12 * k + 0.0001 * i) * NS), rng.randint(300, 5000))
        for k in range(3)
        for i in range(8)
    ]
    return simulate(victims(tokens=1500) + lumps, **fields)


def short_prompts(rate: float = 4, tokens: int = 300, **fields: Any) -> Seen:
    rng = random.Random(3)
    at_ns = 3 * NS
    arrivals: list[Arrival] = []
    while at_ns < 33 * NS:
        arrivals.append(prompt(f"p{len(arrivals)}", at_ns, tokens, rng.randint(4, 60)))
        at_ns += round(rng.expovariate(rate) * NS)
    return simulate(victims() + arrivals, **fields)


def steady_mix(**fields: Any) -> Seen:
    """Chats and documents at random, long enough that the queue now and then builds up."""
    rng = random.Random(11)
    at_ns = 3 * NS
    arrivals: list[Arrival] = []
    while at_ns < 63 * NS:
        tokens = rng.choice((40, 150, 300, 300, 800, 2500, 6000))
        arrivals.append(prompt(f"p{len(arrivals)}", at_ns, tokens, rng.randint(5, 100)))
        at_ns += round(rng.expovariate(2.5) * NS)
    return simulate(victims(tokens=2000) + arrivals, **fields)


def shared_prefix() -> Seen:
    hashes = tuple(range(1, 188))
    arrivals = [
        Arrival((3 + 4 * i) * NS, SimRequest(f"p{i}", 3000 + 300 * (i % 3), 20, block_hashes=(*hashes[:187],)))
        for i in range(8)
    ]
    return simulate(victims() + arrivals)


def paused(with_prompt: bool = False) -> Seen:
    arrivals = victims()
    if with_prompt:
        arrivals += [prompt(f"p{i}", (4 + 4 * i) * NS, 300) for i in range(6)]
    return simulate(arrivals, [Pause((6 + 8 * i) * NS - 5 * MS, 2 * NS) for i in range(3)])


def aborted() -> Seen:
    """Clients that leave while their prompt is read, or while it waits."""
    arrivals = victims()
    for i in range(6):
        at_ns = (3 + 5 * i) * NS
        arrivals += [prompt(f"gone{i}", at_ns, 6000, abort_ns=at_ns + 700 * MS), prompt(f"p{i}", at_ns + MS, 2500)]
    return simulate(arrivals)


def nobody_decoding() -> Seen:
    """Bursts of prompts with short answers to an idle engine."""
    arrivals = [
        prompt(f"p{k}-{i}", round((1 + 6 * k + 0.01 * i) * NS), 700 + 900 * i, 1 if k % 2 else 5)
        for k in range(8)
        for i in range(4)
    ]
    return simulate(arrivals)


def tiny_kv() -> Seen:
    rng = random.Random(9)
    arrivals = [prompt(f"p{i}", round((1 + 1.1 * i) * NS), rng.randint(200, 500), 700) for i in range(24)]
    return simulate(arrivals, preset="tiny-kv")


def overloaded(rate: float = 2.0, seconds: int = 120, **fields: Any) -> Seen:
    """More prompts than the engine can read, from the first second on."""
    rng = random.Random(4)
    at_ns, arrivals = NS // 2, victims(count=4, tokens=100_000)
    while at_ns < seconds * NS:
        arrivals.append(prompt(f"p{len(arrivals)}", at_ns, rng.choice((300, 2500, 6000, 6000)), rng.randint(2, 30)))
        at_ns += round(rng.expovariate(rate) * NS)
    return simulate(arrivals, until_ns=seconds * NS, **fields)


SIMULATED: dict[str, Callable[[], Seen]] = {
    "sim one at a time": one_at_a_time,
    "sim 12 at once": twelve_at_once,
    "sim 8 mixed at once": mixed_at_once,
    "sim short 4/s": short_prompts,
    "sim steady mix": steady_mix,
    "sim shared prefix": shared_prefix,
    "sim paused": paused,
    "sim paused with 300": lambda: paused(with_prompt=True),
    "sim aborted": aborted,
    "sim nobody decoding": nobody_decoding,
    "sim tiny kv": tiny_kv,
    "sim unchunked one": lambda: one_at_a_time(enable_chunked_prefill=False),
    "sim unchunked 12": lambda: twelve_at_once(enable_chunked_prefill=False),
    "sim unchunked 8 mixed": lambda: mixed_at_once(enable_chunked_prefill=False),
    "sim unchunked mix": lambda: steady_mix(enable_chunked_prefill=False),
    "sim budget 512": lambda: steady_mix(max_num_batched_tokens=512),
    "sim budget 3000": lambda: steady_mix(max_num_batched_tokens=3000),
    "sim capped chunks": lambda: steady_mix(long_prefill_token_threshold=512),
    "sim small model": lambda: simulate(victims(), preset="small"),
}
