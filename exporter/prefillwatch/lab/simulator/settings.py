"""The flags of `sim`, under vLLM's own names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from prefillwatch.errors import ConfigError
from prefillwatch.lab.simulator.presets import find_preset, preset_engine

if TYPE_CHECKING:
    from prefillwatch.lab.simulator.engine import EngineConfig


@dataclass(frozen=True, slots=True)
class SimSettings:
    """Flags of the simulated server. None leaves a value to the preset (see `presets`)."""

    preset: str = "article"
    served_model_name: str | None = None
    enable_chunked_prefill: bool = True
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    max_model_len: int | None = None
    long_prefill_token_threshold: int = 0
    enable_prefix_caching: bool = True
    block_size: int = 16
    num_gpu_blocks_override: int | None = None
    #: Usage reports cached tokens. On by default, unlike in vLLM, because a watched server should have it.
    enable_prompt_tokens_details: bool = True

    @property
    def model(self) -> str:
        return self.served_model_name or find_preset(self.preset).model

    def engine_config(self) -> EngineConfig:
        """The engine these flags describe. Raises ConfigError for flags that contradict each other."""
        overrides: dict[str, object] = {
            "enable_chunked_prefill": self.enable_chunked_prefill,
            "long_prefill_token_threshold": self.long_prefill_token_threshold,
            "enable_prefix_caching": self.enable_prefix_caching,
            "block_size": self.block_size,
            "max_num_batched_tokens": self.max_num_batched_tokens,
            "max_num_seqs": self.max_num_seqs,
            "max_model_len": self.max_model_len,
            "num_gpu_blocks": self.num_gpu_blocks_override,
        }
        try:
            return preset_engine(self.preset, **{k: v for k, v in overrides.items() if v is not None})
        except ValueError as error:
            raise ConfigError(str(error)) from None
