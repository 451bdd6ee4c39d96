"""Running medians of the gaps of undisturbed streams: what the excess of a stall is measured against.

The baseline of a slot is the lower median of its last 32 clear gaps per token, exactly; as an estimate of a steady
step time its standard error is about 1.25 / sqrt(32) = 22 % of the spread of the gaps. A slot with less than five
clear gaps has none of its own. The baseline of a model is the lower median of its last 1,024 samples, of which one
batch gives at most 16, so that it looks back for seconds however many streams there are. Half of the samples have to
be off before a median is, so a first slow gap moves neither.

Where a prompt is in service all the time, as with thousands of streams that read one after the other, no gap is clear
and there is no such median. Then the pace of a model is the lower quartile of all its gaps: what the quickest of them
take is the least disturbed that there is. A clear gap, once there are enough, counts for more than all of these.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from prefillwatch.analysis.arrays import FloatArray, IntArray, by_value
from prefillwatch.analysis.ring import Ring
from prefillwatch.analysis.tokens.windows import quantile_rank
from prefillwatch.analysis.tuning import DEFAULT, BaselineRules

_SLOTS_AT_FIRST: Final = 64
#: So few values are sorted in half the time that numpy takes to set out.
_FEW: Final = 32


class _ModelGaps:
    """The last gaps of a model, and one of their lower quantiles: `baseline`."""

    __slots__ = ("_baseline", "_enough", "_per_batch", "_quantile", "_ring")

    def __init__(self, rules: BaselineRules, enough: int, per_batch: int, quantile: float = 0.5) -> None:
        self._ring: Ring[np.float32] = Ring(rules.model_kept, 1, np.float32)
        self._enough = enough
        self._quantile = quantile
        self._per_batch = per_batch
        self._baseline: float | None = None

    def sample(self, gaps: FloatArray) -> None:
        self.add(gaps[:: -(-len(gaps) // self._per_batch)])

    def add(self, values: FloatArray) -> None:
        self._ring.add(values)
        self._baseline = None

    def newest(self, most: int) -> list[float]:
        gaps: list[float] = self._ring.newest(most)[0].tolist()
        return gaps

    def baseline(self) -> float | None:
        if self._baseline is None and len(self._ring) >= self._enough:
            self._baseline = lower_quantile(self._ring.kept()[0], self._quantile)
        return self._baseline


def lower_quantile(values: npt.NDArray[np.float32], q: float = 0.5) -> float:
    """The smallest value with a rank of at least so much of all: the quantile as windows define it."""
    place = quantile_rank(q, len(values)) - 1
    if len(values) <= _FEW:
        return float(sorted(values.tolist())[place])
    return float(np.partition(values, place)[place])


class Baselines:
    """Running medians of clear gaps per token, of slots and of models. Medians are worked out when asked for."""

    __slots__ = ("_disturbed", "_enough", "_kept", "_models", "_noted", "_rings", "_rules")

    def __init__(self, rules: BaselineRules = DEFAULT.baselines) -> None:
        self._rules = rules
        self._kept = rules.kept
        self._enough = rules.enough
        self._rings: npt.NDArray[np.float32] = np.zeros((_SLOTS_AT_FIRST, self._kept), dtype=np.float32)
        self._noted: IntArray = np.zeros(_SLOTS_AT_FIRST, dtype=np.int64)
        self._models: dict[int, _ModelGaps] = {}
        self._disturbed: dict[int, _ModelGaps] = {}  # of models without enough clear gaps

    def open(self, slot: int) -> None:
        while slot >= len(self._noted):
            self._rings = np.concatenate([self._rings, np.zeros_like(self._rings)])
            self._noted = np.concatenate([self._noted, np.zeros_like(self._noted)])
        self._noted[slot] = 0

    def note_slots(self, slot: IntArray, gaps: FloatArray) -> None:
        """Clear gaps per token of slots, in order of time within each slot."""
        if (slot[1:] < slot[:-1]).any():
            order = np.argsort(slot, kind="stable")
            slot, gaps = slot[order], gaps[order]
        place = self._noted[slot] + _rank_in_run(slot)
        self._rings[slot, place % self._kept] = gaps
        np.add.at(self._noted, slot, 1)

    def note_models(self, model: IntArray, gaps: FloatArray) -> None:
        """Clear gaps per token by the model they are of; at least one."""
        for number, own in by_value(model):
            self._clear_of(number).sample(gaps[own])
            if self.of_model(number) is not None:
                self._disturbed.pop(number, None)

    def note_disturbed(self, model: IntArray, gaps: FloatArray) -> None:
        """Other gaps per token, by model: they count while no clear ones are known."""
        for number, own in by_value(model):
            if self.of_model(number) is None:
                its = self._disturbed.get(number)
                if its is None:
                    rules, enough = self._rules, self._rules.quick_enough
                    its = self._disturbed[number] = _ModelGaps(rules, enough, enough, rules.quick_quantile)
                its.sample(gaps[own])

    def _clear_of(self, model: int) -> _ModelGaps:
        ring = self._models.get(model)
        if ring is None:
            ring = self._models[model] = _ModelGaps(self._rules, self._rules.model_enough, self._rules.per_batch)
        return ring

    def of_slot(self, slot: int) -> float | None:
        """The slot's own baseline; None while it has too few clear gaps."""
        noted = int(self._noted[slot])
        return lower_quantile(self._rings[slot, :noted]) if noted >= self._enough else None

    def of_slots(self, slots: IntArray) -> FloatArray:
        """`of_slot` of many slots at once; not a number where it is None."""
        noted = np.minimum(self._noted[slots], self._kept)
        values = np.where(np.arange(self._kept) < noted[:, None], self._rings[slots], np.float32(np.inf))
        values.sort(axis=1)
        medians = values[np.arange(len(slots)), np.maximum(noted - 1, 0) // 2].astype(np.float64)
        return np.where(noted >= self._enough, medians, np.nan)

    def of_model(self, model: int) -> float | None:
        ring = self._models.get(model)
        return ring.baseline() if ring is not None else None

    def of_disturbed(self, model: int) -> float | None:
        """Seconds per token that the quickest gaps of a model take of whose gaps none is clear."""
        ring = self._disturbed.get(model)
        return ring.baseline() if ring is not None else None

    def newest(self, model: int, most: int) -> list[float]:
        """The last samples of a model's baseline, in order."""
        ring = self._models.get(model)
        return ring.newest(most) if ring is not None else []

    def recall(self, model: int, gaps: list[float]) -> None:
        """Go on with samples of a model's baseline that were taken elsewhere."""
        self._clear_of(model).add(np.array(gaps))

    def forget_model(self, model: int) -> None:
        self._models.pop(model, None)
        self._disturbed.pop(model, None)


def _rank_in_run(values: IntArray) -> IntArray:
    """0, 1, 2 ... within each run of equal neighbours."""
    position = np.arange(len(values))
    new = np.append(True, values[1:] != values[:-1])
    return position - np.maximum.accumulate(np.where(new, position, 0))
