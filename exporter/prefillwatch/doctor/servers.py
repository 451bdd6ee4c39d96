"""Under which names servers report what the doctor asks for, the preferred name first; without namespace.

vLLM's ``time_per_output_token_seconds`` was the time between tokens, one sample for each, until 0.11 gave it its
present name; ``request_time_per_output_token_seconds`` is another thing, one mean for each request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Server:
    """``says`` is how people call it; ``flag`` switches its metrics on."""

    says: str
    flag: str = ""
    gaps: tuple[str, ...] = ()
    first_tokens: tuple[str, ...] = ()
    queue: tuple[str, ...] = ()
    prefill: tuple[str, ...] = ()
    prompts: tuple[str, ...] = ()
    step_tokens: tuple[str, ...] = ()
    finished: tuple[str, ...] = ()
    generated: tuple[str, ...] = ()

    @property
    def histograms(self) -> tuple[str, ...]:
        return (*self.gaps, *self.first_tokens, *self.queue, *self.prefill, *self.prompts, *self.step_tokens)

    @property
    def counters(self) -> tuple[str, ...]:
        return (*self.finished, *self.generated)


SERVERS: Mapping[str, Server] = MappingProxyType(
    {
        "vllm": Server(
            says="vLLM",
            gaps=("inter_token_latency_seconds", "time_per_output_token_seconds"),
            first_tokens=("time_to_first_token_seconds",),
            queue=("request_queue_time_seconds",),
            prefill=("request_prefill_time_seconds",),
            prompts=("request_prompt_tokens",),
            step_tokens=("iteration_tokens_total",),
            finished=("request_success_total", "request_success"),
            generated=("generation_tokens_total", "generation_tokens"),
        ),
        "sglang": Server(
            says="SGLang",
            flag="--enable-metrics",
            gaps=("inter_token_latency_seconds", "time_per_output_token_seconds"),
            first_tokens=("time_to_first_token_seconds",),
            queue=("queue_time_seconds",),
            prompts=("prompt_tokens_histogram",),
            finished=("num_requests_total",),
            generated=("generation_tokens_total",),
        ),
        "llamacpp": Server(says="llama.cpp", flag="--metrics", generated=("tokens_predicted_total",)),
        "tgi": Server(says="TGI"),
        "trtllm": Server(
            says="TensorRT-LLM",
            first_tokens=("time_to_first_token_seconds",),
            queue=("request_queue_time_seconds",),
            finished=("request_success_total",),
        ),
        "triton": Server(says="Triton with TensorRT-LLM"),
    }
)
