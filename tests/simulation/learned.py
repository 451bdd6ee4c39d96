"""What the observer learned of an engine in a run, beside what that engine really is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass
from typing import Final

from tests.core.script import Observed
from tests.simulation.engine import Rank, clear_step

from prefillwatch.observer.api import advice_now
from prefillwatch.units import MS

#: A ratio within this of 1 is right.
NEAR: Final = 1.2


@dataclass(frozen=True)
class Learned:
    """Each as a ratio to the engine's own; None: nothing is said, or there is no such thing."""

    clear: float | None = None  # the clear step, as the heartbeat has it
    base: float | None = None  # the same, as the line through steps has it
    cost: float | None = None  # of a prompt token
    budget: float | None = None  # tokens per step
    advice: float | None = None  # what a step as full as is advised takes, of the target


@dataclass(frozen=True)
class Told:
    """Of so many runs, a figure was told in so many and right in so many."""

    runs: int
    told: int
    right: int


def learned(observed: Observed, ranks: list[Rank]) -> Learned:
    ledger, clear = observed.ledger, clear_step(ranks)
    numbers = list(ledger.models)
    line = ledger.costs.line(numbers[0]) if numbers else None
    read = [step for rank in ranks for step in rank.steps if step.prompts]
    tokens = sum(sum(step.prompts.values()) for step in read)
    cost = sum(step.prefill for step in read) / tokens if tokens else None
    engine, scheduling = ledger.timeline.engine, ranks[0].scheduling
    advice = None
    for told in advice_now(observed.view()).values():
        if told["advised_max_batched_tokens"] is not None and cost:
            decoding = ledger.engines.decoding
            full = clear + cost * max(told["advised_max_batched_tokens"] - decoding, 0)
            advice = full / (1000 * told["target_gap_seconds"])
    return Learned(
        clear=ledger.engines.clear_step_ns / MS / clear if ledger.engines.clear_step_ns else None,
        base=line.base_ns / MS / clear if line else None,
        cost=line.token_ns / MS / cost if line and cost else None,
        budget=engine.budget / scheduling.budget if engine.proven and scheduling.chunked else None,
        advice=advice,
    )


def summed_up(all_: Iterable[Learned]) -> tuple[Told, ...]:
    """One for each of its fields."""
    columns = list(zip(*(astuple(each) for each in all_), strict=True))
    return tuple(_told(column) for column in columns)


def _told(column: tuple[float | None, ...]) -> Told:
    known = [each for each in column if each is not None]
    return Told(len(column), len(known), sum(1 / NEAR <= each <= NEAR for each in known))
