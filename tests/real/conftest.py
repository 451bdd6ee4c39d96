"""One vLLM and one sidecar in front of it for the whole run: starting vLLM takes most of a minute."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.real.engine import Engine, profiler_flags
from tests.real.sidecar import Sidecar
from tests.real.tee import Tee

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.real)


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    log_dir = tmp_path_factory.mktemp("vllm")
    with Engine(log_dir, flags=profiler_flags(log_dir / "traces")) as engine:
        yield engine


@pytest.fixture(scope="session")
def sidecar(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    log = tmp_path_factory.mktemp("sidecar") / "serve.log"
    with Sidecar(log, ("serve", f"--upstream={engine.url}")) as sidecar:
        yield sidecar


@pytest.fixture(scope="module")
def tee(engine: Engine) -> Iterator[Tee]:
    """Between a sidecar and vLLM; keeps what vLLM sent."""
    with Tee(engine.port) as tee:
        yield tee


@pytest.fixture(scope="module")
def teed_sidecar(tee: Tee, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    log = tmp_path_factory.mktemp("teed") / "serve.log"
    with Sidecar(log, ("serve", f"--upstream={tee.url}")) as sidecar:
        yield sidecar


@pytest.fixture(scope="module")
def injecting_sidecar(tee: Tee, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    log = tmp_path_factory.mktemp("injecting") / "serve.log"
    with Sidecar(log, ("serve", f"--upstream={tee.url}", "--usage=inject")) as sidecar:
        yield sidecar
