"""Our gaps, held against two other meters of the same tokens: the client's own reads, and what vLLM's engine logged.

No time is asserted here, only that meters agree. With the client ours must agree closely, since both see what came out
of vLLM's API server. The engine's log knows nothing of that server's own delays, so with it the agreement is that of
sums, of counts, and of the gaps long enough to matter.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.real.client import Answer, Exchange, ask
from tests.real.engine import MODEL_NAME, Engine
from tests.real.four_endpoints import PATHS, request
from tests.real.sidecar import Metrics, Sidecar

VICTIMS, VICTIM_TOKENS = 6, 600
READS_BEFORE_PROMPTS = 100
PROMPTS, PROMPT_TOKENS = 2, 4
LONG = 512  # tokens of prompts in a step, more than all victims' prompts together
PROMPT = " ".join(["import self return def class None True for in if not and or else with from as raise name"] * 132)
CHAT = PATHS["chat_completions"]
GAPS = "prefillwatch_inter_token_latency_seconds"


@pytest.fixture(scope="module")
def own_sidecar(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    """One whose windows hold nothing of other tests."""
    log = tmp_path_factory.mktemp("latency") / "serve.log"
    with Sidecar(log, ("serve", f"--upstream={engine.url}")) as sidecar:
        yield sidecar


@pytest.fixture(scope="module")
def load(engine: Engine, own_sidecar: Sidecar) -> Load:
    return asyncio.run(Load().run(engine, own_sidecar))


class Load:
    """Six streams, and long prompts while they decode; what each of the meters says of it."""

    async def run(self, engine: Engine, sidecar: Sidecar) -> Load:
        began_ns, theirs = time.monotonic_ns(), Metrics.read(f"{engine.url}/metrics")
        exchanges = [Exchange() for _ in range(VICTIMS)]
        victims = [
            asyncio.create_task(self.chat(sidecar, f"victim {i}:", VICTIM_TOKENS, exchange))
            for i, exchange in enumerate(exchanges)
        ]
        while min(len(exchange.reads) for exchange in exchanges) < READS_BEFORE_PROMPTS:
            await asyncio.sleep(0.05)
            assert not victims[0].done(), "the machine left this process no core; all tokens came at once"
        prompts = [await self.chat(sidecar, f"{i} {PROMPT}", PROMPT_TOKENS) for i in range(PROMPTS)]
        self.answers = [*await asyncio.gather(*victims), *prompts]
        events = sum(len(token_reads(answer)) - 1 for answer in self.answers)
        await asyncio.to_thread(sidecar.wait_until, lambda: sidecar.metrics().gaps() >= events, 60, "done counting")
        self.ours = sidecar.metrics()
        self.theirs = Metrics.read(f"{engine.url}/metrics").since(theirs)
        self.steps = steps_since(engine.log_dir / "iterations.jsonl", began_ns)
        return self

    async def chat(self, sidecar: Sidecar, text: str, tokens: int, exchange: Exchange | None = None) -> Answer:
        options = {"include_usage": True}
        body = request("chat_completions", stream=True, text=text, tokens=tokens, stream_options=options)
        return await ask(sidecar.port, CHAT, body, exchange=exchange)

    def client_gaps(self) -> list[float]:
        """Seconds between reads with tokens, as the client of each stream had them."""
        pairs = (pair for answer in self.answers for pair in itertools.pairwise(sorted(set(token_reads(answer)))))
        return sorted((later - earlier) / 1e9 for earlier, later in pairs)

    def engine_gaps(self) -> list[float]:
        return sorted(gap for step in self.steps for gap in step.get("itl", ()))

    def longest_prefill_step(self) -> float:
        """Of the long prompts' steps in which somebody decoded, since the others froze nobody."""
        froze = [step for step in self.steps if step.get("prefill_tokens", 0) > LONG and step.get("itl")]
        longest_ms: float = max(step["elapsed_ms"] for step in froze)
        return longest_ms / 1e3


def steps_since(log: Path, began_ns: int) -> list[dict[str, Any]]:
    steps = map(json.loads, log.read_text().splitlines())
    return [step for step in steps if step["at_ns"] >= began_ns]


def token_reads(answer: Answer) -> list[int]:
    """For every event with text, the time of the read that completed it."""
    events = answer.timed_events()
    return [read.at_ns for read, event in events if any(each["delta"].get("content") for each in event["choices"])]


def quantile(ordered: Sequence[float], rank: float) -> float:
    return ordered[min(max(math.ceil(rank * len(ordered)) - 1, 0), len(ordered) - 1)]


def least(truth: Sequence[float], rank: float) -> float:
    """The least figure that agrees with the truth: within 5 % or 3 ms of it, or of its neighbour one percent below."""
    low = quantile(truth, rank - 0.01)
    return min(0.95 * low, low - 0.003)


def most(truth: Sequence[float], rank: float) -> float:
    """The largest figure that agrees with the truth, as `least` is the least."""
    high = quantile(truth, rank + 0.01)
    return max(1.05 * high, high + 0.003)


def test_every_token_that_was_not_the_first_is_a_gap_or_coalesced(load: Load) -> None:
    assert load.ours.gaps() == sum(len(token_reads(answer)) - 1 for answer in load.answers)
    assert load.ours.total(f"{GAPS}_count") == load.ours.total(f"{GAPS}_count", model=MODEL_NAME)


def test_the_engine_made_as_many_tokens_as_we_counted(load: Load) -> None:
    generated = VICTIMS * VICTIM_TOKENS + PROMPTS * PROMPT_TOKENS
    assert load.ours.total("prefillwatch_generated_tokens_total") == generated
    assert len(load.engine_gaps()) == generated - VICTIMS - PROMPTS


def test_the_time_in_gaps_is_the_engines(load: Load) -> None:
    """Every stream's gaps add up to the time from its first to its last token, however tokens were bunched."""
    theirs = load.theirs.total("vllm:inter_token_latency_seconds_sum")
    assert load.ours.total(f"{GAPS}_sum") == pytest.approx(theirs, rel=0.05)


@pytest.mark.parametrize(("name", "rank"), [("p50", 0.5), ("p99", 0.99)])
def test_quantiles_lie_between_the_engines_and_the_clients(load: Load, name: str, rank: float) -> None:
    """The relay stands between both. On a quiet machine they are the same; a client that waits for a core sees more."""
    ours = load.ours.value(f"prefillwatch_inter_token_latency_{name}_seconds", window="5m", population="all")
    engine, client = sorted(load.engine_gaps()), load.client_gaps()
    assert min(least(engine, rank), least(client, rank)) <= ours <= max(most(engine, rank), most(client, rank)), (
        f"{name}: ours {ours}, the engine's {quantile(engine, rank)}, the client's {quantile(client, rank)}"
    )


def test_the_histogram_lies_over_that_of_vllm(load: Load) -> None:
    """At every edge from 300 ms on that both have, the shares of gaps up to it are the same within 2 points."""
    ours, theirs = load.ours.buckets(GAPS), load.theirs.buckets("vllm:inter_token_latency_seconds")
    shared = [edge for edge in ours.keys() & theirs.keys() if edge >= 0.3]
    assert len(shared) >= 8
    for edge in shared:
        assert ours[edge] / ours[math.inf] == pytest.approx(theirs[edge] / theirs[math.inf], abs=0.02), f"at {edge} s"


def test_the_freeze_is_in_the_population_of_prefill(load: Load) -> None:
    """The longest step that carried a prompt froze all who decoded: there is such a gap, and it is not called clear."""
    longest = load.longest_prefill_step()
    worst = load.ours.value("prefillwatch_inter_token_latency_max_seconds", window="5m", population="prefill")
    assert worst >= 0.9 * longest


def test_the_gaps_of_the_freeze_carry_the_size_of_the_prompt(load: Load) -> None:
    longest = load.longest_prefill_step()
    by_size = load.ours.buckets(GAPS, concurrent_prompt="2k-8k")
    edge = max(edge for edge in by_size if edge <= 0.9 * longest)
    # Two prompts, each of which froze all victims in one such step at least.
    assert by_size[math.inf] - by_size[edge] >= VICTIMS


def test_first_tokens_by_prompt_size(load: Load) -> None:
    first_tokens = "prefillwatch_time_to_first_token_seconds_count"
    assert load.ours.total(first_tokens, prompt_bucket="0-512") == VICTIMS
    assert load.ours.total(first_tokens, prompt_bucket="2k-8k") == PROMPTS
