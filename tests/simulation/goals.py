"""What every row should come to, and which rows do not yet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tests.simulation.judge import Figures


@dataclass(frozen=True)
class Goal:
    precision: float
    recall: float
    right_names: float
    falsely_certain: float = 0.01
    unattributed: float = 0.10

    def missed(self, figures: Figures) -> Iterator[str]:
        for word, reached, least in (
            ("precision", figures.precision, self.precision),
            ("recall", figures.recall, self.recall),
            ("right names", figures.right_names, self.right_names),
        ):
            if reached < least:
                yield f"{word} {reached:.3f} of {least}"
        for word, reached, most in (
            ("falsely certain", figures.falsely_certain, self.falsely_certain),
            ("unattributed", figures.unattributed, self.unattributed),
        ):
            if reached > most:
                yield f"{word} {reached:.1%} where {most:.0%} are allowed"


WELL_KNOWN: Final = Goal(precision=0.99, recall=0.97, right_names=0.98)
OTHERS: Final = Goal(precision=0.98, recall=0.90, right_names=0.96)


#: Shapes of vLLM that are not those that most people run.
_OTHER_SHAPES: Final = (
    *("rank", "pipeline", "speculation", "every 4th", "interval", "hidden", "withheld", "background", "images"),
    *("prefill-only", "lists", "structured", "door", "side", "offloaded", "salts"),
)


def goal_of(name: str) -> Goal:
    """vLLM on one rank and llama.cpp are what most people run; most faults are tried on the first."""
    return OTHERS if "SGLang" in name or any(each in name for each in _OTHER_SHAPES) else WELL_KNOWN
