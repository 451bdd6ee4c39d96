"""The image, built from its Dockerfile, and a container of it: by buildah, podman and runc, without a registry.

The base is a Debian of the release that the Dockerfile names, made from Debian's packages, so it has that release's
Python and not the one of the usual base. All else is as the Dockerfile says. Images are kept apart from those of the
machine, and are gone with the tests.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.e2e.processes import Command, Sidecar
from tests.kit.eventually import eventually
from tests.sandbox.network import Network

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "deploy/Dockerfile"
_BASE = "localhost/base:latest"
TAG = "localhost/prefillwatch:sandbox"
#: What the Dockerfile's steps ask of a base: a Python that makes environments, by the name `python`.
_PACKAGES = "ca-certificates,python-is-python3,python3,python3-venv"
MEMORY = 2**30
PROCESSES = 256
DESCRIPTORS = 4096
#: The first start reads a whole image from the disk.
START_S = 60.0


class Engine:
    """A store of images in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        # Paths in the store are long already, and the kernel takes only so much of them in one mount.
        self._store = Path(f"/var/tmp/prefillwatch-images-{os.getpid()}")
        self._folder = folder
        self._where = ["--root", str(self._store / "root"), "--runroot", str(self._store / "run")]
        # crun and newer runc refuse some mixtures of the two versions of control groups; this one takes all.
        self._where += ["--runtime", shutil.which("runc", path=f"{os.environ['PATH']}:/usr/sbin") or "runc"]
        self.seconds: dict[str, float] = {}

    def podman(self, *arguments: str) -> list[str]:
        return ["podman", *self._where, *arguments]

    def ask(self, *arguments: str) -> str:
        done = subprocess.run(self.podman(*arguments), capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"podman {arguments}: {done.stderr}"
        return done.stdout.strip()

    def build(self) -> None:
        """The base, and the image on it."""
        (release,) = re.findall(r"^ARG BASE=python:.*-slim-([a-z]+)$", DOCKERFILE.read_text(), re.MULTILINE)
        base = self._folder / "base.tar"
        with self._timed("base"):
            _run(
                "mmdebstrap",
                "--quiet",
                "--variant=apt",
                "--dpkgopt=force-unsafe-io",
                f"--include={_PACKAGES}",
                release,
                str(base),
            )
            self.ask("import", "--quiet", str(base), _BASE)
            base.unlink()
        with self._timed("image"):
            options = ["--format", "docker", "--network", "host", *_registry(self._folder)]
            names = ["--build-arg", f"BASE={_BASE}", "--file", str(DOCKERFILE), "--tag", TAG]
            ignored = ["--ignorefile", f"{DOCKERFILE}.dockerignore"]
            _run(
                "buildah", *self._where[:4], "build", *self._where[4:], "--quiet", *options, *names, *ignored, str(ROOT)
            )

    @contextlib.contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        begun = time.monotonic()
        yield
        self.seconds[name] = time.monotonic() - begun

    @contextlib.contextmanager
    def mounted(self) -> Iterator[Path]:
        """The files of the image."""
        yield Path(self.ask("image", "mount", TAG))
        self.ask("image", "umount", TAG)

    def layers(self) -> tuple[int, int]:
        """Bytes of the base, and of what is ours on top of it."""
        sizes = [json.loads(self.ask("image", "inspect", name))[0]["Size"] for name in (_BASE, TAG)]
        return sizes[0], sizes[1] - sizes[0]

    def close(self) -> None:
        with contextlib.suppress(AssertionError):
            self.ask("rmi", "--all", "--force")
        shutil.rmtree(self._store, ignore_errors=True)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"


def _registry(folder: Path) -> Sequence[str]:
    """How pip gets at packages on this machine, for the steps of the build alone: nothing of it gets into the image."""
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True)
    told = dict(re.findall(r"^(?:global|:env:)\.(cert|index-url|trusted-host)='(.*)'$", listed.stdout, re.MULTILINE))
    lines, volumes = ["[global]", "disable-pip-version-check = true"], []
    for name, value in told.items():
        inside = "/etc/pip-authorities.pem" if name == "cert" else value
        lines.append(f"{name} = {inside}")
        if name == "cert":
            volumes += ["--volume", f"{value}:{inside}:ro"]
    settings = folder / "pip.conf"
    settings.write_text("\n".join([*lines, ""]))
    return [*volumes, "--volume", f"{settings}:/etc/pip.conf:ro"]


class Container(Sidecar):
    """The image as it is, with no argument: what it is told are variables. It has a network of its own."""

    def __init__(self, engine: Engine, network: Network, name: str, **variables: str) -> None:
        self._engine = engine
        self.name = name
        limits = [
            *("--read-only", "--read-only-tmpfs=false"),
            *("--cap-drop", "all", "--security-opt", "no-new-privileges"),
            *("--memory", str(MEMORY), "--memory-swap", str(MEMORY), "--pids-limit", str(PROCESSES)),
            *("--ulimit", f"nofile={DESCRIPTORS}:{DESCRIPTORS}", "--ulimit", f"nproc={DESCRIPTORS}:{DESCRIPTORS}"),
        ]
        told = [word for key, value in variables.items() for word in ("--env", f"PREFILLWATCH_{key.upper()}={value}")]
        where = ["--name", name, "--network", f"ns:{network.path}", "--no-hosts"]
        Command.__init__(self, program=engine.podman("run", *where, *limits, *told, TAG))
        try:
            self.url = network.from_here(self.wait_for(r"point clients at (http://\S+)"))
            self.admin = network.from_here(self.wait_for(r"metrics: (http://\S+)/metrics"))
            eventually(lambda: self.readiness() == 200, lambda: f"it is not ready: {self.output}", START_S)
        except AssertionError:
            self.remove()
            raise

    def inspect(self) -> dict[str, Any]:
        (found,) = json.loads(self._engine.ask("container", "inspect", self.name))
        return found

    def inside(self, *command: str) -> subprocess.CompletedProcess[str]:
        argv = self._engine.podman("exec", self.name, *command)
        return subprocess.run(argv, capture_output=True, text=True, check=False)

    def memory(self) -> tuple[int, int]:
        """Limit and peak, in bytes, from its control group."""
        lines = [
            line.split(":", 2) for line in Path(f"/proc/{self.inspect()['State']['Pid']}/cgroup").read_text().split()
        ]
        first = next((path for _, names, path in lines if "memory" in names.split(",")), None)
        if first is not None:
            folder = Path("/sys/fs/cgroup/memory") / first.lstrip("/")
            names = "memory.limit_in_bytes", "memory.max_usage_in_bytes"
        else:
            folder = Path("/sys/fs/cgroup") / lines[0][2].lstrip("/")
            names = "memory.max", "memory.peak"
        limit, peak = (int((folder / each).read_text()) for each in names)
        return limit, peak

    def remove(self) -> None:
        with contextlib.suppress(AssertionError):
            self._engine.ask("rm", "--force", "--time", "5", self.name)
        self.kill()
