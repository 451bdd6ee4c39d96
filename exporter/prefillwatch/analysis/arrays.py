"""Arrays of numpy, by what they hold."""

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

IntArray: TypeAlias = npt.NDArray[np.int64]
FloatArray: TypeAlias = npt.NDArray[np.float64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]


def by_value(values: IntArray) -> Iterator[tuple[int, slice | BoolArray]]:
    """Each value there is, and which entries have it. Most often all have the same."""
    if not len(values):
        return
    if (values == values[0]).all():
        yield int(values[0]), slice(None)
        return
    for value in np.unique(values).tolist():
        yield value, values == value
