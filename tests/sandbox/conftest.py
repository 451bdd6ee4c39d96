"""One simulated server for all tests here, and sidecars with less around them than usual."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.processes import Sim
from tests.sandbox.confined import Confined


@pytest.fixture(scope="session")
def sim() -> Iterator[Sim]:
    server = Sim("--no-enable-chunked-prefill")
    yield server
    server.kill()


@pytest.fixture
def confined(sim: Sim, tmp_path: Path) -> Iterator[Callable[..., Confined]]:
    """Starts `serve` in front of the simulated server with what is taken away from it."""
    started: list[Confined] = []

    def start(**taken: Any) -> Confined:
        started.append(Confined(tmp_path, sim.url, **taken))
        return started[-1]

    yield start
    for sidecar in started:
        sidecar.kill()
