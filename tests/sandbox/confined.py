"""A sidecar with less around it than usual, and what it has to do all the same."""

from __future__ import annotations

import json
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from tests.e2e.processes import Sidecar, Sim, Stream
from tests.e2e.traffic import paste_document, readers
from tests.kit.eventually import PATIENCE_S, eventually
from tests.sandbox.cgroup import ControlGroup
from tests.sandbox.image import ENVIRONMENT, PROGRAM, Image, Mount
from tests.sandbox.network import Network
from tests.sandbox.unit_filter import UnitFilter

ROLES = {"supervisor", "relay", "observer"}
LAUNCHER = Path(__file__).with_name("confine.py")


@dataclass(frozen=True)
class Surroundings:
    """What is around the sidecar. As it stands: a container in which it may do what it likes."""

    read_only: bool = False
    temporary: bool = True  # a folder /tmp
    home: bool = True
    processes: str = ""  # options of /proc
    files: dict[str, str] = field(default_factory=dict)  # content by path
    shown: dict[str, str] = field(default_factory=dict)  # files of the host by path
    user: int = 0
    first: bool = False  # the first process of its namespace
    network: Network | None = None
    no_family: int | None = None  # an address family that the kernel does not know
    descriptors: int | None = None
    cores: int | None = None
    address_space: int | None = None
    memory: int | None = None
    calls: UnitFilter | None = None
    environment: dict[str, str] = field(default_factory=dict)

    def spec(self, image: Image, folder: Path, group: ControlGroup) -> dict[str, Any]:
        """What the launcher is told."""
        limits = {"RLIMIT_NOFILE": self.descriptors, "RLIMIT_AS": self.address_space}
        spec: dict[str, Any] = {
            "cgroups": group.folders,
            "namespaces": ["mount", *(("pid",) if self.first else ())],
            "root": {"path": str(folder / "root"), "mounts": self._mounts(image, folder), "read_only": self.read_only},
            "limits": {name: limit for name, limit in limits.items() if limit is not None},
            "environment": {**ENVIRONMENT, **({"HOME": "/root"} if self.home else {}), **self.environment},
        }
        if self.user:
            spec["user"] = self.user
        if self.network is not None:
            spec["network"] = self.network.path
        if self.no_family is not None:
            spec["no_family"] = self.no_family
        if self.cores is not None:
            spec["cpus"] = list(range(self.cores))
        if self.calls is not None:
            spec["filter"] = {"calls": sorted(self.calls.calls), "answer": self.calls.answer}
        return spec

    def _mounts(self, image: Image, folder: Path) -> list[Mount]:
        mounts = [*image.mounts(), ("proc", "/proc", "proc", self.processes)]
        if self.temporary:
            mounts.append((str(folder / "tmp"), "/tmp", "bind", ""))
        if self.home:
            mounts.append((str(folder / "home"), "/root", "bind", ""))
        for number, (path, content) in enumerate(self.files.items()):
            (folder / f"file-{number}").write_text(content)
            mounts.append((str(folder / f"file-{number}"), path, "bind", "ro"))
        mounts += [(source, path, "bind", "ro") for path, source in self.shown.items()]
        return mounts


class Confined(Sidecar):
    """`prefillwatch serve` in such surroundings, in front of the simulated server."""

    def __init__(self, image: Image, folder: Path, sim: Sim, around: Surroundings, *arguments: str) -> None:
        self.group = ControlGroup()
        if around.memory is not None:
            self.group.limit_memory(around.memory)
        self.folder = folder
        for name in ("root", "tmp", "home"):
            (folder / name).mkdir()
        (folder / "tmp").chmod(0o1777)
        spec = folder / "spec.json"
        spec.write_text(json.dumps(around.spec(image, folder, self.group)))
        program = (sys.executable, str(LAUNCHER), str(spec), PROGRAM)
        try:
            super().__init__("serve", "--upstream", sim.url, *arguments, program=program, ready=False)
        except AssertionError:
            self.kill()
            raise
        if around.network is not None:
            self.url, self.admin = (around.network.from_here(url) for url in (self.url, self.admin))

    def leaves_nothing(self) -> None:
        """Neither processes nor files."""
        assert self.group.processes == []
        assert [path for name in ("tmp", "home") for path in (self.folder / name).rglob("*")] == []

    def kill(self) -> None:
        super().kill()
        eventually(lambda: self.group.processes == [])
        self.group.close()


def serves_under_traffic(sidecar: Confined) -> None:
    """Streams pass whole, the observer learns until it advises, and no process ends before its time."""
    learns(sidecar)
    assert sidecar.group.killed == 0
    stream = Stream(sidecar.url, tokens=80).begin()
    sidecar.send(signal.SIGTERM)
    drains(sidecar, stream)
    assert sidecar.wait() == 0
    sidecar.leaves_nothing()
    assert "started again" not in sidecar.output


def learns(sidecar: Sidecar) -> None:
    """Traffic until there is advice: the observer has been through its linear algebra, and all processes live."""
    eventually(lambda: {process["role"] for process in sidecar.state().get("processes", ())} == ROLES)
    processes = sidecar.state()["processes"]
    assert httpx.get(f"{sidecar.admin}/healthz", timeout=PATIENCE_S).status_code == 200
    stream = Stream(sidecar.url, tokens=20).end()
    assert (stream.done, stream.tokens) == (True, 20)
    with readers(sidecar.url, 4):
        sizes = iter(range(500, 60_000, 700))
        eventually(lambda: paste_document(sidecar.url, next(sizes)).complete and has_advice(sidecar))
    assert sidecar.value("relay_restarts_total") == 0
    assert sidecar.state()["processes"] == processes


def has_advice(sidecar: Sidecar) -> bool:
    return sidecar.value("advised_max_batched_tokens", model="sim-4b") is not None


def drains(sidecar: Sidecar, stream: Stream) -> None:
    """After the signal a running answer is finished, and readiness is off meanwhile."""
    eventually(lambda: sidecar.readiness() == 503)
    assert stream.end().done
