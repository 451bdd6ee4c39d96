"""Arrays of whole numbers: times in nanoseconds, rows, counts."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]
