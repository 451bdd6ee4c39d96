"""What a prompt would do on a real vLLM: predicted, then done."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from itertools import pairwise
from typing import Any

from tests.real.client import Answer, ask
from tests.real.four_endpoints import PATHS, request
from tests.real.sidecar import Sidecar

CHAT = PATHS["chat_completions"]
LIMIT_S = 240.0
#: Prompts that the cost is learned from, in words of the text that is repeated; as many steps are needed.
LEARNED_FROM = (300, 700, 500, 900, 400, 800, 600, 1000, 350, 750, 550, 950)
#: The median of gaps and of first tokens may be so many times as long, or as short. How near forecasts are is
#: for the simulation to say; this machine may be in use by others from one second to the next.
NEAR = 5.0


def predicted(sidecar: Sidecar, tokens: int) -> dict[str, Any]:
    with urllib.request.urlopen(f"{sidecar.admin}/api/predict?prompt_tokens={tokens}", timeout=30) as answer:
        document: dict[str, Any] = json.load(answer)
        return document


def document_of(number: int, words: int) -> dict[str, Any]:
    """Shares no beginning with another."""
    text = f"{number} " + f"import {number} " * words
    return request("chat_completions", stream=True, text=text, tokens=1, stream_options={"include_usage": True})


async def read_on(sidecar: Sidecar, number: int, leave: asyncio.Event, answers: list[Answer]) -> None:
    body = request("chat_completions", stream=True, text=f"{number} begin", tokens=3000)
    while not leave.is_set():
        answers.append(await ask(sidecar.port, CHAT, body, leave=leave))


def longest_gap_s(answers: list[Answer], since_ns: int, until_ns: int) -> float:
    """Of those that were read on, among the gaps that touch a time."""
    longest = 0
    for answer in answers:
        for before, after in pairwise(read.at_ns for read in answer.reads):
            if after >= since_ns and before <= until_ns:
                longest = max(longest, after - before)
    return longest / 1e9


def first_token_ns(answer: Answer) -> int:
    """Before it vLLM says who speaks."""
    return next(
        read.at_ns
        for read, event in answer.timed_events()
        if any(choice["delta"].get("content") for choice in event["choices"])
    )


def test_a_prompt_does_what_was_predicted(sidecar: Sidecar) -> None:
    async def go() -> tuple[list[dict[str, Any]], list[Answer], list[Answer]]:
        leave, read = asyncio.Event(), list[Answer]()
        readers = [asyncio.create_task(read_on(sidecar, number, leave, read)) for number in range(3)]
        for number, words in enumerate(LEARNED_FROM):
            await ask(sidecar.port, CHAT, document_of(100 + number, words))
            await asyncio.sleep(0.3)  # so that steps without a prompt are seen as well
        said, done = [], []
        for number in range(3):
            await asyncio.sleep(1.0)
            said.append(await asyncio.to_thread(predicted, sidecar, 1500))
            done.append(await ask(sidecar.port, CHAT, document_of(200 + number, 500)))
        leave.set()
        await asyncio.gather(*readers)
        return said, done, read

    said, done, read = asyncio.run(asyncio.wait_for(go(), LIMIT_S))
    ratios = []
    for known, answer in zip(said, done, strict=True):
        assert known["known"], known
        assert known["streams"] >= 1
        tokens = next(event["usage"]["prompt_tokens"] for event in answer.events() if event.get("usage"))
        first_s = (first_token_ns(answer) - answer.sent_ns) / 1e9
        gap_s = longest_gap_s(read, answer.sent_ns, answer.ended_ns)
        scale = tokens / known["prompt_tokens"]
        ratios.append((gap_s / (known["gap_seconds"] * scale), first_s / (known["first_token_seconds"] * scale)))
    gap, first = (sorted(each)[1] for each in zip(*ratios, strict=True))
    assert 1 / NEAR < gap < NEAR, ratios
    assert 1 / NEAR < first < NEAR, ratios
    print(f"what happened over what was predicted, gap and first token: {ratios}")
    checked = sidecar.metrics().total("prefillwatch_forecast_first_token_ratio_count")
    assert checked >= len(said)
