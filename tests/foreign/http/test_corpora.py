"""Requests that other servers' makers collected: what reaches upstream has to be what h11 finds in the same bytes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.foreign.http import data
from tests.foreign.http.readings import faults
from tests.foreign.http.stage import Stage, stage

CASES = ("h2o", "llhttp")


def cases(name: str) -> list[data.Case]:
    return data.h2o() if name == "h2o" else data.llhttp("request") + data.llhttp("response")


@pytest.fixture(scope="module")
def plain() -> Iterator[Stage]:
    with stage() as opened:
        yield opened


@pytest.mark.parametrize("name", CASES)
def test_nothing_reaches_upstream_that_h11_refuses_or_reads_differently(plain: Stage, name: str) -> None:
    found = cases(name)
    assert len(found) > 100
    assert [fault for case in found for fault in faults(case, plain.run(case.data))] == []


def test_some_of_them_are_good_requests(plain: Stage) -> None:
    """Else nothing would have been tried."""
    assert sum(len(plain.run(case.data).requests) for case in data.llhttp("request")) > 15
