"""Which settings are worth a choice: those that no other beats in everything. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from prefillwatch.lab.sweep.figures import Outcome

#: Figures that differ by less than this count as equal: one setting measured twice differs from itself by as much.
TOLERANCE: Final = 0.05


@dataclass(frozen=True, slots=True)
class Goals:
    """What is traded against each other: two times in seconds, less is better, and a rate, more is better."""

    #: p99 of the victims' gaps in the injection window, or of the readers' gaps where no probe was made.
    gap: float
    #: Median time to first token of the long prompts, or of the mix's requests where no probe was made.
    first_token: float
    #: Tokens per second that the mix generated; None without a mix.
    rate: float | None

    def all(self) -> tuple[float, ...]:
        """Less is better in each."""
        return self.gap, self.first_token, 1.0 / self.rate if self.rate else 0.0

    def beats(self, other: Goals, tolerance: float = TOLERANCE) -> bool:
        """No worse in any goal, and better in at least one, by more than measurements differ."""
        pairs = list(zip(self.all(), other.all(), strict=True))
        no_worse = all(own <= its * (1 + tolerance) for own, its in pairs)
        return no_worse and any(own * (1 + tolerance) < its for own, its in pairs)


def goals(outcome: Outcome) -> Goals | None:
    """None for a setting that was not measured, or on which nothing was: no victim got a second token."""
    probe, mix = outcome.heaviest, outcome.mix
    gaps = (probe.window or probe.overall) if probe else mix.gaps if mix else None
    first = probe.first_token if probe else mix.first_token if mix else None
    if outcome.failure is not None or gaps is None or first is None:
        return None
    return Goals(gaps.p99_seconds, first.p50_seconds, mix.generated_tokens_per_second if mix else None)


def pareto_front(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Those that none beats. Never empty where one was measured."""
    placed = [(outcome, found) for outcome in outcomes if (found := goals(outcome)) is not None]
    # When many settings hardly differ, each may be beaten by another in turn; then every difference counts.
    return _unbeaten(placed, TOLERANCE) or _unbeaten(placed, 0.0)


def _unbeaten(placed: Sequence[tuple[Outcome, Goals]], tolerance: float) -> list[Outcome]:
    return [outcome for outcome, own in placed if not any(other.beats(own, tolerance) for _, other in placed)]


def beaten_by(outcome: Outcome, outcomes: Sequence[Outcome]) -> Outcome | None:
    """The setting that beats this one, if it is not on the front; of several the one with the smallest gap."""
    own = goals(outcome)
    if own is None or outcome in pareto_front(outcomes):
        return None
    winners = [
        (found.gap, position)
        for position, other in enumerate(outcomes)
        if (found := goals(other)) is not None and found.beats(own)
    ]
    return outcomes[min(winners)[1]] if winners else None
