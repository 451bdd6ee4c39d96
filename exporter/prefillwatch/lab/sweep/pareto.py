"""Which settings are worth a choice: those that no other beats in everything. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from prefillwatch.lab.sweep.figures import Outcome

#: Figures that differ by less count as equal: measured twice, one setting differs from itself by so much.
TOLERANCE: Final = 0.03


@dataclass(frozen=True, slots=True)
class Goals:
    """What is traded against each other: two times in seconds, less is better, and a rate, more is better."""

    gap: float
    """p99 of the victims' gaps in the injection window, or of the readers' gaps where no probe was made."""
    first_token: float
    """Median time to first token of the long prompts, or of the mix's requests where no probe was made."""
    rate: float | None
    """Tokens per second that the mix generated; None without a mix."""

    def place(self) -> tuple[int, int, int]:
        """In steps of `TOLERANCE`, less is better in all."""
        return _step(self.gap), _step(self.first_token), -_step(self.rate) if self.rate is not None else 0


def goals(outcome: Outcome) -> Goals | None:
    """None for a setting that was not measured, or on which nothing was: no victim got a second token."""
    probe, mix = outcome.heaviest, outcome.mix
    gaps = (probe.window or probe.overall) if probe else mix.gaps if mix else None
    first = probe.first_token if probe else mix.first_token if mix else None
    if outcome.failure is not None or gaps is None or first is None:
        return None
    return Goals(gaps.p99_seconds, first.p50_seconds, mix.generated_tokens_per_second if mix else None)


def pareto_front(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Those that none beats: is no worse in any goal and better in one. Never empty where one was measured."""
    placed = [(outcome, found.place()) for outcome in outcomes if (found := goals(outcome)) is not None]
    return [outcome for outcome, place in placed if not any(_beats(other, place) for _, other in placed)]


def beaten_by(outcome: Outcome, outcomes: Sequence[Outcome]) -> Outcome | None:
    """The setting that beats this one, if any does; of several the one with the smallest gap."""
    own = goals(outcome)
    if own is None:
        return None
    winners = [
        (found.gap, position)
        for position, other in enumerate(outcomes)
        if (found := goals(other)) is not None and _beats(found.place(), own.place())
    ]
    return outcomes[min(winners)[1]] if winners else None


def _beats(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))


def _step(value: float) -> int:
    return round(math.log(max(value, 1e-9)) / math.log1p(TOLERANCE))
