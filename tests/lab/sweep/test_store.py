"""The file of results: going on, refusing what cannot be held against each other, and never half written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.lab.sweep.rows import failed, row

from prefillwatch.errors import ConfigError
from prefillwatch.lab.sweep.store import ResultsError, Store, open_store

COMMAND = ("vllm", "serve", "m")
MADE = {"victims": 6, "prompts_at_once": [3, 12], "arrivals": None}


def opened(path: Path, *labels: str, command: tuple[str, ...] = COMMAND, overwrite: bool = False, **made: Any) -> Store:
    return open_store(path, command, MADE | made, labels or ("a", "b", "c"), now=1e9, overwrite=overwrite)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sweep.json"


def test_a_row_is_on_disk_as_soon_as_it_is_added(path: Path) -> None:
    opened(path).add(row("a", 0.1, 1.0, 200))
    (kept,) = json.loads(path.read_text())["settings"]
    assert kept["label"] == "a"
    assert kept["probes"][0]["window"]["p99_seconds"] == 0.1
    assert json.loads(path.read_text())["pareto_front"] == ["a"]
    assert [each.name for each in path.parent.iterdir()] == ["sweep.json"], "nothing half written is left"


def test_the_file_is_for_its_owner_alone(path: Path) -> None:
    opened(path).add(row("a", 0.1, 1.0, 200))
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_rerun_knows_what_was_measured_and_tries_again_what_failed(path: Path) -> None:
    first = opened(path)
    for outcome in (row("a", 0.1, 1.0), failed("b")):
        first.add(outcome)
    again = opened(path)
    assert again.resumed == ("a",)
    assert [again.measured(label) for label in "abc"] == [True, False, False]
    again.add(row("b", 0.2, 1.0))
    assert [each.label for each in again.results.settings] == ["a", "b"]
    assert again.results.settings[1].failure is None


def test_rows_come_in_the_order_of_the_settings_and_others_stay(path: Path) -> None:
    opened(path).add(row("z", 0.1, 1.0))
    again = opened(path, "b", "a")
    for label in ("a", "b"):
        again.add(row(label, 0.1, 1.0))
    assert [each.label for each in again.results.settings] == ["b", "a", "z"]


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ({"command": ("vllm", "serve", "other")}, "the command differs"),
        ({"victims": 4}, "victims 6 there, 4 here"),
        ({"prompts_at_once": [12]}, "prompts at once 3,12 there, 12 here"),
        ({"arrivals": "abc"}, "arrivals none there, abc here"),
    ],
)
def test_results_of_another_sweep_are_not_mixed_with_these(path: Path, change: dict[str, Any], difference: str) -> None:
    opened(path).add(row("a", 0.1, 1.0))
    with pytest.raises(ConfigError, match=f"{path} holds results of another sweep .{difference}") as error:
        opened(path, **change)
    assert "write to another file with --json, or add --overwrite" in str(error.value)
    assert opened(path, overwrite=True, **change).resumed == ()


@pytest.mark.parametrize("text", ["", "not json", "[]", '{"format": "another"}', '{"victims": 6}'])
def test_a_file_of_something_else_is_not_touched(path: Path, text: str) -> None:
    path.write_text(text)
    with pytest.raises(ConfigError, match="holds no results of a sweep"):
        opened(path)
    assert path.read_text() == text


def test_results_of_a_later_version_are_refused(path: Path) -> None:
    opened(path).add(row("a", 0.1, 1.0))
    path.write_text(path.read_text().replace('"version": 1', '"version": 2'))
    with pytest.raises(ConfigError, match="of another kind or version"):
        opened(path)


def test_a_folder_that_is_gone_is_named(path: Path) -> None:
    store = opened(path.parent / "gone" / "sweep.json")
    with pytest.raises(ResultsError, match=r"cannot write results to .*gone.*--json"):
        store.add(row("a", 0.1, 1.0))


def test_a_write_that_fails_leaves_the_old_results(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(path)
    store.add(row("a", 0.1, 1.0))
    before = path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("prefillwatch.lab.sweep.store.os.fsync", full)
    with pytest.raises(ResultsError, match="No space left on device"):
        store.add(row("b", 0.1, 1.0))
    assert path.read_bytes() == before
    assert [each.name for each in path.parent.iterdir()] == ["sweep.json"]
