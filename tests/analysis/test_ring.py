"""The newest so many rows."""

from __future__ import annotations

import numpy as np

from prefillwatch.analysis.ring import Ring


def test_rows_come_back_in_order() -> None:
    ring = Ring(4, 2, np.int64)
    assert (len(ring), ring.newest(9).shape) == (0, (2, 0))
    ring.add([1, 2, 3], [10, 20, 30])
    assert ring.newest(2).tolist() == [[2, 3], [20, 30]]
    assert sorted(ring.kept()[0].tolist()) == [1, 2, 3]


def test_the_oldest_go() -> None:
    ring = Ring(4, 1, np.int64)
    for number in range(6):
        ring.add([number])
    assert ring.newest(9).tolist() == [[2, 3, 4, 5]]
    assert len(ring) == 4


def test_more_at_once_than_it_keeps() -> None:
    ring = Ring(4, 1, np.int64)
    ring.add(range(3))
    ring.add(range(10, 20))
    assert ring.newest(9).tolist() == [[16, 17, 18, 19]]
