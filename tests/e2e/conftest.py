"""One simulated server for all tests here, and commands that are stopped when their test ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.processes import Command, Sidecar, Sim
from tests.fakes.certificate import self_signed


@pytest.fixture(scope="session")
def sim() -> Iterator[Sim]:
    server = Sim()
    yield server
    server.kill()


@pytest.fixture
def start() -> Iterator[Callable[..., Any]]:
    """Starts a Command of a class given, by its arguments."""
    started: list[Command] = []

    def start(kind: type[Command], *arguments: str, **more: Any) -> Command:
        started.append(kind(*arguments, **more))
        return started[-1]

    yield start
    for command in started:
        command.kill()


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A self-signed certificate for 127.0.0.1 and its key."""
    return self_signed(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def serve(sim: Sim, start: Callable[..., Any]) -> Callable[..., Sidecar]:
    def serve(*arguments: str, **more: Any) -> Sidecar:
        sidecar: Sidecar = start(Sidecar, "serve", "--upstream", sim.url, *arguments, **more)
        return sidecar

    return serve
