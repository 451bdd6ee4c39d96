"""A trace as vLLM writes it for a hybrid model on a GPU, made up, so that the truth about it is known.

32 layers, every fourth with attention over the KV cache, the others linear. Steps come back to back; each kernel fills
97 % of its slot. Names, categories, streams and noise (Python functions, CPU ops, runtime calls, flow arrows) are those
of real traces.
"""

from __future__ import annotations

import gzip
import json
import random
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

Event = dict[str, Any]

LAYERS = 32
FULL_EVERY = 4
FULL_LAYERS = LAYERS // FULL_EVERY
LINEAR_LAYERS = LAYERS - FULL_LAYERS
BUSY = 0.97

NORM = "triton_red_fused__to_copy_add_copy__mean_mul_pow_rsqrt_0"
GEMM = "ampere_fp16_s16816gemm_fp16_64x64_sliced1x2_ldg8_f2f_stages_64x5_tn"
FLASH = (
    "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<256, 64, 64, 4, false, false, cutlass::half_t>, "
    "false, false, false, false, true, false, true, false>(flash::Flash_fwd_params)"
)
COMBINE = "void flash::flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<256, 64, 64, 4>, 4>(Flash_fwd_params)"
CACHE = "void vllm::reshape_and_cache_flash_kernel<unsigned short, unsigned short, (vllm::Fp8KVCacheDataType)0>(int)"
CONV_DECODE = "_causal_conv1d_update_kernel"
RECURRENT = "fused_recurrent_gated_delta_rule_packed_decode_kernel"
CHUNKS = (
    "_causal_conv1d_fwd_kernel",
    "chunk_local_cumsum_scalar_kernel",
    "chunk_scaled_dot_kkt_fwd_kernel",
    "merge_16x16_to_64x64_inverse_kernel",
    "recompute_w_u_fwd_kernel",
    "chunk_gated_delta_rule_fwd_kernel_h_blockdim64",
    "chunk_fwd_kernel_o",
)
ARGMAX = (
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::ArgMaxOps<float>, unsigned int, "
    "long, 4> >(at::native::ReduceOp<float, at::native::ArgMaxOps<float>, unsigned int, long, 4>)"
)
FILL = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<int>, std::array<char*, 1ul> >"
    "(int, at::native::FillFunctor<int>, std::array<char*, 1ul>)"
)


@dataclass(frozen=True)
class MadeStep:
    """One engine step: how long, and what rides in it."""

    milliseconds: float
    prompt_tokens: int = 0
    answers: int = 4
    #: Launches by which the autotuner tries `chunk_fwd_kernel_o` in the first linear layer.
    tries: int = 0


#: Four answers, and a prompt of 6,001 tokens taken in by 17 steps of 39 ms.
ARTICLE = (*[MadeStep(22.0)] * 12, *[MadeStep(39.0, 353)] * 17, *[MadeStep(22.0)] * 24)


@dataclass
class GpuTrace:
    """`events()` are those of the steps; the booleans leave out what not every trace has."""

    steps: Iterable[MadeStep] = ARTICLE
    annotated: bool = True
    chooses_tokens: bool = True
    noise: bool = True
    start_us: float = 5_134_147_559_064.919
    #: Milliseconds without work after a step, by its index.
    pause_after: dict[int, float] = field(default_factory=dict)

    def events(self) -> Iterator[Event]:
        now = self.start_us
        for index, step in enumerate(self.steps):
            yield from self._step(index, step, now)
            now += step.milliseconds * 1000 + self.pause_after.get(index, 0.0) * 1000

    def _step(self, index: int, step: MadeStep, start: float) -> Iterator[Event]:
        if self.noise:
            yield from _noise(index, start)
        if self.annotated:
            yield from _annotations(step, start)
        work = list(self._work(step))
        slot = step.milliseconds * 1000 / sum(weight for _, weight in work)
        now = start
        for name, weight in work:
            yield kernel(name, now, weight * slot * BUSY)
            now += weight * slot

    def _work(self, step: MadeStep) -> Iterator[tuple[str, float]]:
        """Kernels of a step with how much of its time they get."""
        yield "Memcpy HtoD (Pinned -> Device)", 0.1
        yield "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*, int, long)", 0.2
        for layer in range(LAYERS):
            yield NORM, 0.3
            yield GEMM, 3.0
            if layer % FULL_EVERY == FULL_EVERY - 1:
                yield CACHE, 0.1
                yield FLASH, 1.5
                yield COMBINE, 0.1
            else:
                yield from self._linear(step, first=layer == 0)
            yield GEMM, 2.0
            yield NORM, 0.3
            yield GEMM, 4.0
            yield "triton_poi_fused_mul_silu_slice_4", 0.3
        yield "ampere_fp16_s16816gemm_fp16_256x64_ldg8_f2f_tn", 4.0
        if self.chooses_tokens:
            yield ARGMAX, 0.2
        yield "Memcpy DtoH (Device -> Pinned)", 0.1

    def _linear(self, step: MadeStep, *, first: bool) -> Iterator[tuple[str, float]]:
        if step.prompt_tokens:
            for name in CHUNKS:
                yield name, 0.4
            for _ in range(step.tries if first else 0):
                yield FILL, 2.0
                yield CHUNKS[-1], 2.0
        if step.answers:
            yield CONV_DECODE, 0.1
            yield RECURRENT, 1.0


def kernel(name: str, start: float, duration: float, stream: int = 7) -> Event:
    category = "gpu_memcpy" if name.startswith("Memcpy") else "gpu_memset" if name.startswith("Memset") else "kernel"
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": 0,
        "tid": stream,
        "ts": round(start, 3),
        "dur": round(duration, 3),
        "args": {
            "External id": 1,
            "device": 0,
            "context": 1,
            "stream": stream,
            "grid": [1, 4, 5],
            "block": [128, 1, 1],
        },
    }


def _annotations(step: MadeStep, start: float) -> Iterator[Event]:
    prompts = 1 if step.prompt_tokens else 0
    name = f"execute_context_{prompts}({step.prompt_tokens})_generation_{step.answers}({step.answers})"
    length = step.milliseconds * 1000
    # The CPU launches ahead of the GPU, so that its own annotation says nothing about when the kernels ran.
    yield {"ph": "X", "cat": "user_annotation", "name": name, "pid": 41, "tid": 41, "ts": start - 9000, "dur": 4000.5}
    yield {"ph": "X", "cat": "gpu_user_annotation", "name": name, "pid": 0, "tid": 7, "ts": start, "dur": length - 1}


def _noise(index: int, start: float) -> Iterator[Event]:
    yield {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 41, "tid": 41, "ts": start - 8000, "dur": 12.25}
    yield {
        "ph": "X",
        "cat": "cuda_runtime",
        "name": "cudaLaunchKernel",
        "pid": 41,
        "tid": 41,
        "ts": start - 7000,
        "dur": 4,
    }
    yield {"ph": "s", "id": index, "pid": 41, "tid": 41, "ts": start - 7000, "cat": "ac2g", "name": "ac2g"}
    yield {"ph": "f", "id": index, "pid": 0, "tid": 7, "ts": start, "cat": "ac2g", "name": "ac2g", "bp": "e"}
    name = 'vllm/v1/worker/gpu_worker.py(1303): execute_model {"a\\": [}'
    yield {"ph": "X", "cat": "python_function", "name": name, "pid": 41, "tid": 41, "ts": start, "dur": 900.125}


HEAD = {
    "schemaVersion": 1,
    "deviceProperties": [{"id": 0, "name": "made up"}],
    "vllm_version": "0.32.0",
    "host_name": "host",
}
METADATA: tuple[Event, ...] = (
    {"ph": "M", "name": "process_name", "ts": 0, "pid": 0, "tid": 0, "args": {"name": "VLLM::Worker"}},
    {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": 9e12},
)


def text_of(events: Iterable[Event]) -> bytes:
    """A trace file in the form that the profiler writes."""
    return b"".join(pieces_of(events))


def pieces_of(events: Iterable[Event]) -> Iterator[bytes]:
    """The same piece by piece, never held."""
    head = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in HEAD.items())
    yield f'{{\n{head},\n  "traceEvents": [\n'.encode()
    separator = b"  "
    for event in chain(METADATA, events):
        yield separator + msgspec.json.encode(event)
        separator = b",\n  "
    yield b'\n  ],"traceName": "/tmp/x.json"}\n'


def shuffled(events: Iterable[Event], seed: int = 1) -> list[Event]:
    """The profiler promises no order."""
    listed = list(events)
    random.Random(seed).shuffle(listed)
    return listed


def write(path: Path, events: Iterable[Event]) -> Path:
    """A trace file, compressed if its name says so."""
    text = text_of(events)
    path.write_bytes(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)
    return path


if __name__ == "__main__":  # the trace behind docs/heartbeat.png: python -m tests.lab.trace.gpu_trace OUT.json.gz
    print(write(Path(sys.argv[1]), GpuTrace().events()))
