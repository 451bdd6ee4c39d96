"""The flight recorder: the last minutes, told so that they can be played without what came before."""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.core.script import ns
from tests.recorder.scenes import SECRET, every_shape, freeze, taught
from tests.recorder.stage import Live, incidents, played, unpacked

from prefillwatch.core.view import IncidentHead
from prefillwatch.export.flight_request import FlightError, FlightFile, NoFlightRecorderError, TooSoonError
from prefillwatch.recorder.file import RecordingFile
from prefillwatch.recorder.flight import FlightFolder, FlightTrigger, write_whole
from prefillwatch.recorder.recorder import Recorder
from prefillwatch.settings.processes import FlightSettings
from prefillwatch.units import NS

FREEZE = IncidentHead(None, 1, "freeze", "engine_pause", 0)


def settings(folder: Path, window_s: float = 180.0, memory: int = 32 << 20) -> FlightSettings:
    return FlightSettings(str(folder), window_s, memory, 256 << 20)


def recorder(live: Live) -> Recorder:
    assert live.recorder is not None
    return live.recorder


def only_file(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


def named(document: dict[str, Any]) -> tuple[Any, ...]:
    return (
        document["kind"],
        document["cause"],
        document["victims"],
        [(culprit["request_id"], culprit["prompt_tokens"]) for culprit in document["culprits"]],
        round(document["worst_gap_seconds"], 6),
        round(document["started_at"], 3),
    )


class TestFile:
    @pytest.mark.parametrize(
        ("since_ms", "window_s"),
        [
            pytest.param(4_000, 180.0, id="from the beginning"),
            pytest.param(22_000, 10.0, id="in the middle of streams"),
            pytest.param(20_010, 10.0, id="a segment begins right before the freeze"),
            pytest.param(20_790, 10.0, id="a segment begins in the freeze"),
        ],
    )
    def test_it_shows_the_incident(self, since_ms: int, window_s: float, tmp_path: Path) -> None:
        live = Live(tmp_path, record=False, flight=settings(tmp_path, window_s))
        freeze(live, since_ms)
        live.close()
        (incident,) = incidents(live.observation)
        path = only_file(tmp_path)
        with RecordingFile(path) as file:
            assert (file.header.flight, file.header.texts) == (True, False)
        again = played(path)
        assert [named(each) for each in incidents(again)] == [named(incident)]
        assert incident["cause"] == "prefill"
        assert path.name.endswith("-freeze-prefill.pfw")

    @pytest.mark.parametrize(
        ("tokens", "took_ms", "cause"),
        [
            pytest.param(1500, 320.0, "prefill", id="what such a prompt takes here"),
            pytest.param(450, 110.0, "prefill", id="a small one, but dear tokens"),
            pytest.param(700, 1800.0, "unattributed", id="ten times what it takes"),
        ],
    )
    def test_the_verdict_is_that_of_one_who_knows_the_server(
        self, tokens: int, took_ms: float, cause: str, tmp_path: Path
    ) -> None:
        live = Live(tmp_path, record=False, flight=settings(tmp_path, 10.0))
        taught(live, tokens, took_ms)
        recorder(live)._folder.wait()
        path = asyncio.run(live.observation.write_flight_now()).file
        live.close()
        last = incidents(live.observation)[0]
        assert (last["cause"], last["victims"]) == (cause, 4)
        assert [named(each) for each in incidents(played(Path(path)))] == [named(last)]

    def test_it_holds_no_more_than_its_window(self, tmp_path: Path) -> None:
        live = Live(tmp_path, record=False, flight=settings(tmp_path, 10.0))
        freeze(live, 28_000)
        live.close()
        with RecordingFile(only_file(tmp_path)) as file:
            times = [entry.now_ns for entry in file.entries()]
        assert 10 * NS <= times[-1] - times[0] <= 17 * NS

    def test_a_request_that_waits_when_it_begins_is_known_with_all_that_it_has_waited(self, tmp_path: Path) -> None:
        live = Live(tmp_path, record=False, flight=settings(tmp_path, 10.0))
        body = {"messages": [{"role": "user", "content": "x" * 9000}]}
        live.relay.request(50, body, request_id="waiting")
        live.relay.flush()
        live.advance(40_000)
        recorder(live).write_flight("wait-stuck")
        live.close()
        (prefill,) = played(only_file(tmp_path)).state()["prefills"]
        assert prefill == live.observation.state()["prefills"][0]
        assert (prefill["request_id"], round(prefill["waited_seconds"])) == ("waiting", 40)

    def test_no_text_is_in_it(self, tmp_path: Path) -> None:
        live = Live(tmp_path, record=False, flight=settings(tmp_path, 10.0))
        every_shape(live)
        recorder(live).write_flight("freeze-prefill")
        live.close()
        assert SECRET.encode() not in b"".join(unpacked(min(tmp_path.iterdir())))

    def test_an_incident_right_before_the_end_is_not_lost(self, tmp_path: Path) -> None:
        live = Live(tmp_path, record=False, flight=settings(tmp_path))
        recorder(live)._trigger.closed(FREEZE, ns(0))
        live.close()
        assert only_file(tmp_path).name.endswith("-freeze-engine-pause.pfw")

    def test_it_is_for_its_owner_alone(self, tmp_path: Path) -> None:
        live = Live(tmp_path, record=False, flight=settings(tmp_path))
        freeze(live)
        live.close()
        assert only_file(tmp_path).stat().st_mode & 0o777 == 0o600

    def test_memory_is_bounded(self, tmp_path: Path) -> None:
        live = Live(tmp_path, record=False, flight=settings(tmp_path, 180.0, memory=12_000))
        freeze(live, 28_000)
        live.close()
        assert only_file(tmp_path).stat().st_size < 12_000 * 1.5
        assert [each["cause"] for each in incidents(played(only_file(tmp_path)))] == ["prefill"]


class TestAskedFor:
    def test_it_holds_what_was_seen_until_then(self, tmp_path: Path) -> None:
        live = Live(tmp_path, record=False, flight=settings(tmp_path))
        live.relay.request(50, {"messages": []}, request_id="just now")
        live.relay.flush()
        written = asyncio.run(live.observation.write_flight_now())
        path = only_file(tmp_path)
        assert path.name.endswith("-asked.pfw")
        assert written == FlightFile(str(path), path.stat().st_size)
        assert [each["request_id"] for each in played(path).state()["prefills"]] == ["just now"]

    @pytest.mark.parametrize("texts", [False, True])
    def test_without_a_flight_recorder_it_says_what_to_set(self, texts: bool, tmp_path: Path) -> None:
        for live in (
            Live(tmp_path, plain=True),
            Live(tmp_path, texts=texts, flight=settings(tmp_path) if texts else None),
        ):
            with pytest.raises(NoFlightRecorderError, match="set flight_recorder_dir to a folder"):
                asyncio.run(live.observation.write_flight_now())
            live.close()

    def test_a_disk_that_does_not_take_it_is_said(self, tmp_path: Path) -> None:
        live = Live(tmp_path, record=False, flight=settings(tmp_path / "gone"))
        with pytest.raises(FlightError, match=r"cannot write .*gone/flight-.*: No such file or directory"):
            asyncio.run(live.observation.write_flight_now())


class TestTrigger:
    def test_a_file_follows_an_incident_once_its_aftermath_is_over(self) -> None:
        trigger = FlightTrigger()
        assert trigger.due(0, []) is None
        trigger.closed(FREEZE, 10 * NS)
        assert trigger.due(11 * NS, []) is None
        assert trigger.due(12 * NS, []) == "freeze-engine_pause"
        assert trigger.due(13 * NS, []) is None

    def test_incidents_soon_after_a_file_share_the_next(self) -> None:
        trigger = FlightTrigger()
        trigger.closed(FREEZE, 0)
        assert trigger.due(2 * NS, []) is not None
        for second in (5, 20, 40):
            trigger.closed(FREEZE, second * NS)
        assert trigger.due(61 * NS, []) is None
        assert trigger.due(62 * NS, []) is not None
        assert trigger.due(200 * NS, []) is None

    def test_one_that_lasts_is_not_waited_for(self) -> None:
        trigger, incident = FlightTrigger(), IncidentHead(None, 1, "wait", "stuck", 0)
        assert trigger.due(59 * NS, [incident]) is None
        assert trigger.due(61 * NS, [incident]) == "wait-stuck"
        assert trigger.due(200 * NS, [incident]) is None

    def test_files_that_are_asked_for_are_ten_seconds_apart(self) -> None:
        trigger = FlightTrigger()
        trigger.asked(100 * NS)
        for at, left in ((100, 10), (103, 7), (109.5, 1)):
            with pytest.raises(TooSoonError) as refused:
                trigger.asked(int(at * NS))
            assert refused.value.seconds == left
        trigger.asked(110 * NS)


class TestFolder:
    def test_a_file_that_is_asked_for_takes_the_place_of_its_like_alone(self, tmp_path: Path) -> None:
        incident = tmp_path / "flight-20240101T000000Z-freeze-prefill.pfw"
        incident.write_bytes(b"x" * 50)
        folder = FlightFolder(tmp_path, 100)
        first = Path(folder.write("asked", [b"y" * 40]).result(30).file)
        folder.wait()
        second = Path(folder.write("asked", [b"z" * 45]).result(30).file)
        assert not first.exists()
        folder.wait()
        with pytest.raises(FlightError, match="full of recordings of incidents"):
            folder.write("asked", [b"z" * 55]).result(30)
        folder.wait()
        assert incident.exists()
        assert second.exists()
        folder.write("wait-queueing", [b"w" * 60]).result(30)
        assert not incident.exists()

    def test_the_oldest_files_make_room(self, tmp_path: Path) -> None:
        for day in (1, 2, 3):
            (tmp_path / f"flight-2024010{day}T000000Z-freeze-prefill.pfw").write_bytes(b"x" * 40)
        (tmp_path / "notes.txt").write_bytes(b"x" * 1000)
        folder = FlightFolder(tmp_path, 100)
        folder.write("wait-queueing", [b"y" * 30, b"z" * 20])
        folder.wait()
        names = sorted(path.name for path in tmp_path.iterdir())
        assert names[0] == "flight-20240103T000000Z-freeze-prefill.pfw"
        assert names[1].endswith("Z-wait-queueing.pfw")
        assert names[2:] == ["notes.txt"]

    def test_what_was_left_unfinished_makes_room_too(self, tmp_path: Path) -> None:
        left = tmp_path / ".flight-20240101T000000Z-freeze-prefill.pfw.4711"
        left.write_bytes(b"x" * 60)
        folder = FlightFolder(tmp_path, 100)
        folder.write("wait-queueing", [b"y" * 50]).result(30)
        assert not left.exists()

    def test_two_sidecars_that_write_in_the_same_second_do_not_take_each_others_place(self, tmp_path: Path) -> None:
        names = {FlightFolder(tmp_path, 1000).write("freeze-prefill", [b"x"]).result(30).file for _ in range(5)}
        assert len(names) == len(list(tmp_path.iterdir())) == 5

    def test_a_folder_that_is_gone_is_one_line_in_the_log(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        folder = FlightFolder(tmp_path / "gone", 1000)
        with caplog.at_level(logging.INFO):
            folder.write("freeze-prefill", [b"x"])
            folder.wait()
        assert [record.levelname for record in caplog.records] == ["ERROR"]
        assert "No such file" in caplog.text

    def test_a_disk_that_hangs_holds_nobody_up_and_one_file_in_memory(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        taken, going_on = threading.Event(), threading.Event()

        class Slow(FlightFolder):
            def _make_room(self, size: int, *, asked: bool) -> None:
                taken.set()
                assert going_on.wait(30)

        folder = Slow(tmp_path, 1000)
        first = folder.write("freeze-prefill", [b"x"])
        assert taken.wait(30)
        for _ in range(3):
            with pytest.raises(FlightError, match="being written already"):
                folder.write("wait-stuck", [b"x" * 100]).result(0)
        going_on.set()
        assert first.result(30).file.endswith("-freeze-prefill.pfw")
        assert len(list(tmp_path.iterdir())) == 1
        assert "the file before it is still being written" in caplog.text

    def test_one_that_is_larger_than_all_may_be_is_not_written_and_none_goes_for_it(self, tmp_path: Path) -> None:
        old = tmp_path / "flight-20240101T000000Z-freeze-prefill.pfw"
        old.write_bytes(b"x" * 40)
        with pytest.raises(FlightError, match="it has 101 bytes, and flight_recorder_disk allows 100"):
            FlightFolder(tmp_path, 100).write("wait-stuck", [b"x" * 101]).result(30)
        assert list(tmp_path.iterdir()) == [old]

    def test_a_file_is_there_as_a_whole_or_not_at_all(self, tmp_path: Path) -> None:
        def parts() -> Any:
            yield b"half"
            raise OSError(28, "No space left on device")

        with pytest.raises(OSError, match="No space"):
            write_whole(tmp_path / "flight.pfw", parts())
        assert list(tmp_path.iterdir()) == []
