"""What to change, in the words of the flags of the server that is looked at.

Remedies are written with vLLM's flags. Other servers have some of the same under other names, and some not at all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from prefillwatch.doctor.figures import Figures

#: By kind of server, vLLM's flag and what stands for it there; "N" is the value, where one was said.
_FLAGS: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "llamacpp": {
            # A step takes a batch; what it is computed in must not be larger.
            "--max-num-batched-tokens": "-b N (and -ub no larger)",
            "--max-num-seqs": "--parallel N",
            "--kv-cache-dtype fp8": "--cache-type-k q8_0",
            "--gpu-memory-utilization": "-c N",
            "--enable-prefix-caching": "--cache-reuse 256",
        },
        "sglang": {
            "--max-num-batched-tokens": "--chunked-prefill-size N",
            "--max-num-seqs": "--max-running-requests N",
            "--kv-cache-dtype fp8": "--kv-cache-dtype fp8_e5m2",
            "--gpu-memory-utilization": "--mem-fraction-static N",
            "--stream-interval": "--stream-interval N",
        },
        "tgi": {
            "--max-num-batched-tokens": "--max-batch-prefill-tokens N",
            "--max-num-seqs": "--max-batch-size N",
            "--gpu-memory-utilization": "--cuda-memory-fraction N",
        },
        "trtllm": {
            "--max-num-batched-tokens": "--max_num_tokens N",
            "--max-num-seqs": "--max_batch_size N",
            "--gpu-memory-utilization": "--kv_cache_free_gpu_memory_fraction N",
        },
    }
)
#: What vLLM needs a flag for and these do anyway, with the words around it.
_ALWAYS_ON: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "llamacpp": ("chunked prefill on (--enable-chunked-prefill), ", "--enable-chunked-prefill, "),
        "sglang": ("chunked prefill on (--enable-chunked-prefill), ", "--enable-chunked-prefill, "),
    }
)
_A_FLAG: Final = re.compile(r"(?<![\w-])--[a-z][a-z_-]+")


def budget_advice(figures: Figures) -> str:
    """What the sidecar has learned on this very server; empty while it has no number to advise."""
    return "; ".join(
        (f"{advice.model}: " if len(figures.advice) > 1 else "") + _as_flags(advice.words)
        for advice in figures.advice
        if advice.max_batched_tokens is not None
    )


def _as_flags(words: str) -> str:
    return words.replace("max_num_batched_tokens=", "--max-num-batched-tokens ").replace(
        "with chunked prefill on, ", "--enable-chunked-prefill, "
    )


def for_server(kind: str, remedy: str) -> str:
    """The remedy with the flags of this kind of server, where it has them."""
    for words in _ALWAYS_ON.get(kind, ()):
        remedy = remedy.replace(words, "")
    for flag, own in _FLAGS.get(kind, {}).items():
        # Without a value the flag alone is named.
        with_value, alone = own.replace(" N", r" \1"), own.replace(" N", "")
        remedy = re.sub(rf"{flag} (\d+)", with_value, remedy)
        remedy = re.sub(rf"{flag}(?![\w-])", alone, remedy)
    return remedy


def has_foreign_flags(kind: str, remedy: str) -> bool:
    """Whether it names flags that this kind of server does not have."""
    own = {flag for words in _FLAGS.get(kind, {}).values() for flag in _A_FLAG.findall(words)}
    return bool(set(_A_FLAG.findall(remedy)) - own)
