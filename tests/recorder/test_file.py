"""The file: what can be played of one that is cut, and one clear error for any other that cannot be played."""

from __future__ import annotations

import json
import random
import tracemalloc
from pathlib import Path

import msgspec
import pytest
from tests.recorder.scenes import every_shape
from tests.recorder.stage import Live, played

from prefillwatch.analysis.settings import AnalysisSettings, Slo, StallRule, WaitRule
from prefillwatch.core.inputs import FactPacket, PacketHead
from prefillwatch.recorder.chunks import ChunkBuilder, Entry, Kind, read_chunk
from prefillwatch.recorder.file import MAGIC, RecordingError, RecordingFile, frame
from prefillwatch.recorder.replay import Replay, ReplayClock
from prefillwatch.wire.recorded import RecordedRead
from prefillwatch.wire.tap import Kind as Tap
from prefillwatch.wire.tap import RequestHead, ResponseHead, encode_payload


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    live = Live(tmp_path_factory.mktemp("recording"))
    every_shape(live)
    live.close()
    return Path(live.path)


def entries(path: Path) -> tuple[list[Entry], int | None]:
    with RecordingFile(path) as file:
        return list(file.entries()), file.cut_at


def found_bad(path: Path) -> bool:
    """Whether it is refused, or, where a length leads beyond its end, taken for cut."""
    try:
        return entries(path)[1] is not None
    except RecordingError as error:
        return "is damaged at byte" in str(error)


def told(read: list[Entry]) -> list[tuple[object, ...]]:
    return [
        (each.kind, each.now_ns, list(each.content) if isinstance(each.content, FactPacket) else each.content)
        for each in read
    ]


class TestOlderVersions:
    def test_settings_keep_their_values(self, recording: Path, tmp_path: Path) -> None:
        """Version 2 had names of its own for them."""
        data, old = recording.read_bytes(), tmp_path / "old.pfw"
        end = 14 + int.from_bytes(data[10:14], "little")
        settings = {
            "prompt_edges": [100, 200],
            "windows_s": [5, 50],
            "stall": {"min_seconds": 0.3, "factor": 3.0, "always_seconds": 2.0},
            "wait": {"min_seconds": 7.0, "factor": 5.0},
            "slo": {"ttft_seconds": 1.5, "tpot_seconds": 0.2, "itl_seconds": 0.4},
            "max_models": 4,
        }
        header = json.dumps({**json.loads(data[14:end]), "analysis": settings}).encode()
        old.write_bytes(MAGIC + b"\x02\x00" + len(header).to_bytes(4, "little") + header + data[end:])
        with RecordingFile(old) as file:
            assert file.header.analysis == AnalysisSettings(
                prompt_buckets=(100, 200),
                windows=(5, 50),
                stall=StallRule(0.3, 3.0, 2.0),
                wait=WaitRule(7.0, 5.0),
                slo=Slo(1.5, 0.2, 0.4),
                max_models=4,
            )

    def test_what_was_learned_is_passed_over(self, recording: Path) -> None:
        with RecordingFile(recording) as file:
            replay = Replay(file.header, ReplayClock())
        replay.play(Entry(Kind.LEARNED_BEFORE_3, 1, b"in a layout that is read no more"))
        replay.play(Entry(Kind.BEAT, 10**9, b""))
        replay.end()


class TestCut:
    def test_a_whole_file_is_not_cut(self, recording: Path) -> None:
        assert entries(recording)[1] is None

    def test_one_that_breaks_off_is_good_up_to_the_last_whole_chunk(self, recording: Path, tmp_path: Path) -> None:
        data, cut = recording.read_bytes(), tmp_path / "cut.pfw"
        whole, _ = entries(recording)
        rng = random.Random(1)
        header = 14 + int.from_bytes(data[10:14], "little")
        for size in [header, *(rng.randrange(header + 1, len(data)) for _ in range(40))]:
            cut.write_bytes(data[:size])
            kept, at = entries(cut)
            assert told(kept) == told(whole[: len(kept)])
            assert at is None or at <= size
            if at is not None:
                cut.write_bytes(data[:at])
                assert entries(cut)[1] is None

    def test_it_can_be_played(self, recording: Path, tmp_path: Path) -> None:
        cut = tmp_path / "cut.pfw"
        cut.write_bytes(recording.read_bytes()[:-100])
        assert played(cut).snapshot()


class TestBadFiles:
    def test_a_flipped_bit_is_found_wherever_it_is(self, recording: Path, tmp_path: Path) -> None:
        data, bad = recording.read_bytes(), tmp_path / "bad.pfw"
        whole = told(entries(recording)[0])
        header = 14 + int.from_bytes(data[10:14], "little")
        rng = random.Random(2)
        for _ in range(60):
            position = rng.randrange(header, len(data))
            flipped = bytearray(data)
            flipped[position] ^= 1 << rng.randrange(8)
            bad.write_bytes(flipped)
            # One bit in the head of a frame has no meaning: then all is as it was.
            assert found_bad(bad) or told(entries(bad)[0]) == whole

    def test_the_remedy_works(self, recording: Path, tmp_path: Path) -> None:
        data, bad = recording.read_bytes(), tmp_path / "bad.pfw"
        bad.write_bytes(data[: len(data) // 2] + b"\0" * 8 + data[len(data) // 2 + 8 :])
        with pytest.raises(RecordingError, match=r"head -c (\d+) \S+ > good\.pfw") as raised:
            entries(bad)
        bad.write_bytes(data[: int(str(raised.value).rpartition("head -c ")[2].split()[0])])
        assert entries(bad)[1] is None

    @pytest.mark.parametrize(
        ("data", "message"),
        [
            (b"", "is empty: nothing was recorded to it"),
            (b"hello", "is no recording of prefillwatch"),
            (b"PFWREC\n\x01\x00\x02\x00\x00\x00{}", "is no recording of prefillwatch"),
            (MAGIC + b"\x09\x00\x02\x00\x00\x00{}", "version 9 of the format, and this knows versions up to 3"),
            (MAGIC + b"\x01\x00\x02\x00\x00\x00{}", "is damaged at byte 14 of 16, in its header"),
            (MAGIC + b"\x01\x00\xff\xff\xff\xff{", "is damaged at byte 14"),
        ],
    )
    def test_what_is_no_recording(self, data: bytes, message: str, tmp_path: Path) -> None:
        path = tmp_path / "file"
        path.write_bytes(data)
        with pytest.raises(RecordingError, match=message):
            RecordingFile(path)

    def test_a_file_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(RecordingError, match="No such file"):
            RecordingFile(tmp_path / "nothing")

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("started_at", 1e300),
            ("wall_offset", -1e300),
            ("program", None),
            ("analysis", {"windows": []}),
            ("analysis", {"windows": [10, -60]}),
            ("analysis", {"prompt_buckets": [3, 2, 1]}),
            ("analysis", {"prompt_buckets": [10**30]}),
            ("analysis", {"max_models": 0}),
            ("analysis", {"slo": {"ttft": 1, "tpot": 1, "itl": 0}}),
            ("analysis", {"slo": {"ttft": 1, "tpot": 1, "itl": 1e300}}),
        ],
    )
    def test_a_header_that_makes_no_sense(self, name: str, value: object, recording: Path, tmp_path: Path) -> None:
        data, bad = recording.read_bytes(), tmp_path / "bad.pfw"
        end = 14 + int.from_bytes(data[10:14], "little")
        header = json.dumps({**json.loads(data[14:end]), name: value}).encode()
        bad.write_bytes(data[:10] + len(header).to_bytes(4, "little") + header + data[end:])
        with pytest.raises(RecordingError, match=r"header.*nothing can be played"), RecordingFile(bad) as file:
            Replay(file.header, ReplayClock())

    def test_numbers_that_nobody_counted(self, recording: Path) -> None:
        with RecordingFile(recording) as file:
            replay = Replay(file.header, ReplayClock())
        builder = ChunkBuilder()
        for kind, payload in (
            (Tap.REQUEST, encode_payload(RequestHead("POST", "/v1/completions", resumed=True))),
            (Tap.RESPONSE, encode_payload(ResponseHead(200, "text/event-stream"))),
            (Tap.DATA, msgspec.msgpack.encode(RecordedRead(events=-5, chars=1))),
        ):
            builder.record(1, 1, kind, payload)
        builder.packet(1, PacketHead(1, 1, 0, 0, 3, 1), begin=0)
        builder.entry(Kind.BEAT, 10**9)
        entries = list(read_chunk(builder.take()))
        replay.play(entries[0])
        with pytest.raises(RecordingError, match=r"an entry of kind 0 cannot be read"):
            replay.play(entries[1])

    def test_an_entry_of_a_later_release_and_one_of_nonsense(self, recording: Path) -> None:
        with RecordingFile(recording) as file:
            replay = Replay(file.header, ReplayClock())
        with pytest.raises(RecordingError, match="of unknown kind 99"):
            replay.play(Entry(99, 1, b""))
        with pytest.raises(RecordingError, match="cannot be read"):
            replay.play(Entry(Kind.PAGE, 1, b"\xc1"))

    def test_a_small_file_does_not_take_much_memory(self, recording: Path, tmp_path: Path) -> None:
        data = recording.read_bytes()
        header = data[: 14 + int.from_bytes(data[10:14], "little")]
        builder = ChunkBuilder()
        for number in range(600_000):
            builder.record(number, 1, Tap.SENT, b"")
        builder.packet(1, PacketHead(1, 1, 0, 0, 600_000, 1), begin=0)
        whole, honest, huge = (tmp_path / name for name in ("whole.pfw", "honest.pfw", "huge.pfw"))
        whole.write_bytes(header + frame(builder.take()))
        for number in range(60):
            for at in range(10_000):
                builder.record(at, 1, Tap.SENT, b"")
            builder.packet(1, PacketHead(1, number, 0, 0, 10_000, 1), begin=builder.records - 10_000)
        honest.write_bytes(header + frame(builder.take()))
        huge.write_bytes(header + frame(bytes(100 << 20)))
        tracemalloc.start()
        with pytest.raises(RecordingError, match="is damaged at byte"):
            entries(whole)
        with pytest.raises(RecordingError, match="is damaged at byte"):
            entries(huge)
        with RecordingFile(honest) as file:
            assert sum(len(list(entry.content)) for entry in file.entries()) == 600_000
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 64 << 20


class TestChunks:
    def test_what_goes_in_comes_out(self) -> None:
        rng = random.Random(3)
        builder = ChunkBuilder()
        expected: list[tuple[Kind, int, object]] = []
        for number in range(50):
            if rng.random() < 0.5:
                payload = rng.randbytes(rng.randrange(300))
                builder.entry(Kind.MODELS, number, payload)
                expected.append((Kind.MODELS, number, payload))
                continue
            head = PacketHead(*(rng.getrandbits(bits) for bits in (32, 64, 64, 32, 32, 62)))
            records = [
                (rng.getrandbits(62), rng.getrandbits(40), rng.randrange(66), rng.randbytes(rng.randrange(9)))
                for _ in range(rng.randrange(20))
            ]
            begin, lost = builder.records, rng.randrange(len(records) + 1)
            for record in records:
                builder.record(*record)
            builder.packet(number, head, begin=begin, lost=lost)
            expected.append((Kind.PACKET, number, (head, records[:lost], records[lost:])))
        content = builder.take()
        assert [
            (each.kind, each.now_ns, _packet(each.content) if each.kind == Kind.PACKET else each.content)
            for each in read_chunk(content)
        ] == expected
        assert list(read_chunk(builder.take())) == []


def _packet(packet: FactPacket) -> tuple[object, ...]:
    return PacketHead.of(packet), packet.lost, list(packet)
