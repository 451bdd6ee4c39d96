"""The setting that keeps what users were promised, and what it costs against the others. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from prefillwatch.lab.sweep.figures import Outcome, Spread
from prefillwatch.lab.sweep.pareto import TOLERANCE, Goals, goals

Population = Literal["window", "overall", "mix"]


@dataclass(frozen=True, slots=True)
class Slo:
    """Bounds in seconds on a p99; None: not promised.

    Gaps are those of ``over``: the injection window of the heaviest probe, all of that probe, or the mix. First tokens
    are those of the mix, or of the probe's prompts where there was no mix.
    """

    gap_seconds: float | None = None
    first_token_seconds: float | None = None
    over: Population = "window"

    @property
    def is_given(self) -> bool:
        return self.gap_seconds is not None or self.first_token_seconds is not None

    def gaps_of(self, outcome: Outcome) -> Spread | None:
        """The gaps that the promise is about."""
        if self.over == "mix":
            return outcome.mix.gaps if outcome.mix else None
        probe = outcome.heaviest
        if probe is None:
            return None
        return probe.window if self.over == "window" else probe.overall

    def first_tokens_of(self, outcome: Outcome) -> Spread | None:
        if outcome.mix is not None:
            return outcome.mix.first_token
        return outcome.heaviest.first_token if outcome.heaviest else None

    def missed_by(self, outcome: Outcome) -> float:
        """How many times the worst bound is exceeded; at most 1 where all are met, infinite where it is not known."""
        pairs = (
            (self.gap_seconds, self.gaps_of(outcome)),
            (self.first_token_seconds, self.first_tokens_of(outcome)),
        )
        ratios = [
            found.p99_seconds / bound if found is not None else float("inf")
            for bound, found in pairs
            if bound is not None
        ]
        return max(ratios, default=0.0) if outcome.failure is None else float("inf")


@dataclass(frozen=True, slots=True)
class Cost:
    """What another setting would have given: it is better in one goal by more than measurements differ."""

    goal: Literal["gap", "first_token", "rate"]
    own: float
    best: float
    label: str


@dataclass(frozen=True, slots=True)
class Choice:
    """``setting`` is the one to take: of those that meet the promise, or the nearest to it where ``met`` is False."""

    setting: Outcome
    met: bool
    #: Labels of all that meet it.
    meeting: tuple[str, ...]
    costs: tuple[Cost, ...]


def choose(outcomes: Sequence[Outcome], slo: Slo) -> Choice | None:
    """Of the settings that meet the promise, the one with the earliest first tokens, then with the most tokens per
    second. Where none meets it, the nearest. None where what was promised was not measured."""
    known = [(outcome, found) for outcome in outcomes if (found := goals(outcome)) and slo.missed_by(outcome) < 1e9]
    if not known:
        return None
    meeting = [pair for pair in known if slo.missed_by(pair[0]) <= 1.0]
    if meeting:
        setting, own = _cheapest(meeting)
    else:
        setting, own = min(known, key=lambda pair: slo.missed_by(pair[0]))
    return Choice(
        setting=setting,
        met=bool(meeting),
        meeting=tuple(outcome.label for outcome, _ in meeting),
        costs=_costs(setting, own, known),
    )


def _cheapest(meeting: Sequence[tuple[Outcome, Goals]]) -> tuple[Outcome, Goals]:
    """Earliest first tokens; among equals, most tokens; among equals again, the smallest gap."""
    earliest = min(found.first_token for _, found in meeting) * (1 + TOLERANCE)
    left = [pair for pair in meeting if pair[1].first_token <= earliest]
    most = max(found.rate or 0.0 for _, found in left) / (1 + TOLERANCE)
    left = [pair for pair in left if (pair[1].rate or 0.0) >= most]
    return min(left, key=lambda pair: pair[1].gap)


def _costs(setting: Outcome, own: Goals, known: Sequence[tuple[Outcome, Goals]]) -> tuple[Cost, ...]:
    others = [pair for pair in known if pair[0] is not setting]
    if not others:
        return ()
    costs = []
    smoothest = min(others, key=lambda pair: pair[1].gap)
    if smoothest[1].gap < own.gap * (1 - TOLERANCE):
        costs.append(Cost("gap", own.gap, smoothest[1].gap, smoothest[0].label))
    quickest = min(others, key=lambda pair: pair[1].first_token)
    if quickest[1].first_token < own.first_token * (1 - TOLERANCE):
        costs.append(Cost("first_token", own.first_token, quickest[1].first_token, quickest[0].label))
    rates = [(found.rate, outcome.label) for outcome, found in others if found.rate is not None]
    most, label = max(rates, default=(0.0, ""))
    if own.rate is not None and own.rate < most * (1 - TOLERANCE):
        costs.append(Cost("rate", own.rate, most, label))
    return tuple(costs)
