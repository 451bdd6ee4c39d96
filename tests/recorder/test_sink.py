"""The file that is being written: never in anybody's way, and a failure is one line in the log."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from tests.recorder.scenes import freeze
from tests.recorder.stage import Live, incidents

from prefillwatch.recorder.sink import FileSink


def test_what_is_put_is_written_in_order(tmp_path: Path) -> None:
    sink = FileSink(tmp_path / "file", b"opening ")
    for piece in (b"one ", b"two ", b"three"):
        sink.put(piece)
    sink.close()
    assert sink.path.read_bytes() == b"opening one two three"
    assert sink.path.stat().st_mode & 0o777 == 0o600


def test_an_empty_file_that_waits_is_taken_and_a_full_one_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "run.pfw"
    path.touch(0o600)
    for expected in ("run.pfw", "run.pfw.2", "run.pfw.3"):
        sink = FileSink(path, b"opening")
        sink.close()
        assert sink.path.name == expected
    assert sorted(each.name for each in tmp_path.iterdir()) == ["run.pfw", "run.pfw.2", "run.pfw.3"]


def test_a_full_disk_is_one_line_and_nobody_else_is_disturbed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "recording.pfw").symlink_to("/dev/full")
    live = Live(tmp_path)
    with caplog.at_level(logging.ERROR):
        freeze(live)
        live.close()
    assert [each["cause"] for each in incidents(live.observation)] == ["prefill"]
    assert [record.levelname for record in caplog.records if record.levelno >= logging.ERROR] == ["ERROR"]
    assert "No space left on device" in caplog.text


@pytest.mark.parametrize("path", ["gone/run.pfw", "."])
def test_a_file_that_cannot_be_made(path: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    sink = FileSink(tmp_path / path, b"opening")
    sink.put(b"more")
    sink.close()
    assert (sink.failed, len(caplog.records)) == (True, 1)
    assert "what was written by now can be played" in caplog.text


def test_a_disk_that_does_not_keep_up_ends_the_recording(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    sink = FileSink(tmp_path / "file", b"opening")
    sink.close()  # nobody takes what is put from here on
    for _ in range(100):
        sink.put(b"more")
    assert sink.failed
    assert [record.levelname for record in caplog.records if record.levelno >= logging.ERROR] == ["ERROR"]
    assert "the disk is too slow" in caplog.text
