"""The unit as it is shipped, started, watched and stopped by a systemd that is process 1 of a sandbox."""

from __future__ import annotations

import json
import re
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.e2e.processes import Sidecar, Sim, Stream
from tests.fakes.certificate import self_signed
from tests.kit.eventually import PATIENCE_S, eventually
from tests.sandbox.cgroup import ControlGroup
from tests.sandbox.confined import LAUNCHER, drains, learns
from tests.sandbox.image import ENVIRONMENT, Image, Mount
from tests.sandbox.unit_filter import UNIT

Start = Callable[..., "Unit"]
CREDENTIALS = UNIT.with_name(f"{UNIT.name}.d") / "credentials.conf"
SYSTEMD = "/lib/systemd/systemd"
NAME = UNIT.name
#: What systemd looks for, and nothing of what starts on a machine.
TARGETS = ("sysinit", "basic", "shutdown", "network-online", "umount", "exit", "poweroff", "reboot", "halt")
NOTHING_ELSE = "[Unit]\nDefaultDependencies=no\n"
#: There is no journal in the sandbox. A Python that was built with a library of its own needs its path.
DROP_IN = f"""[Service]
StandardOutput=append:/log/service
StandardError=append:/log/service
Environment=LD_LIBRARY_PATH={ENVIRONMENT["LD_LIBRARY_PATH"]}
"""


class Unit(Sidecar):
    """A systemd and in it our unit, with the settings that its README tells to put into a file."""

    def __init__(self, image: Image, folder: Path, sim: Sim, **settings: Any) -> None:
        self.group = ControlGroup()
        self._folder = folder
        for name in ("root", "log", "units", f"units/{NAME}.d", "settings"):
            (folder / name).mkdir()
        for target in TARGETS:
            (folder / f"units/{target}.target").write_text(NOTHING_ELSE)
        (folder / "units" / NAME).write_text(UNIT.read_text())
        (folder / f"units/{NAME}.d/sandbox.conf").write_text(DROP_IN)
        (folder / f"units/{NAME}.d/50-more.conf").write_text(settings.pop("drop_in", ""))
        (folder / "passwd").write_text("root:x:0:0::/root:/bin/sh\n")
        (folder / "group").write_text("root:x:0:\n")
        data, admin = free_ports()
        for name, content in settings.pop("files", {}).items():
            (folder / "settings" / name).write_text(content)
        settings |= {"listen": f"127.0.0.1:{data}", "admin": f"127.0.0.1:{admin}", "upstream": sim.url}
        lines = [f"PREFILLWATCH_{name.upper()}={value}\n" for name, value in settings.items()]
        (folder / "settings/environment").write_text("".join(lines))
        (folder / "spec.json").write_text(json.dumps(self._spec(image)))
        self.url, self.admin = f"http://127.0.0.1:{data}", f"http://127.0.0.1:{admin}"
        command: list[str | Path] = [sys.executable, LAUNCHER, folder / "spec.json", SYSTEMD]
        command += ["--system", f"--unit={NAME}"]
        with (folder / "log/systemd").open("wb") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, text=True)

    def _spec(self, image: Image) -> dict[str, object]:
        mounts: list[Mount] = [
            *image.mounts(),
            *[(name, f"/{name}", "tmpfs", "mode=755") for name in ("run", "var", "tmp", "root", "home")],
            ("proc", "/proc", "proc", ""),
            ("sysfs", "/sys", "sysfs", ""),
            *[(str(self._folder / name), f"/etc/{name}", "bind", "ro") for name in ("passwd", "group")],
            (str(self._folder / "units"), "/etc/systemd/system", "bind", "ro"),
            (str(self._folder / "settings"), "/etc/prefillwatch", "bind", "ro"),
            (str(self._folder / "log"), "/log", "bind", ""),
        ]
        return {
            "privileged": True,
            "cgroups": self.group.folders,
            "namespaces": ["mount", "pid", "uts", "ipc", "cgroup"],
            "root": {"path": str(self._folder / "root"), "mounts": mounts, "read_only": False, "shared": True},
            "environment": {
                "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
                "container": "sandbox",  # or it would set up the machine
                "SYSTEMD_UNIT_PATH": "/etc/systemd/system",
                "SYSTEMD_LOG_TARGET": "console",
            },
        }

    @property
    def log(self) -> str:
        path = self._folder / "log/service"
        return path.read_text() if path.exists() else ""

    @property
    def is_active(self) -> bool:
        return self.ask("is-active", NAME).stdout.strip() == "active"

    def property(self, name: str) -> str:
        return self.ask("show", "--value", f"--property={name}", NAME).stdout.strip()

    def ask(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.inside("systemctl", *arguments)

    def inside(self, *command: str) -> subprocess.CompletedProcess[str]:
        """The outcome of a command beside the unit."""
        first = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().strip() or "0"
        argv = ["nsenter", f"--target={first}", "--mount", "--pid", "--root", "--wd", *command]
        return subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S, check=False)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE_S)
        eventually(lambda: self.group.processes == [])
        self.group.close()


def free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as other:
        for each in (one, other):
            each.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]


@pytest.fixture
def unit(image: Image, sim: Sim, tmp_path: Path) -> Iterator[Start]:
    started: list[Unit] = []

    def start(**settings: Any) -> Unit:
        started.append(unit := Unit(image, tmp_path, sim, **settings))
        eventually(lambda: unit.property("ActiveState") in ("active", "failed"))
        return unit

    yield start
    for each in started:
        each.kill()


def test_the_unit_lives_a_life(unit: Start) -> None:
    started = unit()
    assert started.is_active, started.log
    eventually(lambda: started.readiness() == 200)
    learns(started)
    stream = Stream(started.url, tokens=80).begin()
    started.ask("stop", "--no-block", NAME)
    drains(started, stream)
    eventually(lambda: started.property("ActiveState") == "inactive")
    assert started.property("Result") == "success"
    assert "started again" not in started.log
    assert len(started.group.processes) == 2, "systemd itself and its launcher are all that is left"


def test_it_is_active_when_it_serves(unit: Start) -> None:
    started = unit()
    assert started.is_active, started.log
    assert Stream(started.url, tokens=3).end().done


def test_a_supervisor_that_hangs_is_started_again(unit: Start) -> None:
    started = unit(drop_in="[Service]\nWatchdogSec=2\n")
    first = started.property("MainPID")
    time.sleep(2.5)
    assert started.property("MainPID") == first, "it says that it lives"
    started.ask("kill", "--kill-whom=main", "--signal=STOP", NAME)
    eventually(lambda: started.property("NRestarts") == "1" and started.is_active)
    assert started.property("MainPID") != first
    assert Stream(started.url, tokens=3).end().done


def test_settings_that_cannot_be_used_are_not_tried_again(unit: Start) -> None:
    started = unit(max_body="plenty")
    assert started.property("ActiveState") == "failed"
    assert started.property("ExecMainStatus") == "2"
    assert started.property("NRestarts") == "0"
    assert "max_body (PREFILLWATCH_MAX_BODY)" in started.log


def test_keys_come_as_credentials(unit: Start, tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path)
    files = {
        "config.yaml": "slo_ttft: 3s\n",
        "upstream-key": "marker-key\n",
        "tls.crt": certificate.read_text(),
        "tls.key": key.read_text(),
        "admin-token": "marker-token\n",
    }
    started = unit(drop_in=CREDENTIALS.read_text(), files=files)
    assert started.is_active, started.log
    trusted = ssl.create_default_context(cafile=certificate)
    assert Stream(started.url.replace("http:", "https:"), tokens=3, verify=trusted).end().done
    page = started.admin.replace("http:", "https:") + "/metrics"
    assert httpx.get(page, verify=trusted).status_code == 401
    shown = httpx.get(page, verify=trusted, headers={"Authorization": "Bearer marker-token"})
    assert "prefillwatch_certificate_expiry_timestamp_seconds" in shown.text
    assert "marker" not in started.inside("cat", f"/proc/{started.property('MainPID')}/environ").stdout


def test_limits_are_in_force(unit: Start) -> None:
    started = unit()
    limits = started.inside("cat", f"/proc/{started.property('MainPID')}/limits").stdout
    assert re.search(r"Max core file size +0 +0", limits)
    (memory,) = started.group.find("system.slice/prefillwatch.service", "memory.limit_in_bytes", "memory.max")
    assert int(memory.read_text()) == 2**30
