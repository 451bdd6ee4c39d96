"""The path on which plugin and observer meet: set by the user, or made for a server that we start."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from prefillwatch.errors import ConfigError
from prefillwatch.settings.sources import load
from prefillwatch.supervision.engine_socket import EngineSocket

SUPERVISED = Path(__file__).parents[1] / "fakes" / "supervised.py"


def test_a_path_that_is_set_is_left_alone(tmp_path: Path) -> None:
    socket = EngineSocket(tmp_path / "engine.sock", private=True)
    assert socket.environment() == {"PREFILLWATCH_SOCKET": str(tmp_path / "engine.sock")}
    socket.close()
    assert tmp_path.exists()


def test_a_server_that_we_start_gets_a_private_one() -> None:
    socket = EngineSocket(None, private=True)
    folder = Path(socket.path).parent
    assert folder.stat().st_mode & 0o777 == 0o700
    socket.close()
    assert not folder.exists()


def test_a_server_that_runs_already_gets_none() -> None:
    socket = EngineSocket(None, private=False)
    assert (socket.path, socket.environment()) == ("", {})
    socket.close()


def test_without_a_place_for_it_there_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    assert EngineSocket(None, private=True).path == ""


def run_command(tmp_path: Path, flags: str, script: str) -> str:
    command: list[str | Path] = [
        sys.executable,
        SUPERVISED,
        tmp_path / "journal",
        "relay",
        "observer",
        flags,
        "sh",
        "-c",
        script,
    ]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stdout.strip()


def test_the_command_is_told_and_nothing_is_left_behind(tmp_path: Path) -> None:
    path = Path(run_command(tmp_path, "{}", 'echo "$PREFILLWATCH_SOCKET"; test -d "${PREFILLWATCH_SOCKET%/*}"'))
    assert path.name == "engine.sock"
    assert not path.parent.exists()


def test_the_command_is_told_of_a_path_that_is_set(tmp_path: Path) -> None:
    assert (
        run_command(tmp_path, f'{{"engine_socket": "{tmp_path}/s"}}', 'echo "$PREFILLWATCH_SOCKET"') == f"{tmp_path}/s"
    )


# --- The setting ---


def test_the_variable_of_the_plugin_is_ours_too() -> None:
    """So that both containers of a pod can have the same environment."""
    assert load({}, {"PREFILLWATCH_SOCKET": "/run/a.sock"}).engine_socket == Path("/run/a.sock")
    assert load({}, {"PREFILLWATCH_ENGINE_SOCKET": "/run/b.sock"}).engine_socket == Path("/run/b.sock")


def test_a_path_that_is_too_long_for_a_socket_is_refused() -> None:
    load({"engine_socket": "/" + "a" * 106}, {})
    with pytest.raises(ConfigError, match=r"engine_socket \(--engine-socket\): .* use at most 107 bytes"):
        load({"engine_socket": "/" + "a" * 107}, {})
