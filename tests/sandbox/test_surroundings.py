"""`serve` where one thing is missing that it has on a developer's machine."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.sandbox.confined import Confined, Surroundings, serves_under_traffic

Start = Callable[..., Confined]
NOBODY = 65532
GIB = 2**30

AROUND = {
    "read-only root": Surroundings(read_only=True),
    "no folder for temporary files": Surroundings(temporary=False),
    "no home": Surroundings(home=False),
    "a user without a name": Surroundings(user=NOBODY),
    "64 descriptors": Surroundings(descriptors=64),
    "one core": Surroundings(cores=1),
    "1 GiB": Surroundings(memory=GIB),
    "/proc without anything but its processes": Surroundings(user=NOBODY, processes="subset=pid,hidepid=invisible"),
}


@pytest.mark.parametrize("around", AROUND.values(), ids=AROUND)
def test_a_life_in(around: Surroundings, confined: Start) -> None:
    serves_under_traffic(confined(around))
