"""Where results and progress go, and what is said where they cannot."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from prefillwatch.commands._output import OutputError, check_writable, say, write
from prefillwatch.errors import ConfigError


@pytest.mark.parametrize("place", ["none/a.json", "file/a.json", "."])
def test_a_place_that_cannot_be_written_is_named_with_its_option(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=f"--json {tmp_path / place} cannot be written; choose a file in a folder"):
        check_writable(svg=None, json=tmp_path / place)


def test_a_new_file_and_one_that_is_there_can_be_written(tmp_path: Path) -> None:
    check_writable(json=tmp_path / "new")
    write(tmp_path / "new", "text")
    check_writable(json=tmp_path / "new")
    assert (tmp_path / "new").read_text() == "text"


def test_a_full_disk_is_one_line() -> None:
    with pytest.raises(OutputError, match=r"/dev/full could not be written \(No space left on device\)"):
        write(Path("/dev/full"), b"figures")


def test_a_terminal_that_is_gone_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr("sys.stderr", Gone())
    say("still measuring")
