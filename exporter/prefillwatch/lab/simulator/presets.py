"""Named rigs: what one server of a kind costs per step and how much it can hold."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from prefillwatch.lab.simulator.cost import MICROSECOND, CostModel
from prefillwatch.lab.simulator.engine import EngineConfig
from prefillwatch.units import MS

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Preset:
    """`help` is one line for a user. The rest are the engine's defaults on that rig."""

    name: str
    help: str
    model: str
    cost: CostModel
    max_num_batched_tokens: int = 2048
    max_num_seqs: int = 256
    max_model_len: int = 8192
    num_gpu_blocks: int = 16384


#: A 4B model on one mid-range GPU, fitted to a published measurement: six streams decode at 21 ms; twelve prompts of
#: 6,000 tokens give them a p99 of 346 ms in chunks of 2,048 and of 832 ms in one piece; three prompts give 325 ms and,
#: within the injection window, 825 ms. The whole prompt fixes the sum of the prompt terms. That late chunks weigh more
#: (twelve against three) needs the context term; that three chunks cost more than the whole needs a cost of the mixed
#: step itself.
_ARTICLE: Final = CostModel(
    base=19.5 * MS,
    per_sequence=0.25 * MS,
    per_prefill_token=94.2 * MICROSECOND,
    per_prefill_token_context=0.012 * MICROSECOND,
    mixed_step=28.0 * MS,
)

#: So small a model takes in 6,000 tokens within the time of a step or two: there is no freeze to see, chunked or not.
_SMALL: Final = CostModel(
    base=3.7 * MS,
    per_sequence=0.05 * MS,
    per_prefill_token=0.5 * MICROSECOND,
)

#: Steps take 25 ms whatever rides in them: a steady source of tokens for measuring what stands behind it.
_STEADY: Final = CostModel(base=25.0 * MS, per_sequence=0.0, per_prefill_token=0.0)

PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        preset.name: preset
        for preset in (
            Preset(
                "article",
                "4B model on a mid-range GPU: decodes at 21 ms, a 6,000-token prompt freezes it",
                "sim-4b",
                _ARTICLE,
            ),
            Preset("small", "0.5B model: decodes at 4 ms, long prompts leave no trace", "sim-0.5b", _SMALL),
            Preset(
                "tiny-kv",
                "the 4B model with a KV cache of 4,608 tokens: requests wait for each other and preempt each other",
                "sim-4b",
                _ARTICLE,
                max_model_len=4096,
                num_gpu_blocks=289,
            ),
            Preset(
                "steady",
                "40 tokens/s for each stream, whatever the prompts: a source of load, up to some 25,000 tokens/s",
                "sim-steady",
                _STEADY,
                max_num_batched_tokens=8192,
                max_num_seqs=2048,
                num_gpu_blocks=262144,
            ),
        )
    }
)


def find_preset(name: str) -> Preset:
    """Raises ValueError that lists the known names."""
    try:
        return PRESETS[name]
    except KeyError:
        raise ValueError(f"unknown preset {name!r}: choose one of {', '.join(PRESETS)}") from None


def preset_engine(name: str, **overrides: Any) -> EngineConfig:
    """The engine of a preset, with fields of `EngineConfig` replaced.

    As in vLLM, turning chunked prefill off raises the token budget to `max_model_len` unless a budget is given.
    """
    preset = find_preset(name)
    max_model_len = overrides.get("max_model_len", preset.max_model_len)
    chunked = overrides.get("enable_chunked_prefill", True)
    budget = preset.max_num_batched_tokens if chunked else max(preset.max_num_batched_tokens, max_model_len)
    fields: dict[str, Any] = {
        "cost": preset.cost,
        "max_num_batched_tokens": budget,
        "max_num_seqs": preset.max_num_seqs,
        "max_model_len": max_model_len,
        "num_gpu_blocks": preset.num_gpu_blocks,
    }
    return EngineConfig(**(fields | overrides))
