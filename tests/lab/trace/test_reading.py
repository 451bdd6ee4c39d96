"""Files as they are found: compressed or not, cut off, damaged, with things that are no JSON."""

from __future__ import annotations

import gzip
import os
import threading
from pathlib import Path

import pytest
from tests.lab.trace.gpu_trace import GpuTrace, MadeStep, text_of

from prefillwatch.lab.trace.errors import TraceError
from prefillwatch.lab.trace.reading import TraceReader, pieces_of

WHOLE = text_of(GpuTrace([MadeStep(20.0)] * 3).events())


def read(text: bytes) -> tuple[TraceReader, list[str]]:
    reader = TraceReader([text])
    return reader, [event.name for event in reader]


def test_plain_and_compressed_give_the_same_whatever_the_name(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(WHOLE)
    (tmp_path / "b.json").write_bytes(gzip.compress(WHOLE))
    (tmp_path / "c.json.gz").write_bytes(WHOLE)
    reads = [list(TraceReader(pieces_of(tmp_path / name))) for name in ("a.json", "b.json", "c.json.gz")]
    assert reads[0] == reads[1] == reads[2] != []


def test_a_file_of_several_compressed_parts_is_read_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(WHOLE[:5000]) + gzip.compress(WHOLE[5000:]))
    reader = TraceReader(pieces_of(tmp_path / "a.gz"))
    assert len(list(reader)) > 0
    assert reader.problem == ""


def test_a_pipe_is_read_as_it_comes(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(gzip.compress(WHOLE),))
    writer.start()
    reader = TraceReader(pieces_of(pipe))
    assert len(list(reader)) > 0
    writer.join()
    assert reader.problem == ""


def test_calls_of_python_functions_are_left_out_early() -> None:
    reader, names = read(WHOLE)
    assert not any("execute_model" in name for name in names)
    assert reader.events > len(names)


def test_the_version_of_vllm_is_noted() -> None:
    assert read(WHOLE)[0].vllm_version == "0.32.0"


def test_a_compressed_file_that_was_cut_off_gives_what_was_there(tmp_path: Path) -> None:
    whole = gzip.compress(WHOLE)
    (tmp_path / "cut.gz").write_bytes(whole[: len(whole) // 2])
    reader = TraceReader(pieces_of(tmp_path / "cut.gz"))
    assert 0 < len(list(reader)) < reader.events < len(list(TraceReader([WHOLE]))) * 2
    assert reader.problem == "the compressed file ends in the middle; it was cut off"


def test_a_plain_file_that_was_cut_off_gives_what_was_there() -> None:
    reader, names = read(WHOLE[: len(WHOLE) // 2])
    assert names
    assert reader.problem == f"it ends in the middle, after {reader.events:,} events; it was cut off"


def test_a_damaged_compressed_file_gives_what_came_before(tmp_path: Path) -> None:
    whole = bytearray(gzip.compress(text_of(GpuTrace().events()), 1))
    whole[len(whole) * 3 // 4] ^= 0xFF
    (tmp_path / "bad.gz").write_bytes(whole)
    reader = TraceReader(pieces_of(tmp_path / "bad.gz"))
    assert len(list(reader)) > 1000
    assert "damaged" in reader.problem


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "it is empty"),
        (gzip.compress(b""), "it is empty"),
        (gzip.compress(WHOLE)[:15], "cut off"),
        (b"\x1f\x8b\x08garbage that is no deflate", "damaged|cut off"),
        (b"\x28\xb5\x2f\xfdzstd", "zstd"),
    ],
    ids=("empty", "nothing compressed", "cut off", "no deflate", "another compression"),
)
def test_a_file_without_a_single_event_is_an_error(tmp_path: Path, data: bytes, said: str) -> None:
    (tmp_path / "trace").write_bytes(data)
    with pytest.raises(TraceError, match=said):
        list(TraceReader(pieces_of(tmp_path / "trace")))


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"cannot be read \(No such file"):
        list(TraceReader(pieces_of(tmp_path / "none")))


@pytest.mark.parametrize(
    "event",
    [
        b'{"ph": "X", "name": "k\xff\xb6", "ts": 1, "dur": 2}',
        b'{"ph": "X", "name": "k", "ts": 1, "dur": 2, "args": {"occupancy": NaN, "most": Infinity}}',
        b'{"ph": "X", "name": "k\t", "ts": 1, "dur": 2}',
        b'{"ph": "X", "name": "k", "ts": "1", "dur": "2"}',
    ],
)
def test_what_the_profiler_should_not_write_is_read_with_patience(event: bytes) -> None:
    reader = TraceReader([b'{"traceEvents": [' + event + b"]}"])
    (read_event,) = reader
    assert read_event.name.startswith("k")
    assert (read_event.ts, read_event.dur) == (1, 2)
    assert reader.unreadable == 0


@pytest.mark.parametrize("event", [b'{"name": }', b'{"name": [1}', b'{"ts": {"a": 1}}', b"{1: 2}"])
def test_what_nobody_can_read_is_counted(event: bytes) -> None:
    reader = TraceReader([b'{"traceEvents": [{"name": "a"}, ' + event + b', {"name": "b"}]}'])
    names = [read_event.name for read_event in reader]
    assert names[0] == "a"
    assert reader.unreadable == 1 or reader.problem


def test_fields_nobody_asked_for_do_no_harm() -> None:
    _, names = read(b'[{"name": "a", "bp": "e", "id": "0x1", "args": {"deep": [[{}]]}, "pid": "Spans", "tid": null}]')
    assert names in (["a"], [])


@pytest.mark.parametrize(
    ("args", "correlation"),
    [
        ('{"correlation": 77, "stream": 7}', 77),
        ('{"correlation": {"id": 77}}', 0),
        ('{"correlation": "77"}', 0),
        ('{"correlation": 123456789012345678901234567890}', 0),
        ("[1, {}]", 0),
        ('"text"', 0),
        ("5", 0),
        ("null", 0),
    ],
)
def test_odd_arguments_lose_no_event(args: str, correlation: int) -> None:
    text = f'{{"traceEvents": [{{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 2, "args": {args}}}]}}'
    reader = TraceReader([text.encode()])
    (event,) = list(reader)
    assert (event.correlation, event.name, reader.unreadable) == (correlation, "k", 0)
