"""The newest so many rows of a few columns, in arrays of numpy: what medians and fits are made from."""

from __future__ import annotations

from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

Number = TypeVar("Number", np.int64, np.float32)


class Ring(Generic[Number]):
    """Rows of ``columns`` numbers each; with more than ``kept`` of them the oldest go."""

    __slots__ = ("_count", "_values")

    def __init__(self, kept: int, columns: int, dtype: type[Number]) -> None:
        self._values: npt.NDArray[Number] = np.zeros((columns, kept), dtype)
        self._count = 0

    def __len__(self) -> int:
        return min(self._count, int(self._values.shape[1]))

    def add(self, *columns: npt.ArrayLike) -> None:
        """New rows, given by column; all columns are of one length."""
        kept = self._values.shape[1]
        rows = np.array(columns)[:, -kept:]
        self._values[:, (self._count + np.arange(rows.shape[1])) % kept] = rows
        self._count += rows.shape[1]

    def newest(self, most: int) -> npt.NDArray[Number]:
        """The last so many rows by column, the oldest of them first."""
        count = min(len(self), most)
        return self._values[:, (self._count - count + np.arange(count)) % self._values.shape[1]]

    def kept(self) -> npt.NDArray[Number]:
        """All rows by column, in any order. A view: look, and do not keep it."""
        return self._values[:, : len(self)]
