"""When the server worked on what nobody reads."""

from __future__ import annotations

import numpy as np

from prefillwatch.analysis.steps.unread_work import UnreadWork


def test_one_that_goes_on_counts_from_its_beginning() -> None:
    work = UnreadWork()
    work.begin(1, 100)
    assert not work.during(50, 100)
    assert work.during(50, 101)
    work.end(1, 200)
    assert work.during(150, 300)
    assert not work.during(200, 300)


def test_many_at_once_are_one_stretch() -> None:
    work = UnreadWork()
    for rid in range(20):
        work.begin(rid, 100 + 10 * rid)
    for rid in range(20):
        work.end(rid, 150 + 10 * rid)
    assert len(work._spans) == 1
    starts = np.array([0, 0, 120, 339, 340], np.int64)
    ends = np.array([100, 101, 130, 400, 400], np.int64)
    assert work.during_many(starts, ends).tolist() == [False, True, True, True, False]
    assert [work.during(*span) for span in zip(starts.tolist(), ends.tolist(), strict=True)] == [
        False,
        True,
        True,
        True,
        False,
    ]


def test_what_is_long_over_is_forgotten() -> None:
    work = UnreadWork()
    work.begin(1, 100)
    work.end(1, 200)
    work.end(2, 300)
    work.forget(201)
    assert not work.during(0, 1000)
