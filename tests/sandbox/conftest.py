"""One simulated server and one image for all tests here, and sidecars with less around them than usual."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.processes import Sim
from tests.kit.eventually import eventually
from tests.sandbox.confined import LAUNCHER, Confined, Surroundings
from tests.sandbox.image import Image
from tests.sandbox.network import Network

#: Without a cache every document is a prompt to learn from, although all tests paste the same ones.
SIMULATED = ("--no-enable-chunked-prefill", "--no-enable-prefix-caching")
Inside = Callable[..., Sequence[str]]


@pytest.fixture(scope="session")
def sim() -> Iterator[Sim]:
    server = Sim(*SIMULATED)
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


@pytest.fixture
def ipv6_only() -> Iterator[Network]:
    network = Network(ipv6=True)
    yield network
    network.close()


@pytest.fixture
def ipv4_only() -> Iterator[Network]:
    network = Network(ipv6=False)
    yield network
    network.close()


@pytest.fixture
def inside(tmp_path: Path) -> Inside:
    """Our program inside a network, with the files of this machine."""

    def program(around: Surroundings) -> Sequence[str]:
        assert around.network is not None
        spec: dict[str, Any] = {"network": around.network.path}
        if around.no_family is not None:
            spec["no_family"] = around.no_family
        path = tmp_path / "inside.json"
        path.write_text(json.dumps(spec))
        return sys.executable, str(LAUNCHER), str(path), sys.executable, "-m", "prefillwatch"

    return program


@pytest.fixture
def sim_in(inside: Inside) -> Iterator[Callable[[Network, str], Sim]]:
    """Starts a simulated server inside a network."""
    started: list[Sim] = []

    def start(network: Network, listen: str) -> Sim:
        program = inside(Surroundings(network=network))
        started.append(Sim(*SIMULATED, listen=listen, program=program))
        return started[-1]

    yield start
    for sim in started:
        sim.kill()
