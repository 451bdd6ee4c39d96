"""The engines that people run, and what they are asked. One row is one shape."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tests.simulation.engine import Scheduling

USUAL: Final = Scheduling()


@dataclass(frozen=True)
class Shape:
    name: str
    scheduling: Scheduling = USUAL
    ranks: int = 1  # engines behind one door, each with a clock of its own
    interval: int = 1  # tokens per event
    merges: bool = True  # tokens that were withheld come as one event
    whole_page: bool = True  # the page tells preemptions and the use of the cache
    leaving: float = 0.0  # share of prompts whose client leaves
    choices: int = 1
    in_json: float = 0.0  # share of prompts that are answered at once
    shared: int = 0  # tokens that many prompts begin with
    crowd: int = 0  # more streams than the usual few
    passers_by: float = 0.0  # one more chat so often, in milliseconds, that ends within seconds; 0: none


SHAPES: Final = (
    Shape("vLLM, asynchronous"),
    Shape("vLLM, synchronous", Scheduling(ahead=False)),
    Shape("vLLM, unchunked", Scheduling(ahead=False, chunked=False, budget=16_384)),
    Shape("vLLM, slices of 512", Scheduling(slice=512)),
    Shape("vLLM, prefix caching", Scheduling(prefix_caching=True), shared=1600),
    Shape("vLLM, preemption", Scheduling(cache_tokens=9_000), passers_by=600.0),
    Shape("vLLM, stream interval 4", interval=4),
    Shape("vLLM, clients leave", leaving=0.4),
    Shape("vLLM, clients leave, goes on", Scheduling(aborts=False), leaving=0.4),
    Shape("vLLM, n = 3", Scheduling(prefix_caching=True), choices=3),
    Shape("vLLM, JSON answers", in_json=0.5),
    Shape("vLLM, two ranks", ranks=2, crowd=4),
    Shape("llama.cpp, slots", Scheduling(ahead=False, seats=16), merges=False, whole_page=False),
    Shape("llama.cpp, clients leave", Scheduling(ahead=False, seats=16), merges=False, whole_page=False, leaving=0.4),
    Shape("SGLang, prefill first", Scheduling(ahead=False, prefill_first=True), merges=False),
)
