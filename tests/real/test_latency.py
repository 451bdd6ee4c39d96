"""Our gaps, held against the gaps that vLLM's engine itself logged for the same tokens.

No time is asserted here, only that two meters of the same thing agree: within 2 % or 1 ms or half a percentile point.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Sequence

import pytest
from tests.real.client import Answer, ask
from tests.real.engine import MODEL_NAME, Engine
from tests.real.four_endpoints import PATHS, request
from tests.real.sidecar import Metrics, Sidecar

VICTIMS = 6
PROMPT_WORDS = 2500
RANK_SLACK = 0.005
CHAT = PATHS["chat_completions"]


@pytest.fixture(scope="module")
def load(engine: Engine, sidecar: Sidecar) -> Load:
    return asyncio.run(Load().run(engine, sidecar))


class Load:
    """Six streams of 600 tokens, and two long prompts while they decode; what both meters say of it."""

    async def run(self, engine: Engine, sidecar: Sidecar) -> Load:
        # The windows of the gauges must hold nothing else.
        await asyncio.sleep(11)
        began_ns, ours, theirs = time.monotonic_ns(), sidecar.metrics(), Metrics.read(f"{engine.url}/metrics")
        victims = [asyncio.create_task(self.chat(sidecar, f"victim {i}:", 600)) for i in range(VICTIMS)]
        await asyncio.sleep(1.5)
        prompts = [await self.chat(sidecar, f"{i} " + "import " * PROMPT_WORDS, 4) for i in range(2)]
        self.answers = [*await asyncio.gather(*victims), *prompts]
        await asyncio.sleep(1.0)
        self.now = sidecar.metrics()
        self.ours = self.now.since(ours)
        self.theirs = Metrics.read(f"{engine.url}/metrics").since(theirs)
        self.engine_gaps = sorted(gaps_since(engine, began_ns))
        return self

    async def chat(self, sidecar: Sidecar, text: str, tokens: int) -> Answer:
        return await ask(sidecar.port, CHAT, request("chat_completions", stream=True, text=text, tokens=tokens))


def gaps_since(engine: Engine, began_ns: int) -> list[float]:
    """Seconds between tokens as the engine timed them, one per token after the first."""
    lines = (engine.log_dir / "iterations.jsonl").read_text().splitlines()
    steps = [step for step in map(json.loads, lines) if step["at_ns"] >= began_ns]
    return [gap for step in steps for gap in step.get("itl", ())]


def quantile(ordered: Sequence[float], rank: float) -> float:
    return ordered[min(max(math.ceil(rank * len(ordered)) - 1, 0), len(ordered) - 1)]


def assert_agrees(ours: float, truth: Sequence[float], rank: float) -> None:
    """Within 2 % or 1 ms of the truth, or between its neighbours half a percentile point away."""
    exact = quantile(truth, rank)
    low, high = quantile(truth, rank - RANK_SLACK), quantile(truth, rank + RANK_SLACK)
    slack = max(0.02 * exact, 0.001)
    assert low - slack <= ours <= high + slack, f"p{100 * rank:g}: ours {ours}, the engine's {exact} ({low} to {high})"


def test_as_many_gaps_as_the_engine_made(load: Load) -> None:
    gaps = load.ours.total("prefillwatch_inter_token_latency_seconds_count", model=MODEL_NAME)
    coalesced = load.ours.total("prefillwatch_coalesced_tokens_total", model=MODEL_NAME)
    in_events = sum(len(token_reads(answer)) - 1 for answer in load.answers)
    assert gaps + coalesced == in_events
    # vLLM may put two tokens into one event; only those can be missing.
    assert gaps + coalesced <= len(load.engine_gaps) == VICTIMS * 599 + 2 * 3


def token_reads(answer: Answer) -> list[int]:
    return [
        read.at_ns
        for read, event in answer.timed_events()
        if any(choice["delta"].get("content") for choice in event["choices"])
    ]


def test_the_time_in_gaps_is_the_engines(load: Load) -> None:
    """Every stream's gaps add up to the time from its first to its last token, however tokens were bunched."""
    ours = load.ours.total("prefillwatch_inter_token_latency_seconds_sum")
    theirs = load.theirs.total("vllm:inter_token_latency_seconds_sum")
    assert ours == pytest.approx(theirs, rel=0.02)


@pytest.mark.parametrize(("name", "rank"), [("p50", 0.5), ("p99", 0.99)])
def test_quantiles_agree_with_the_engine(load: Load, name: str, rank: float) -> None:
    ours = load.now.value(f"prefillwatch_inter_token_latency_{name}_seconds", window="1m", population="all")
    assert_agrees(ours, load.engine_gaps, rank)


def test_the_histogram_agrees_with_that_of_vllm(load: Load) -> None:
    """At every edge that both have, the shares of gaps up to it differ by no more than a percentile point."""
    ours = load.ours.buckets("prefillwatch_inter_token_latency_seconds")
    theirs = load.theirs.buckets("vllm:inter_token_latency_seconds")
    shared = [edge for edge in ours.keys() & theirs.keys() if edge >= 0.05]
    assert len(shared) >= 10
    for edge in shared:
        assert ours[edge] / ours[math.inf] == pytest.approx(theirs[edge] / theirs[math.inf], abs=0.01), f"at {edge} s"


def test_the_freeze_is_seen_in_its_population(load: Load) -> None:
    worst = load.now.value("prefillwatch_inter_token_latency_max_seconds", window="1m", population="prefill")
    assert_agrees(worst, load.engine_gaps, 1.0)
    clear = load.now.value("prefillwatch_inter_token_latency_p99_seconds", window="1m", population="clear")
    assert clear < worst


def test_the_gaps_of_the_freeze_name_the_size_of_the_prompt(load: Load) -> None:
    by_size = load.ours.buckets("prefillwatch_inter_token_latency_seconds", concurrent_prompt="2k-8k")
    slow = by_size[math.inf] - by_size[0.3]
    everything = load.ours.buckets("prefillwatch_inter_token_latency_seconds")
    assert slow == everything[math.inf] - everything[0.3] > 0


def test_first_tokens_by_prompt_size(load: Load) -> None:
    assert load.ours.total("prefillwatch_time_to_first_token_seconds_count", prompt_bucket="0-512") == VICTIMS
    assert load.ours.total("prefillwatch_time_to_first_token_seconds_count", prompt_bucket="2k-8k") == 2
