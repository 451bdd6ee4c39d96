"""The systemd unit, as systemd itself reads it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.deploy.commands import accept

from prefillwatch.errors import ConfigError
from prefillwatch.settings.declared import Settings
from prefillwatch.settings.sources import load

FOLDER = Path(__file__).parents[2] / "deploy/systemd"
UNIT = FOLDER / "prefillwatch.service"
DROP_IN = FOLDER / "prefillwatch.service.d/credentials.conf"
#: Where the unit has our program, which is not installed where tests run.
PROGRAM = "/opt/prefillwatch/bin/prefillwatch"


def values(path: Path, key: str) -> list[str]:
    return [line.partition("=")[2] for line in path.read_text().splitlines() if line.startswith(f"{key}=")]


def analyze(folder: Path, text: str) -> str:
    """What systemd-analyze finds wrong with the unit."""
    unit = folder / UNIT.name
    unit.write_text(text.replace(PROGRAM, "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "SYSTEMD_UNIT_PATH": f"{folder}:"},
    )
    ours = [line for line in done.stderr.splitlines() if UNIT.stem in line or str(folder) in line]
    return "\n".join(ours)


@pytest.mark.parametrize("with_drop_in", [False, True], ids=["alone", "with credentials"])
def test_unit_is_valid(tmp_path: Path, with_drop_in: bool) -> None:
    if with_drop_in:
        shutil.copytree(DROP_IN.parent, tmp_path / DROP_IN.parent.name)
    assert analyze(tmp_path, UNIT.read_text()) == ""


def test_a_mistake_would_be_found(tmp_path: Path) -> None:
    assert "KillMod" in analyze(tmp_path, UNIT.read_text().replace("KillMode=", "KillMod="))


def test_command_and_settings_are_ones_we_have() -> None:
    program, command = values(UNIT, "ExecStart")[0].split()
    assert program == PROGRAM
    accept(command)
    assert settings_of_unit().required_upstream() == "http://127.0.0.1:8000"


def settings_of_unit() -> Settings:
    return load({}, dict(line.split("=", 1) for line in values(UNIT, "Environment")))


def test_credentials_are_passed_under_names_of_settings() -> None:
    passed = {line.partition(":")[0] for line in values(DROP_IN, "LoadCredential")}
    used = dict(line.split("=", 1) for line in values(DROP_IN, "Environment"))
    assert {value.removeprefix("%d/") for value in used.values()} == passed
    keys = {name.removeprefix("PREFILLWATCH_").lower() for name in used}
    assert keys - {"config"} <= set(Settings.model_fields)


def test_answers_have_time_to_finish() -> None:
    assert int(values(UNIT, "TimeoutStopSec")[0]) >= settings_of_unit().drain_timeout + 10
    assert values(UNIT, "KillMode") == ["mixed"], "the first process drains the others"


def test_bad_settings_do_not_restart_for_ever() -> None:
    assert values(UNIT, "Restart") == ["on-failure"]
    assert values(UNIT, "RestartPreventExitStatus") == [str(ConfigError.exit_code)]


def test_hardened() -> None:
    for key in ("DynamicUser", "NoNewPrivileges", "PrivateDevices", "ProtectHome", "MemoryDenyWriteExecute"):
        assert values(UNIT, key) == ["yes"]
    assert values(UNIT, "ProtectSystem") == ["strict"]
    assert values(UNIT, "CapabilityBoundingSet") == [""]
