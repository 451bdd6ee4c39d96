"""The scenarios of the suite: prompts that freeze others, and faults that must not be blamed on prompts.

Those with the same flags of vLLM share one server, in the order given here: a sidecar has learned what prompts cost
before the faults come, so that blaming them on a prompt is a real temptation.
"""

from __future__ import annotations

import asyncio
import os

from tests.real.served import COMPLETIONS
from tests.real.truth.live import Live, Scenario

NO_CHUNKS = ("--no-enable-chunked-prefill", "--max-num-batched-tokens=16384")
FEW_BLOCKS = ("--num-gpu-blocks-override=18", "--max-model-len=2048")
AT_ONCE = (400, 2700, 1200, 2700, 5000, 800, 2700, 3500, 300, 2700, 1800, 2700)


async def single_prompts(live: Live) -> None:
    for _ in range(4):
        live.prompt(2500)
        await asyncio.sleep(5)


async def twelve_at_once(live: Live) -> None:
    for tokens in AT_ONCE:
        live.prompt(tokens)
    await asyncio.sleep(1)


async def short_prompts(live: Live) -> None:
    """Three at a time: one alone holds the others up for less than a tenth of a second, which is no stall."""
    for _ in range(20):
        for _ in range(3):
            live.prompt(300)
        await asyncio.sleep(0.75)


async def shared_prefixes(live: Live) -> None:
    document = live.text(5000)
    for _ in range(6):
        live.prompt(600, shared=("document", document))
        await asyncio.sleep(3)


async def unchunked(live: Live) -> None:
    live.prompt(2500)
    await asyncio.sleep(5)
    for tokens in AT_ONCE[:8]:
        live.prompt(tokens)
    await asyncio.sleep(1)


async def engine_stopped(live: Live) -> None:
    for seconds in (0.6, 1.5, 2.5):
        await live.fault("engine_stopped", live.engine.core_pid(), seconds)
        await asyncio.sleep(3)


async def engine_stopped_with_prompt(live: Live) -> None:
    for seconds in (1.5, 2.5, 1.2):
        live.prompt(300)
        await asyncio.sleep(0.02)
        await live.fault("engine_stopped", live.engine.core_pid(), seconds)
        await asyncio.sleep(3)


async def api_server_stopped(live: Live) -> None:
    for seconds in (0.6, 1.5, 2.5):
        await live.fault("api_server_stopped", live.engine.process.pid, seconds)
        await asyncio.sleep(3)


async def slow_reader(live: Live) -> None:
    await live.slow_reader(first=1.0, pause=12.0, tokens=1000)
    await asyncio.sleep(1)


async def buffering_hop(live: Live) -> None:
    live.prompt(2500)  # so that a price is known
    await asyncio.sleep(4)
    await live.buffering(7, hold_seconds=1.3)
    await asyncio.sleep(1.5)
    burst = asyncio.create_task(live.buffering(9, hold_bytes=24_000))
    await asyncio.sleep(3)
    live.prompt(300)
    await burst
    await asyncio.sleep(1)


async def few_blocks(live: Live) -> None:
    """The victims grow until they no longer fit; meanwhile short prompts come, as they would."""
    for _ in range(4):
        await asyncio.sleep(4)
        live.prompt(200)


SCENARIOS = (
    Scenario("single-2500", "one 2,500-token prompt every 5 s", "prefill", single_prompts),
    Scenario("twelve-at-once", "twelve prompts of 300 to 5,000 tokens at once", "prefill", twelve_at_once),
    Scenario("short-300", "300-token prompts, four a second, by threes", "prefill", short_prompts),
    Scenario("shared-prefix", "5,600-token prompts of which 5,000 are cached", "prefill", shared_prefixes),
    Scenario("engine-stopped", "the engine is stopped, no prompt in flight", "engine_pause", engine_stopped),
    Scenario(
        "engine-stopped-300",
        "the engine is stopped with a 300-token prompt in flight",
        "engine_pause",
        engine_stopped_with_prompt,
    ),
    Scenario("api-server-stopped", "the API server is stopped, the engine goes on", "frontend", api_server_stopped),
    Scenario("slow-reader", "a client takes nothing for twelve seconds", "client", slow_reader),
    Scenario("buffering-hop", "a hop before us holds bytes back", "buffering", buffering_hop, through_hop=True),
    Scenario("few-blocks", "a KV cache too small for six streams", "preemption", few_blocks, FEW_BLOCKS, False, 600),
    Scenario("unchunked", "long prompts, chunked prefill off", "prefill", unchunked, NO_CHUNKS),
)


# --- Other ways to run vLLM, and to ask it: each start costs a minute, so they are played by hand ---


async def lists_of_prompts(live: Live) -> None:
    live.prompt(2500)
    await asyncio.sleep(5)
    for _ in range(2):
        texts = [live.text(500) for _ in range(16)]
        live.send("list" + str(len(live.sent)), "prompt", " ".join(texts), 8, path=COMPLETIONS, prompt=texts)
        await asyncio.sleep(6)


async def several_choices(live: Live) -> None:
    for _ in range(3):
        live.prompt(1500, n=4)
        await asyncio.sleep(4)


async def prompt_logprobs(live: Live) -> None:
    live.prompt(2500)
    await asyncio.sleep(5)
    for _ in range(2):
        live.prompt(1200, stream=False, stream_options=None, prompt_logprobs=1)
        await asyncio.sleep(5)


async def clients_that_leave(live: Live) -> None:
    live.prompt(2500)
    await asyncio.sleep(5)
    for _ in range(3):
        live.prompt(6000, leaves_after=0.6)
        await asyncio.sleep(3)


NGRAM = '{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4}'
VARIANTS = (
    Scenario("lists", "lists of sixteen prompts of 500 tokens", "prefill", lists_of_prompts),
    Scenario("choices", "1,500-token prompts with four answers each", "prefill", several_choices),
    Scenario("prompt-logprobs", "log probabilities of prompts, not streamed", "prefill", prompt_logprobs),
    Scenario("leavers", "clients that leave while their prompts are read", "prefill", clients_that_leave),
    *(
        Scenario(f"{name}-{load.name}", f"{load.about}; {' '.join(flags)}", load.cause, load.drive, flags)
        for name, flags in (
            ("sync", ("--no-async-scheduling",)),
            ("interval", ("--stream-interval=4",)),
            ("sliced", ("--long-prefill-token-threshold=512",)),
            ("ngram", (f"--speculative-config={NGRAM}",)),
            ("priority", ("--scheduling-policy=priority",)),
            ("pipeline", ("--pipeline-parallel-size=2",)),
            ("ranks", ("--data-parallel-size=2",)),
        )
        for load in SCENARIOS[:2]
    ),
)
BY_NAME = {scenario.name: scenario for scenario in (*SCENARIOS, *VARIANTS)}


def chosen() -> tuple[Scenario, ...]:
    """All, or those that PWTEST_TRUTH_SCENARIOS names (separated by commas)."""
    names = os.environ.get("PWTEST_TRUTH_SCENARIOS", "")
    return tuple(BY_NAME[name] for name in names.split(",")) if names else SCENARIOS
