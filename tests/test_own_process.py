"""Processes that are ourselves again: what they import, and that they end with who started them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.kit.eventually import eventually
from tests.kit.processes import is_alive

from prefillwatch.lab.child import Child
from prefillwatch.own_process import python_module
from prefillwatch.supervision import launch

OLDER_AND_NEWER = [(3, 10), pytest.param((3, 11), marks=pytest.mark.skipif(sys.version_info < (3, 11), reason="-P"))]


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with modules of the names that we import; whoever imports one leaves a file."""
    folder = tmp_path / "trap"
    folder.mkdir()
    sprung = tmp_path / "sprung"
    for name in ("click", "msgspec", "numpy", "runpy", "prefillwatch", "json", "asyncio"):
        (folder / f"{name}.py").write_text(f"open({str(sprung)!r}, 'a').write({name!r})\nraise SystemExit(99)\n")
    monkeypatch.chdir(folder)
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    return sprung


@pytest.mark.parametrize("version", OLDER_AND_NEWER)
def test_nothing_is_imported_from_the_working_folder(trap: Path, version: tuple[int, int]) -> None:
    command = python_module("prefillwatch", "--version", version=version)
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (said.returncode, said.stderr) == (0, "")
    assert "prefillwatch" in said.stdout
    assert not trap.exists()


def test_the_trap_works(trap: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    assert subprocess.run([sys.executable, "-m", "prefillwatch"], env=environment, check=False).returncode == 99
    assert trap.exists()


def test_children_of_an_experiment_do_not_either(trap: Path) -> None:
    async def go() -> list[str]:
        async with Child(python_module("prefillwatch", "--version")) as child:
            await child.ended()
        return list(child.lines)

    (line,) = asyncio.run(go())
    assert "prefillwatch" in line
    assert not trap.exists()


def test_relays_and_the_observer_are_started_so() -> None:
    assert python_module("prefillwatch.relay") == launch._RELAY
    assert python_module("prefillwatch.observer") == launch._OBSERVER


def test_a_child_of_an_experiment_ends_with_it() -> None:
    script = (
        "import asyncio\n"
        "from prefillwatch.lab.child import Child\n"
        "from prefillwatch.own_process import python_module\n"
        "async def main():\n"
        "    async with Child(python_module('prefillwatch', 'sim', '--listen', '127.0.0.1:0')) as child:\n"
        "        print(child.pid, flush=True)\n"
        "        await child.ended()\n"
        "asyncio.run(main())\n"
    )
    experiment = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert experiment.stdout is not None
    pid = int(experiment.stdout.readline())
    experiment.send_signal(signal.SIGKILL)
    experiment.wait()
    experiment.stdout.close()
    eventually(lambda: not is_alive(pid))
