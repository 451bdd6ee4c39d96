"""Setting after setting: rows of those that work and of those that do not, on disk whatever ends the sweep."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
from pathlib import Path

import pytest
from tests.kit.processes import is_alive
from tests.lab.sweep.rows import mix, probe

from prefillwatch.errors import ConfigError
from prefillwatch.lab.sweep.figures import Outcome
from prefillwatch.lab.sweep.grid import Setting
from prefillwatch.lab.sweep.measure import Bound, Say
from prefillwatch.lab.sweep.store import open_store
from prefillwatch.lab.sweep.sweep import Measure, Measured, Sweep, SweepSettings, row_label
from prefillwatch.lab.target import Target, TargetError

FAKE = (sys.executable, str(Path(__file__).parent / "fake_server.py"), "{port}", "serves")
SIMULATOR = ("prefillwatch", "sim", "--preset", "small")
LIMIT = Bound(tokens=1, shortest_seconds=0.0, longest_seconds=30.0)


def settings(*flags: str, command: tuple[str, ...] = SIMULATOR) -> SweepSettings:
    return SweepSettings(command, tuple(Setting(tuple(each.split())) for each in flags), start_limit_seconds=30.0)


async def measured(target: Target, say: Say) -> Measured:
    assert target.model == "sim-0.5b"
    say("measuring")
    return (probe(0.1),), mix(200.0)


class Swept:
    """A sweep that was run: its rows, what was said, and whether it came to its end."""

    def __init__(
        self, path: Path, swept: SweepSettings, measure: Measure = measured, limit: Bound = LIMIT, stop_at: str = ""
    ) -> None:
        self.said: list[str] = []
        self._stop_at = stop_at
        labels = [row_label(setting) for setting in swept.settings]
        self.store = open_store(path, swept.command, {}, labels, now=1e9)
        self.complete = asyncio.run(self._run(swept, measure, limit))

    async def _run(self, swept: SweepSettings, measure: Measure, limit: Bound) -> bool:
        self._stop = asyncio.Event()
        return await Sweep(swept, measure, limit, self.store, self._say, self._stop).run()

    def _say(self, text: str) -> None:
        self.said.append(text)
        if self._stop_at and self._stop_at in text:
            self._stop.set()

    @property
    def rows(self) -> dict[str, Outcome]:
        return {row.label: row for row in self.store.results.settings}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sweep.json"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a measurement fails on a server that lives on, its end need not be waited for."""
    monkeypatch.setattr("prefillwatch.lab.sweep.sweep._LAST_BREATH_S", 0.01)


def test_every_setting_gets_a_server_of_its_own_and_a_row(path: Path) -> None:
    swept = Swept(path, settings("", "--max-num-batched-tokens 512"))
    assert swept.complete
    assert list(swept.rows) == ["(as given)", "--max-num-batched-tokens 512"]
    assert all(row.failure is None and row.start_seconds and row.probes and row.mix for row in swept.rows.values())
    kept = json.loads(path.read_text())
    assert kept["model"] == "sim-0.5b"
    assert kept["finished_at"] is not None


def test_a_server_that_does_not_start_is_a_row_with_its_last_error_line(path: Path) -> None:
    swept = Swept(path, settings("--max-num-batched-tokens nonsense", ""))
    assert swept.complete
    failure = swept.rows["--max-num-batched-tokens nonsense"].failure
    assert failure is not None
    assert failure.startswith("ended with code 2: Error: Invalid value for '--max-num-batched-tokens'")
    assert swept.rows["(as given)"].failure is None
    assert f"[1/2] --max-num-batched-tokens nonsense: FAILED: {failure}" in swept.said


async def waits(target: Target, say: Say) -> Measured:
    say("measuring")
    await asyncio.sleep(60)
    raise AssertionError


async def kills_and_waits(target: Target, say: Say) -> Measured:
    await target.ask({}, path="/die")
    return await waits(target, say)


async def kills_and_sees_it(target: Target, say: Say) -> Measured:
    await target.ask({}, path="/die")
    raise TargetError("connection lost")


@pytest.mark.parametrize("measure", [kills_and_waits, kills_and_sees_it])
def test_a_server_that_dies_while_it_is_measured_is_a_row_too(path: Path, measure: Measure) -> None:
    swept = Swept(path, settings("", command=FAKE), measure)
    assert swept.complete
    assert swept.rows["(as given)"].failure == (
        "the server ended with code 7: RuntimeError: engine is dead (while it was measured)"
    )


@pytest.mark.usefixtures("impatient")
def test_what_a_living_server_refuses_is_a_row_in_its_own_words(path: Path) -> None:
    async def refused(target: Target, say: Say) -> Measured:
        raise TargetError("it wants\na key")

    assert Swept(path, settings("", command=FAKE), refused).rows["(as given)"].failure == "it wants a key"


@pytest.mark.usefixtures("impatient")
def test_a_server_too_slow_to_be_measured_is_a_row(path: Path) -> None:
    limit = Bound(tokens=1, shortest_seconds=0.0, longest_seconds=1.0)
    swept = Swept(path, settings("", command=FAKE), waits, limit)
    assert swept.rows["(as given)"].failure == "not measured within 1 s; the server is up but too slow"


def test_a_wish_to_stop_ends_the_server_at_hand_and_keeps_what_was_measured(path: Path) -> None:
    pids: list[int] = []

    async def second_waits(target: Target, say: Say) -> Measured:
        pids.append(listener(int(target.url.rpartition(":")[2])))
        return ((probe(0.1),), None) if len(pids) == 1 else await waits(target, say)

    swept = Swept(
        path, settings("", "--second", "--third", command=FAKE), second_waits, stop_at="[2/3] --second: measuring"
    )
    assert not swept.complete
    assert list(swept.rows) == ["(as given)"]
    assert [row["label"] for row in json.loads(path.read_text())["settings"]] == ["(as given)"]
    assert len(pids) == 2
    assert not any(map(is_alive, pids))


@pytest.mark.usefixtures("impatient")
def test_a_rerun_starts_no_server_for_what_was_measured(path: Path) -> None:
    async def fails(target: Target, say: Say) -> Measured:
        raise TargetError("not today")

    Swept(path, settings("", "--second", command=FAKE), kills_first := _Once(fails, succeeds))
    assert kills_first.calls == 2
    swept = Swept(path, settings("", "--second", command=FAKE), again := _Once(succeeds, succeeds))
    assert again.calls == 1, "only the one that had failed"
    assert [row.failure for row in swept.rows.values()] == [None, None]
    assert "[2/2] --second: measured before" in swept.said


def test_a_command_that_cannot_be_told_its_port_is_refused_before_anything_starts(path: Path) -> None:
    with pytest.raises(ConfigError, match="how to tell 'my-server' its port"):
        Swept(path, settings("", command=("my-server",)))
    assert not path.exists()


@pytest.mark.usefixtures("impatient")
def test_input_that_no_setting_can_take_ends_the_sweep_at_the_first(path: Path) -> None:
    async def too_long(target: Target, say: Say) -> Measured:
        raise ConfigError("a prompt does not fit")

    with pytest.raises(ConfigError, match="a prompt does not fit"):
        Swept(path, settings("", "--second", command=FAKE), too_long)


@pytest.mark.usefixtures("impatient")
def test_input_that_one_setting_cannot_take_is_a_row(path: Path) -> None:
    async def too_long(target: Target, say: Say) -> Measured:
        raise ConfigError("a prompt does not fit")

    swept = Swept(path, settings("", "--second", command=FAKE), _Once(succeeds, too_long))
    assert swept.rows["--second"].failure == "a prompt does not fit"


def test_secrets_among_the_flags_are_in_no_row_and_no_line(path: Path) -> None:
    swept = Swept(path, settings("--api-key marker", command=FAKE), succeeds)
    assert "marker" not in path.read_text()
    assert "marker" not in "".join(swept.said)
    assert list(swept.rows) == ["--api-key '***'"]


def test_the_output_of_a_server_is_kept_where_asked_for(path: Path, tmp_path: Path) -> None:
    swept = dataclasses.replace(settings("--a 1", command=FAKE), logs=tmp_path)
    Swept(path, swept, succeeds)
    assert (tmp_path / "01.log").read_text() == "flags: --a 1\n"


async def succeeds(target: Target, say: Say) -> Measured:
    return (probe(0.1),), None


class _Once:
    """One measurement the first time, another one after that."""

    def __init__(self, first: Measure, then: Measure) -> None:
        self._first = first
        self._then = then
        self.calls = 0

    async def __call__(self, target: Target, say: Say) -> Measured:
        self.calls += 1
        return await (self._first if self.calls == 1 else self._then)(target, say)


def listener(port: int) -> int:
    """The pid of the fake server that was given the port."""
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        words = process.read_bytes().split(b"\0")
        if str(port).encode() in words and any(word.endswith(b"fake_server.py") for word in words):
            return int(process.parent.name)
    raise AssertionError(f"nobody was given port {port}")
