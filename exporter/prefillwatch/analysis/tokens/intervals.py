"""How many tokens a server hands on at once: its stream interval, as the usage of whole answers shows it.

vLLM's ``--stream-interval 4`` sends the first token at once and then four together, so that a stream is read after four
steps of the engine and is silent in the three between. Pure: answers are handed in.
"""

from __future__ import annotations

from collections import deque
from statistics import median

from prefillwatch.analysis.tuning import DEFAULT, GapRules


class StreamIntervals:
    """Tokens per read of a model's streams, from the answers that ended last."""

    def __init__(self, rules: GapRules = DEFAULT.gaps) -> None:
        self._rules = rules
        self._of: dict[int, deque[float]] = {}

    def answered(self, model: int, tokens: int, events: int, choices: int) -> None:
        """An answer is whole, and its usage has counted its tokens. Short ones show nothing: their first event has one
        token, and their last what was left."""
        if events - choices < self._rules.interval_events:
            return
        of_model = self._of.setdefault(model, deque(maxlen=self._rules.interval_answers))
        of_model.append((tokens - choices) / (events - choices))

    def forget_model(self, model: int) -> None:
        """Its number goes to another model."""
        self._of.pop(model, None)

    def of(self, model: int) -> float:
        """Steps of the engine from one read of a stream to the next, where it makes a token in each; 1 when nothing is
        known, or half of the last answers came token by token."""
        known = self._of.get(model)
        return max(1.0, median(known)) if known else 1.0
