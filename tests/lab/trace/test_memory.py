"""A trace is read as a stream: what is held depends on its kernels, not on its size.

In a process of its own, since memory that was once needed is never given back.
"""

from __future__ import annotations

import itertools
import json
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
from tests.lab.trace.gpu_trace import GpuTrace, MadeStep, text_of

from prefillwatch.lab.trace.analyse import analyse
from prefillwatch.lab.trace.reading import TraceReader

ROOT = Path(__file__).resolve().parents[3]
MIB = 1 << 20
STEPS = [*[MadeStep(22.0)] * 20, *[MadeStep(39.0, 353)] * 10, *[MadeStep(22.0)] * 20]
KERNELS = 150_000


def padded(size: int) -> Iterator[bytes]:
    """A trace of so many bytes, most of them calls of Python functions, as with vLLM's default settings."""
    text = text_of(GpuTrace(STEPS).events())
    head, _, tail = text.rpartition(b"\n  ],")
    call = {
        "ph": "X",
        "cat": "python_function",
        "name": "vllm/model_executor/layers/linear.py(590): forward",
        "ts": 1.5,
    }
    noise = b",\n  " + msgspec.json.encode(call | {"dur": 2.5, "args": {"Python parent id": 129159, "Ev Idx": 167310}})
    piece = noise * (MIB // len(noise))
    yield head
    yield from itertools.repeat(piece, max(0, size - len(text)) // len(piece))
    yield b"\n  ]," + tail


def many_kernels() -> Iterator[bytes]:
    kernel = b',\n{"ph":"X","cat":"kernel","name":"gemm","pid":0,"tid":7,"ts":%d,"dur":5,"args":{"stream":7}}'
    yield b'{"traceEvents": [{}'
    for start in range(0, KERNELS, 1000):
        yield b"".join(kernel % (at * 10) for at in range(start, start + 1000))
    yield b"]}"


def measure() -> dict[str, int]:
    """Most memory of this process so far, in bytes, after each of three traces."""

    def after(pieces: Iterator[bytes]) -> int:
        analyse("made-up.json", TraceReader(pieces))
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    return {"small": after(padded(8 * MIB)), "large": after(padded(80 * MIB)), "many": after(many_kernels())}


def test_memory_does_not_grow_with_the_trace_and_little_with_its_kernels() -> None:
    code = "import json; from tests.lab.trace.test_memory import measure; print(json.dumps(measure()))"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    most = json.loads(run.stdout)
    assert most["large"] - most["small"] < 16 * MIB
    assert most["many"] - most["large"] < KERNELS * 250
