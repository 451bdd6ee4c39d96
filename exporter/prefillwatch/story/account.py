"""What is kept of one incident, for its story. Ready for JSON.

Moments are seconds since the incident began, and may be negative; lengths are seconds. There are no texts in it: names
of models and request ids are all that others chose.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Stop(msgspec.Struct, frozen=True, omit_defaults=True):
    """A stall of a stream, or a wait for a first token. ``end`` None: it lasts."""

    start: float
    end: float | None
    lost: float


class Stream(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One that stood still, or waited for its first token. ``reads`` are its reads with tokens, as far as kept."""

    request_id: str
    choice: int = 0
    lost: float = 0.0
    stops: tuple[Stop, ...] = ()
    reads: tuple[float, ...] = ()
    first: float | None = None


class Prompt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A prompt that was read meanwhile. ``share`` of the lost time is put down to it."""

    request_id: str
    tokens: int
    uncached: int
    exact: bool = False
    sent: float
    first: float | None = None
    gone: float | None = None  # ended without a first token
    share: float = 0.0


class Step(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An engine step that is final: ``parts`` are prompts, by their place in the account, and their tokens in it."""

    start: float
    end: float
    streams: int
    tokens: int = 0
    clear: float = 0.0
    parts: tuple[tuple[int, int], ...] = ()


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt read alone under a budget of tokens per step, by the learned cost: how many steps that takes, how long
    the longest of them is, and when the first token comes. ``budget`` 0: the whole prompt in one step."""

    budget: int
    steps: int
    longest: float
    first: float


class Engine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was learned of it by then. None: not known."""

    budget: int | None = None
    chunked: bool = True
    base: float | None = None  # a step without a prompt
    token: float | None = None  # more for each prompt token
    fit: float | None = None


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """``incident`` is as `/api/incidents` shows it. Of streams and steps the most affected are listed, all are
    counted."""

    incident: dict[str, Any]
    streams: tuple[Stream, ...] = ()
    stream_count: int = 0
    prompts: tuple[Prompt, ...] = ()
    steps: tuple[Step, ...] = ()
    step_count: int = 0
    engine: Engine = Engine()
    target: float = 0.0  # the gap that is promised
    advice: str = ""
    subject: int | None = None  # the prompt of which `then` and `now` are
    now: Reading | None = None
    then: Reading | None = None
