"""The unit's filter of system calls around everything that runs: as it is, at its harshest, and those of others."""

from __future__ import annotations

import errno
from collections.abc import Callable

from tests.e2e.processes import Stream
from tests.kit.eventually import eventually
from tests.sandbox.confined import Confined, Surroundings, serves_under_traffic
from tests.sandbox.unit_filter import UNIT, UnitFilter

Start = Callable[..., Confined]
OF_THE_UNIT = UnitFilter.of(UNIT.read_text())
WITHOUT_MBIND = OF_THE_UNIT.calls - {"mbind"}


def test_all_runs_under_the_filter_of_the_unit(confined: Start) -> None:
    serves_under_traffic(confined(Surroundings(calls=OF_THE_UNIT)))


def test_no_call_is_made_that_the_unit_forbids(confined: Start) -> None:
    """An error instead of the end is there for what numpy or a C library may come to call one day."""
    serves_under_traffic(confined(Surroundings(calls=UnitFilter(OF_THE_UNIT.calls, None))))


def test_a_filter_that_refuses_what_numpy_asks_for_costs_nothing(confined: Start) -> None:
    """Container engines refuse mbind to those without CAP_SYS_NICE."""
    serves_under_traffic(confined(Surroundings(calls=UnitFilter(WITHOUT_MBIND, errno.EPERM))))


def test_an_observer_that_a_filter_kills_is_no_mystery(confined: Start) -> None:
    sidecar = confined(Surroundings(calls=UnitFilter(WITHOUT_MBIND, None)), ready=False)
    eventually(lambda: "was killed by SIGSYS (a filter of system calls forbids one that it makes" in sidecar.output)
    assert "SystemCallErrorNumber=EPERM" in sidecar.output
    assert Stream(sidecar.url, tokens=20).end().done
    assert sidecar.stop() == 0
    sidecar.leaves_nothing()
