"""One simulated server and one image for all tests here, and sidecars with less around them than usual."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.e2e.processes import Sim, eventually
from tests.sandbox.confined import Confined, Surroundings
from tests.sandbox.image import Image


@pytest.fixture(scope="session")
def sim() -> Iterator[Sim]:
    # Without a cache every document is a prompt to learn from, although all tests paste the same ones.
    server = Sim("--no-enable-chunked-prefill", "--no-enable-prefix-caching")
    yield server
    server.kill()


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    return Image(tmp_path_factory.mktemp("image"))


@pytest.fixture
def confined(image: Image, sim: Sim, tmp_path: Path) -> Iterator[Callable[..., Confined]]:
    """Starts `serve` in surroundings given."""
    started: list[Confined] = []

    def start(around: Surroundings, *arguments: str, sim: Sim = sim, ready: bool = True) -> Confined:
        started.append(sidecar := Confined(image, tmp_path, sim, around, *arguments))
        if ready:
            eventually(lambda: sidecar.readiness() == 200)
        return sidecar

    yield start
    for sidecar in started:
        sidecar.kill()
