"""The image is built from its Dockerfile and lives a life: asked for its health, under traffic, drained, stopped."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from tests.e2e.processes import Sim, Stream
from tests.sandbox.confined import drains, learns
from tests.sandbox.container import DESCRIPTORS, MEMORY, ROOT, Container, Engine
from tests.sandbox.network import Network

from prefillwatch import __version__

SimIn = Callable[[Network, str], Sim]
#: Where an engine makes room for what it mounts: names of hosts and resolvers.
BY_THE_ENGINE = ("/etc", "/run", "/dev", "/proc", "/sys")
#: deploy/README.md says 143 MB; more than this would be a surprise.
MOST_OF_OURS = 160_000_000


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    engine = Engine(tmp_path_factory.mktemp("engine"))
    try:
        engine.build()
        yield engine
    finally:
        engine.close()


@pytest.fixture
def container(engine: Engine, ipv4_only: Network, sim_in: SimIn) -> Iterator[Container]:
    sim = sim_in(ipv4_only, "127.0.0.1:8000")
    container = Container(engine, ipv4_only, "sidecar", upstream=sim.url)
    yield container
    container.remove()


def test_a_container_lives_a_life(container: Container, engine: Engine) -> None:
    status = Path(f"/proc/{container.inspect()['State']['Pid']}/status").read_text()
    told = {line.partition(":")[0]: line.partition(":")[2].split() for line in status.splitlines()}
    assert told["Uid"] == told["Gid"] == ["65532"] * 4
    assert {int(told[name][0], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {0}
    assert told["NoNewPrivs"] == ["1"]
    assert told["Seccomp"] == ["2"], "the engine's own filter of system calls"
    assert container.inside("sh", "-c", "touch /tmp/x || touch /run/x || touch /x").returncode != 0
    assert f"{DESCRIPTORS}" in container.inside("sh", "-c", "ulimit -n").stdout

    assert engine.ask("healthcheck", "run", container.name) == ""
    assert container.inside("prefillwatch", "healthcheck", "--ready").returncode == 0
    learns(container)
    limit, peak = container.memory()
    assert limit == MEMORY
    assert peak < MEMORY / 2, "half of what it may take is far more than it needs"

    stream = Stream(container.url, tokens=80).begin()
    stopping = subprocess.Popen(engine.podman("stop", "--time", "45", container.name), stdout=subprocess.DEVNULL)
    drains(container, stream)
    assert container.wait() == 0
    assert stopping.wait() == 0
    state = container.inspect()["State"]
    assert (state["ExitCode"], state["OOMKilled"]) == (0, False)
    assert "started again" not in container.output
    changed = [line.split()[1] for line in engine.ask("diff", container.name).splitlines()]
    assert [path for path in changed if not path.startswith(BY_THE_ENGINE)] == [], "it wrote nothing"


def test_it_is_no_larger_than_is_said(engine: Engine) -> None:
    base, ours = engine.layers()
    print(f"base {base / 1e6:.0f} MB, ours {ours / 1e6:.0f} MB, built in {engine.seconds}")
    assert ours < MOST_OF_OURS


def test_a_bill_of_materials_names_all_that_is_in_it(engine: Engine) -> None:
    with engine.mounted() as root:
        command = [sys.executable, str(ROOT / "scripts/sbom.py"), str(root)]
        bill = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        installed = {path.name for path in root.glob("opt/prefillwatch/lib/python*/site-packages/*.dist-info")}
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(bill) is None
    components = json.loads(bill)["components"]
    python = {each["purl"] for each in components if each["purl"].startswith("pkg:pypi/")}
    assert f"pkg:pypi/prefillwatch@{__version__}" in python
    assert len(python) == len(installed) > 15
    assert any(each["purl"].startswith("pkg:deb/debian/libc6@") for each in components)
    assert json.loads(bill)["metadata"]["component"]["version"] == __version__


def test_nothing_is_installed_but_what_is_locked(engine: Engine) -> None:
    locked = {
        line.split("==")[0].lower().replace("_", "-"): line.split("==")[1].split()[0].rstrip(";")
        for line in (ROOT / "deploy/requirements.lock").read_text().splitlines()
        if "==" in line and not line.startswith((" ", "#"))
    }
    with engine.mounted() as root:
        found = [path.name for path in root.glob("opt/prefillwatch/lib/python*/site-packages/*.dist-info")]
        left = [path for path in ("opt/build", "src", "etc/pip.conf", "root/.cache") if (root / path).exists()]
    installed = dict(name.removesuffix(".dist-info").split("-", 1) for name in found)
    for name, version in installed.items():
        plain = name.lower().replace("_", "-").replace(".", "-")
        assert plain == "prefillwatch" or locked[plain] == version
    assert left == [], "what was only there to build it"
