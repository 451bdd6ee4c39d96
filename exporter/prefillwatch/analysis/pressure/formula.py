"""The two pressures, each one formula: 1 is a promise that is just kept.

``capacity`` is what more replicas cure: it is made of parts that halve when the same load is spread over twice as many
servers, so that *replicas times pressure* is how many there should be. ``interference`` is what they do not cure: a
prompt that rides in a step makes it as long on any of them, and only smaller steps, or prompts kept apart, help.

``docs/pressure.md`` has the reasons. Seconds, tokens per second, and shares of time; all of them are smoothed by who
asks (`gauge`).
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Final

from prefillwatch.analysis.settings import Slo
from prefillwatch.analysis.tuning import DEFAULT, PressureRules
from prefillwatch.contract.buckets import PROMPT_EDGES
from prefillwatch.contract.limits import FIRST_TOKEN_PROMISE, FIRST_TOKEN_PROMISES

#: How many times as long a first token may take, by the buckets of `PROMPT_EDGES`.
_LONGER: Final = tuple(each / FIRST_TOKEN_PROMISE for each in FIRST_TOKEN_PROMISES.values())


def first_token_promise(slo: Slo, prompt_tokens: int) -> float:
    """The time to first token that a prompt of this size was promised: people wait longer for what they know to be
    long."""
    return slo.ttft * _LONGER[bisect_left(PROMPT_EDGES, prompt_tokens + 1)]


@dataclass(frozen=True, slots=True)
class Prompts:
    """Of the last half minute, in the mean."""

    tokens: float = 0.0
    #: Of them that had to be read.
    uncached: float = 0.0
    promise_s: float = 0.0


#: Limits of tokens are advised in multiples of a KV block.
_GRAIN: Final = 16


def most_queued_tokens(prompts: Prompts, read_per_s: float) -> int | None:
    """How many prompt tokens may wait so that the promise on first tokens is just kept, for vLLM's
    ``max_num_queued_tokens``.

    That limit is held against all prompt tokens of all requests without a first token, cached ones and read ones
    included, before a request is let in. So it is what is read in the promised time, less a prompt for the one that is
    let in last, and more where a part of prompts is cached. None: prompts of this kind are not read in time even alone.
    """
    if not prompts.uncached:
        return None
    in_time = read_per_s * prompts.promise_s - prompts.uncached
    tokens = int(in_time * prompts.tokens / prompts.uncached) // _GRAIN * _GRAIN
    return tokens if tokens > 0 else None


@dataclass(frozen=True, slots=True)
class Load:
    """What a server has to do. Means over the last half minute."""

    #: What a token takes: an engine step as the streams in it have it, its prompts included.
    step_s: float = 0.0
    #: The same of an empty batch; 0: not known.
    empty_step_s: float = 0.0
    #: Part of the time in which somebody decodes.
    decoding: float = 0.0
    #: Part of the time that reading prompts takes.
    reading: float = 0.0
    #: What reading one prompt takes.
    reading_s: float = 0.0
    #: How long a prompt may wait and still be answered in time.
    allowance_s: float = 0.0
    #: Requests that wait to be read, without those that one longer prompt holds up.
    waiting: float = 0.0
    #: First tokens per second.
    served_per_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Capacity:
    """The pressure, and the parts that it is the largest of."""

    ratio: float
    pace: float
    reading: float
    waiting: float


def capacity(load: Load, slo: Slo, rules: PressureRules = DEFAULT.pressure) -> Capacity:
    """How much of the load that the promises allow is there.

    pace     (step - empty step) / (promise - empty step): of the room that an empty batch leaves under the promised
             time per token, how much the batch uses; no room at all is nothing that more servers give.
    reading  reading x (1 + tail x reading time / allowance): the time that prompts take, over the part of the time that
             they may take before nine of ten do not get theirs in time any more (a queue with one server).
    waiting  a queue of L requests, over the L* that may wait: L / (1 + L) over the same of L* is the load of a queue by
             its length; what is longer than L* has to be served within a minute besides the rest.
    """
    per_token_s = min(slo.tpot, slo.itl)
    room_s = per_token_s - load.empty_step_s
    often = min(1.0, load.decoding / rules.often)
    pace = often * max(0.0, load.step_s - load.empty_step_s) / room_s if room_s > 0 else 0.0
    if load.allowance_s <= 0:
        return Capacity(max(pace, load.reading), pace, load.reading, 0.0)
    reading = load.reading * (1 + rules.tail * load.reading_s / load.allowance_s)
    served_per_s = max(load.served_per_s, 1 / rules.capacity_s)
    may_wait = served_per_s * load.allowance_s / rules.tail
    waiting = min(1.0, load.waiting / (1 + load.waiting) * (1 + may_wait) / may_wait)
    backlog = max(0.0, load.waiting - may_wait) / (served_per_s * rules.drained_s)
    waiting += min(backlog, rules.most_backlog)
    return Capacity(max(pace, reading, waiting), pace, reading, waiting)


@dataclass(frozen=True, slots=True)
class Riding:
    """What prompts do to others."""

    #: Mean of the worst thousandth of gaps: what prompts added, over the room that a clear step leaves.
    worst_gaps: float = 0.0
    #: Mean over requests: the wait behind one longer prompt, over what may be waited.
    held_up: float = 0.0


@dataclass(frozen=True, slots=True)
class Interference:
    """The pressure, and the parts that it is the larger of."""

    ratio: float
    gaps: float
    held_up: float


def interference(riding: Riding, rules: PressureRules = DEFAULT.pressure) -> Interference:
    """How far over the promises prompts in steps are.

    gaps     what the worst of a thousand gaps have of prompts, over what the promised gap leaves beside a clear step.
    held_up  how long requests wait behind one prompt that is longer than theirs, nine of ten, over what they may.
    """
    held_up = rules.tail * riding.held_up
    return Interference(max(riding.worst_gaps, held_up), riding.worst_gaps, held_up)
