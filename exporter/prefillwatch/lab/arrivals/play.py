"""Plays a schedule: each arrival is sent when it is due, whatever happened to earlier ones."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from prefillwatch.lab.arrivals.schedule import Arrival, Schedule
from prefillwatch.lab.client import Answer, ask
from prefillwatch.lab.vocabulary import SINGLE_MESSAGE_OVERHEAD, WORDS, prompt_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping


@dataclass(slots=True)
class PlayReport:
    """What was sent, in the order in which answers ended. `turned_away` were due while `max_in_flight` others ran."""

    answers: list[tuple[Arrival, Answer]] = field(default_factory=list)
    turned_away: int = 0
    sent: int = 0


def sender(
    url: str,
    model: str,
    *,
    prompt: Callable[[Arrival], str] | None = None,
    headers: Mapping[str, str] | None = None,
    timeout_seconds: float = 600.0,
    seed: int = 1,
) -> Callable[[Arrival], Awaitable[Answer]]:
    """Sends an arrival as a streaming chat request; ``prompt`` writes its text (default: `prompt_text`)."""
    rng = random.Random(f"arrivals {seed}")

    async def send(arrival: Arrival) -> Answer:
        text = prompt(arrival) if prompt else prompt_text(arrival, rng)
        body = chat_body(model, text, arrival.output_tokens)
        if arrival.tenant:
            body["user"] = arrival.tenant
        return await ask(url, body, headers=headers, timeout_seconds=timeout_seconds)

    return send


async def play(
    schedule: Schedule,
    send: Callable[[Arrival], Awaitable[Answer]],
    *,
    max_in_flight: int = 64,
    report: PlayReport | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> PlayReport:
    """Sends each arrival when it is due, whatever happened to earlier ones, and waits for the answers. Cancelling hangs
    up on those that still run; ``report`` holds what was measured by then.

    Cancelling hangs up on what still runs; what was measured so far is in the ``report`` given.
    """
    report = report if report is not None else PlayReport()
    running: set[asyncio.Task[None]] = set()

    async def one(arrival: Arrival) -> None:
        report.answers.append((arrival, await send(arrival)))

    start = clock()
    try:
        for arrival in schedule.arrivals:
            await asyncio.sleep(max(0.0, start + arrival.at_seconds - clock()))
            if len(running) >= max_in_flight:
                report.turned_away += 1
                continue
            report.sent += 1
            task = asyncio.ensure_future(one(arrival))
            running.add(task)
            task.add_done_callback(running.discard)
        await asyncio.gather(*running)
    finally:
        for task in list(running):
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    return report


def prompt_text(arrival: Arrival, rng: random.Random) -> str:
    """Made-up words, on the simulator exactly as many tokens as asked for; equal blocks get equal words."""
    tokens = max(arrival.prompt_tokens, SINGLE_MESSAGE_OVERHEAD + 1)
    if not arrival.blocks:
        return prompt_of(tokens, rng)
    words: list[str] = []
    own = tokens - SINGLE_MESSAGE_OVERHEAD
    for block in arrival.blocks[: -(-own // arrival.block_tokens)]:
        words += random.Random(f"block {block}").choices(WORDS, k=arrival.block_tokens)
    return " ".join([*words[:own], *rng.choices(WORDS, k=max(0, own - len(words)))])


def chat_body(model: str, text: str, output_tokens: int) -> dict[str, Any]:
    """A streaming chat request for an answer of exactly so many tokens, where the server knows `ignore_eos`."""
    return {
        "model": model,
        "messages": [{"role": "user", "content": text}],
        "max_tokens": max(1, output_tokens),
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": True,
    }
