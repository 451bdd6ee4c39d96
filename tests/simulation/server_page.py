"""The server's page of metrics, as the server writes it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

from tests.simulation.engine import Rank, State
from tests.simulation.faults import Hardships
from tests.simulation.shapes import Shape

EVERY: Final = 1000.0
#: Unix time of the start of a run, and for how long the server has been up by then.
EPOCH, UPTIME = 1_700_000_000.0, 86_400.0
_LATEST: Final = 4000.0
_STALE_SINCE: Final = 2500.0
_BLOCK: Final = 16


def asked_and_answered(hardships: Hardships, rng: random.Random, until: float) -> Iterator[tuple[float, float, float]]:
    """When each page was asked for, as of when it tells, and when it is here. Nobody answers while the API server
    stands still, and nobody asks twice at once."""
    at = rng.uniform(0, EVERY)
    while at < until and hardships.page != "dead":
        still = next((span for span in hardships.api_server if span[0] <= at < span[1]), None)
        late = rng.uniform(0.3, 1.0) * _LATEST if hardships.page == "late" else 2.0
        if still is None:
            yield at, min(at, _STALE_SINCE) if hardships.page == "stale" else at + late / 2, at + late
        at += max(EVERY, late)


def offset(hardships: Hardships, at: float) -> float:
    """By how many seconds the wall clock is wrong."""
    return hardships.clock_steps * (1, -1, 0)[int(at // 3000) % 3]


def page(shape: Shape, ranks: list[Rank], hardships: Hardships, at: float) -> bytes:
    states = [rank.state(at) for rank in ranks[: len(ranks) - shape.unseen]]
    lines = list(_WRITERS[shape.server](states, shape, hardships))
    return "\n".join([*lines, f"process_start_time_seconds {EPOCH - UPTIME}", ""]).encode()


def _vllm(states: list[State], shape: Shape, hardships: Hardships) -> Iterator[str]:
    blocks = shape.scheduling.cache_tokens // _BLOCK
    for number, state in enumerate(states):
        labels = f'engine="{number}",model_name="m"'
        yield f"vllm:num_requests_running{{{labels}}} {state.running}.0"
        yield f"vllm:num_requests_waiting{{{labels}}} {state.waiting}.0"
        yield f"vllm:kv_cache_usage_perc{{{labels}}} {state.usage}"
        yield f"vllm:num_preemptions_total{{{labels}}} {state.preemptions}.0"
        yield f"vllm:prompt_tokens_total{{{labels}}} {state.prompts_read}.0"
        yield f"vllm:generation_tokens_total{{{labels}}} {state.generated}.0"
        if shape.scheduling.prefix_caching:
            yield f"vllm:prefix_cache_queries_total{{{labels}}} 1000.0"
        yield f'vllm:cache_config_info{{block_size="{_BLOCK}",engine="{number}",num_gpu_blocks="{blocks}"}} 1.0'


def _llamacpp(states: list[State], shape: Shape, hardships: Hardships) -> Iterator[str]:
    yield f"llamacpp:requests_processing {sum(state.running for state in states)}"
    yield f"llamacpp:prompt_tokens_total {sum(state.prompts_read for state in states)}"
    yield f"llamacpp:tokens_predicted_total {sum(state.generated for state in states)}"
    yield f"llamacpp:requests_deferred {sum(state.waiting for state in states)}"


def _sglang(states: list[State], shape: Shape, hardships: Hardships) -> Iterator[str]:
    """An older one: the fullest of its pools alone, and no word on which that is."""
    for number, state in enumerate(states):
        labels = f'dp_rank="{number}",model_name="m",pp_rank="0",tp_rank="0"'
        usage = 0.97 if hardships.page == "of another pool" else round(state.usage, 2)
        yield f"sglang:num_running_reqs{{{labels}}} {state.running}.0"
        yield f"sglang:num_queue_reqs{{{labels}}} {state.waiting}.0"
        yield f"sglang:token_usage{{{labels}}} {usage}"
        yield f"sglang:max_total_num_tokens{{{labels}}} {shape.scheduling.cache_tokens}.0"
        yield f"sglang:prompt_tokens_total{{{labels}}} {state.prompts_answered}.0"
        yield f"sglang:generation_tokens_total{{{labels}}} {state.generated}.0"
        yield f"sglang:num_retracted_requests_total{{{labels}}} {state.preemptions}.0"


_WRITERS: Final = {"vllm": _vllm, "llamacpp": _llamacpp, "sglang": _sglang}
