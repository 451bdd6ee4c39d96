"""Running medians of the gaps of undisturbed streams: what the excess of a stall is measured against.

The baseline of a slot is the lower median of its last 32 clear gaps per token, exactly; as an estimate of a steady
step time its standard error is about 1.25 / sqrt(32) = 22 % of the spread of the gaps. A slot with less than five
clear gaps has none of its own. The baseline of a model is the lower median of its last 1,024 samples, of which one
batch gives at most 16, so that it looks back for seconds however many streams there are. Half of the samples have to
be off before a median is, so a first slow gap moves neither.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from prefillwatch.analysis.arrays import FloatArray, IntArray
from prefillwatch.analysis.ring import Ring
from prefillwatch.analysis.tuning import DEFAULT, BaselineRules

_SLOTS_AT_FIRST: Final = 64
#: So few values are sorted in half the time that numpy takes to set out.
_FEW: Final = 32


class _ModelGaps:
    """The last clear gaps of a model, and their median."""

    __slots__ = ("_enough", "_median", "_ring")

    def __init__(self, rules: BaselineRules) -> None:
        self._ring: Ring[np.float32] = Ring(rules.model_kept, 1, np.float32)
        self._enough = rules.model_enough
        self._median: float | None = None

    def add(self, values: FloatArray) -> None:
        self._ring.add(values)
        self._median = None

    def newest(self, most: int) -> list[float]:
        gaps: list[float] = self._ring.newest(most)[0].tolist()
        return gaps

    def median(self) -> float | None:
        if self._median is None and len(self._ring) >= self._enough:
            self._median = lower_median(self._ring.kept()[0])
        return self._median


def lower_median(values: npt.NDArray[np.float32]) -> float:
    """The smallest value with a rank of at least half of all: the 0.5-quantile as windows define it."""
    middle = (len(values) - 1) // 2
    if len(values) <= _FEW:
        return float(sorted(values.tolist())[middle])
    return float(np.partition(values, middle)[middle])


class Baselines:
    """Running medians of clear gaps per token, of slots and of models. Medians are worked out when asked for."""

    __slots__ = ("_enough", "_kept", "_models", "_noted", "_rings", "_rules")

    def __init__(self, rules: BaselineRules = DEFAULT.baselines) -> None:
        self._rules = rules
        self._kept = rules.kept
        self._enough = rules.enough
        self._rings: npt.NDArray[np.float32] = np.zeros((_SLOTS_AT_FIRST, self._kept), dtype=np.float32)
        self._noted: IntArray = np.zeros(_SLOTS_AT_FIRST, dtype=np.int64)
        self._models: dict[int, _ModelGaps] = {}

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
        if (model == model[0]).all():
            self._sample(int(model[0]), gaps)
        else:
            for number in np.unique(model).tolist():
                self._sample(number, gaps[model == number])

    def _sample(self, model: int, gaps: FloatArray) -> None:
        ring = self._models.get(model)
        if ring is None:
            ring = self._models[model] = _ModelGaps(self._rules)
        stride = -(-len(gaps) // self._rules.per_batch)
        ring.add(gaps[::stride])

    def of_slot(self, slot: int) -> float | None:
        """The slot's own baseline; None while it has too few clear gaps."""
        noted = int(self._noted[slot])
        return lower_median(self._rings[slot, :noted]) if noted >= self._enough else None

    def of_slots(self, slots: IntArray) -> FloatArray:
        """`of_slot` of many slots at once; not a number where it is None."""
        noted = np.minimum(self._noted[slots], self._kept)
        values = np.where(np.arange(self._kept) < noted[:, None], self._rings[slots], np.float32(np.inf))
        values.sort(axis=1)
        medians = values[np.arange(len(slots)), np.maximum(noted - 1, 0) // 2].astype(np.float64)
        return np.where(noted >= self._enough, medians, np.nan)

    def of_model(self, model: int) -> float | None:
        ring = self._models.get(model)
        return ring.median() if ring is not None else None

    def newest(self, model: int, most: int) -> list[float]:
        """The last samples of a model's baseline, in order."""
        ring = self._models.get(model)
        return ring.newest(most) if ring is not None else []

    def recall(self, model: int, gaps: list[float]) -> None:
        """Go on with samples of a model's baseline that were taken elsewhere."""
        self._models.setdefault(model, _ModelGaps(self._rules)).add(np.array(gaps))

    def forget_model(self, model: int) -> None:
        self._models.pop(model, None)


def _rank_in_run(values: IntArray) -> IntArray:
    """0, 1, 2 ... within each run of equal neighbours."""
    position = np.arange(len(values))
    new = np.append(True, values[1:] != values[:-1])
    return position - np.maximum.accumulate(np.where(new, position, 0))
