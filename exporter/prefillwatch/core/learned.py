"""What the observer has learned about a server, so that verdicts on the last minutes alone are those it came to.

Figures only: what steps and tokens took, how long texts are in tokens, keyed digests of how prompts begin. Without them
a flight recording would be judged by somebody who sees this server for the first time.
"""

from __future__ import annotations

from typing import Final

import msgspec

from prefillwatch.analysis.cost import StepSample
from prefillwatch.analysis.ledger import Ledger
from prefillwatch.analysis.requests import ModelNames
from prefillwatch.analysis.steps import Engine

_MOST_STEPS: Final = 128
_MOST_GAPS: Final = 64
_MOST_DIGESTS: Final = 2048


class LearnedOfModel(msgspec.Struct, frozen=True, array_like=True):
    """Each in order of time."""

    gaps: list[float]  # clear ones, seconds per token
    prompts: list[tuple[int, int]]  # characters, tokens
    prefixes: list[int]
    steps: list[StepSample]  # those without a prompt first


class Learned(msgspec.Struct, frozen=True, array_like=True):
    engine: Engine
    clear_steps: list[tuple[int, int, bool]]  # nanoseconds, streams, whether somebody waited
    models: dict[str, LearnedOfModel]


def learned(ledger: Ledger, names: ModelNames) -> Learned:
    """By now."""
    return Learned(
        ledger.timeline.engine,
        ledger.timeline.clear.samples(),
        {names.labels[number]: _of_model(ledger, number) for number in ledger.models},
    )


def _of_model(ledger: Ledger, number: int) -> LearnedOfModel:
    return LearnedOfModel(
        ledger.book.baseline_samples(number, _MOST_GAPS),
        ledger.sizing.ratio.samples(number),
        ledger.sizing.prefixes.newest(number, _MOST_DIGESTS),
        ledger.costs.newest(number, _MOST_STEPS),
    )


def recall(learned: Learned, ledger: Ledger, names: ModelNames) -> None:
    """Into a ledger that has seen nothing yet."""
    ledger.timeline.recall(learned.engine)
    for duration_ns, streams, waiting in learned.clear_steps:
        ledger.timeline.clear.observe(duration_ns, streams, waiting=waiting)
    for label, of_model in learned.models.items():
        admitted = names.admit(label)
        names.release(admitted)
        if admitted == label:
            _recall_model(of_model, ledger, names.number(label))


def _recall_model(learned: LearnedOfModel, ledger: Ledger, number: int) -> None:
    ledger.book.recall_baseline(number, learned.gaps)
    for chars, tokens in learned.prompts:
        ledger.sizing.ratio.learn(number, chars, tokens)
    ledger.sizing.prefixes.remember(number, tuple(learned.prefixes))
    if learned.steps:
        ledger.models.begin(number)
        ledger.costs.add(number, learned.steps)
