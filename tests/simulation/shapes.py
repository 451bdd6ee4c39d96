"""The engines that people run, and what they are asked. One row is one shape; ``like`` says what it is written from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from tests.simulation.engine import Scheduling, Span

USUAL: Final = Scheduling()


@dataclass(frozen=True)
class Asked:
    """What clients do; shares are of the prompts that come in between."""

    leaving: float = 0.0  # whose client leaves
    choices: int = 1
    prompts: int = 1  # in one request, each with an answer
    in_json: float = 0.0  # answered at once
    only_read: float = 0.0  # scored or embedded: no answer is written
    background: float = 0.0  # asked for to be fetched later
    elsewhere: float = 0.0  # not through us
    shared: int = 0  # tokens that many prompts begin with
    salted: float = 0.0  # of those, who share with nobody
    reset_every: float = 0.0  # milliseconds until the prefix cache is emptied again
    crowd: int = 0  # more streams than the usual few
    passers_by: float = 0.0  # one more chat so often, in milliseconds, that ends within seconds; 0: none
    hidden: tuple[int, int] = (0, 0)  # tokens of thought before the answer, that nobody is shown
    thought_is_counted: bool = False  # … but that every event counts
    withheld: int = 0  # tokens of each chat that come as one, once they are whole
    interval: int = 1  # tokens per event, that half of the chats ask for
    encoded: Span = (0.0, 0.0)  # milliseconds for the pictures of half of the prompts
    uneven: bool = False  # of several answers to a prompt each is longer than the one before
    end_held: float = 0.0  # milliseconds until a server says that an answer was at its end
    lost: float = 0.0  # whose context never comes
    rarer: float = 1.0  # so many times as long between them as usually
    grammar: float = 0.0  # whose answer has to keep to one
    fetched: Span = (0.0, 0.0)  # milliseconds until a prompt's context is there from elsewhere


@dataclass(frozen=True)
class Shape:
    name: str
    scheduling: Scheduling = USUAL
    asked: Asked = Asked()
    server: str = "vllm"  # whose page it has
    ranks: int = 1  # engines behind one door, each with a clock of its own
    in_step: bool = False  # … or all with one
    unseen: int = 0  # of the ranks, whose requests do not come through us
    interval: int = 1  # tokens per event
    merges: bool = True  # tokens that were withheld come as one event
    milliseconds: float = 15_000.0
    base: Span = (12.0, 30.0)  # milliseconds of a clear step, from which to which
    like: str = "vLLM's scheduler, and its step log (`make truth`)"


def _llamacpp(name: str, asked: Asked = Asked()) -> Shape:
    slots = Scheduling(ahead=False, seats=16)
    return Shape(name, slots, asked, "llamacpp", merges=False, like="llama.cpp's server and what was seen of it")


def _sglang(name: str, asked: Asked = Asked(), **scheduling: int | bool) -> Shape:
    first = Scheduling(ahead=False, prefill_first=True, **scheduling)  # type: ignore[arg-type]  # each of its own type
    return Shape(name, first, asked, "sglang", merges=False, like="SGLang's source; it was not run")


_DRAFTS: Final = ((4, 4), (8, 2), (128, 1))

_MINUTES: Final = {"milliseconds": 240_000.0, "base": (90.0, 110.0), "like": "the same as its short kin, for minutes"}


def _minutes(name: str, **asked: Any) -> Shape:
    return Shape(name, asked=Asked(**{"rarer": 12.0} | asked), **_MINUTES)  # type: ignore[arg-type]  # each of its own type


#: Long enough for a critical alert to fire. What a page should be told of is in the name of those where it should.
SCENES: Final = (
    _minutes("minutes, nothing special"),
    _minutes("minutes of hidden reasoning", hidden=(1400, 1800)),
    _minutes("minutes of hidden reasoning, counted", hidden=(1400, 1800), thought_is_counted=True),
    _minutes("answers of different length", choices=3, uneven=True),
    _minutes("ends held back for 40 s", end_held=40_000.0),
    _minutes("a context that never comes", lost=0.4),
    _minutes("background answers for minutes", background=0.7),
)

SHAPES: Final = (
    Shape("vLLM, asynchronous"),
    Shape("vLLM, synchronous", Scheduling(ahead=False)),
    Shape("vLLM, unchunked", Scheduling(ahead=False, chunked=False, budget=16_384)),
    Shape("vLLM, slices of 512", Scheduling(slice=512)),
    Shape("vLLM, prefill every 4th step", Scheduling(rests=3), like="vLLM's `prefill_schedule_interval`"),
    Shape("vLLM, prefix caching", Scheduling(prefix_caching=True), Asked(shared=1600)),
    Shape(
        "vLLM, cache salts and resets",
        Scheduling(prefix_caching=True),
        Asked(shared=1600, salted=0.3, reset_every=5000.0),
        like="vLLM's `cache_salt` and `/reset_prefix_cache`",
    ),
    Shape("vLLM, preemption", Scheduling(cache_tokens=9_000), Asked(passers_by=600.0)),
    Shape("vLLM, stream interval 4", interval=4),
    Shape(
        "vLLM, stream interval by request", asked=Asked(interval=5), like="vLLM's `stream_interval` in request bodies"
    ),
    Shape("vLLM, clients leave", asked=Asked(leaving=0.4)),
    Shape("vLLM, clients leave, goes on", Scheduling(aborts=False), Asked(leaving=0.4)),
    Shape("vLLM, n = 3", Scheduling(prefix_caching=True), Asked(choices=3)),
    Shape("vLLM, lists of prompts", asked=Asked(prompts=12), like="vLLM's `/v1/completions`: one request per prompt"),
    Shape("vLLM, JSON answers", asked=Asked(in_json=0.5)),
    Shape("vLLM, prefill-only endpoints", asked=Asked(only_read=0.7), like="`/v1/score`, `/v1/embeddings`, `/rerank`"),
    Shape("vLLM, background answers", asked=Asked(background=0.5), like="the Responses API's `background`"),
    Shape("vLLM, hidden reasoning", asked=Asked(hidden=(100, 400)), like="answers with `include_reasoning` false"),
    Shape(
        "vLLM, hidden reasoning, counted",
        asked=Asked(hidden=(100, 400), thought_is_counted=True),
        like="the same with `continuous_usage_stats`",
    ),
    Shape("vLLM, withheld tool arguments", asked=Asked(withheld=40), like="tool parsers that wait for whole arguments"),
    Shape("vLLM, structured output", asked=Asked(grammar=0.6), like="sampling that waits for a grammar's mask"),
    Shape("vLLM, images", asked=Asked(encoded=(80.0, 600.0)), like="an encoder that runs before its prompt's step"),
    Shape("vLLM, speculation", Scheduling(drafts=((128, 3),)), like="vLLM's draft models; 70 % of guesses right"),
    Shape(
        "vLLM, speculation by batch", Scheduling(drafts=_DRAFTS), Asked(passers_by=1500.0), like="vLLM's dynamic drafts"
    ),
    Shape(
        "vLLM, pipeline of 4",
        Scheduling(stages=4),
        Asked(crowd=4),
        like="vLLM's pipeline: chunks in consecutive steps, a token every 4th",
    ),
    Shape("vLLM, two ranks", ranks=2, asked=Asked(crowd=4), like="dense data-parallel ranks: engines apart"),
    Shape(
        "vLLM, four ranks in step",
        ranks=4,
        in_step=True,
        asked=Asked(crowd=8),
        like="MoE ranks that wait for each other",
    ),
    Shape(
        "vLLM, a rank out of sight",
        ranks=2,
        in_step=True,
        unseen=1,
        asked=Asked(crowd=2),
        like="the same, with one door for each rank",
    ),
    Shape("vLLM, another door", asked=Asked(elsewhere=0.5), like="clients that do not pass us"),
    Shape("vLLM, cache offloaded", asked=Asked(fetched=(20.0, 900.0)), like="KV connectors: contexts are fetched"),
    Shape(
        "vLLM, decode side",
        asked=Asked(fetched=(150.0, 2500.0), crowd=4),
        like="a split server: another machine reads the prompts",
    ),
    _llamacpp("llama.cpp, slots"),
    _llamacpp("llama.cpp, clients leave", Asked(leaving=0.4)),
    _sglang("SGLang, prefill first"),
    _sglang("SGLang, mixed chunk", mixed=True),
    _sglang("SGLang, prefill every 4th step", rests=3),
    _sglang("SGLang, delayed prefill", delay=8),
    _sglang("SGLang, retraction", Asked(passers_by=600.0), cache_tokens=9_000),
)
