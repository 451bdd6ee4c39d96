"""The trace with our tracks behind its own events."""

from __future__ import annotations

import gzip
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.lab.trace.gpu_trace import GpuTrace, MadeStep, write

from prefillwatch.lab.trace.analyse import read_file
from prefillwatch.lab.trace.annotate import PROCESS, annotate
from prefillwatch.lab.trace.errors import TraceError

FEW = GpuTrace((*[MadeStep(22.0)] * 4, *[MadeStep(39.0, 353)] * 3, *[MadeStep(22.0)] * 5))


def annotated(source: Path, target: Path) -> bytes:
    findings, reader = read_file(source)
    assert reader.events_end is not None
    annotate(source, target, findings, reader.events_end)
    data = target.read_bytes()
    return gzip.decompress(data) if target.suffix == ".gz" else data


def ours(text: bytes) -> list[dict[str, Any]]:
    loaded = json.loads(text)
    events = loaded["traceEvents"] if isinstance(loaded, dict) else loaded
    return [event for event in events if event.get("pid") == PROCESS]


@pytest.mark.parametrize("names", [("a.json", "b.json"), ("a.json.gz", "b.json"), ("a.json.gz", "b.json.gz")])
def test_the_trace_itself_stays_byte_for_byte(tmp_path: Path, names: tuple[str, str]) -> None:
    source = write(tmp_path / names[0], FEW.events())
    plain = gzip.decompress(source.read_bytes()) if source.suffix == ".gz" else source.read_bytes()
    text = annotated(source, tmp_path / names[1])
    added = len(text) - len(plain)
    at = text.index(b",\n  {" + f'"ph":"M","name":"process_name","pid":{PROCESS}'.encode())
    assert added > 0
    assert text[:at] + text[at + added :] == plain


def test_steps_prefill_and_gap_lie_on_the_clock_of_the_trace(tmp_path: Path) -> None:
    events = ours(annotated(write(tmp_path / "a.json", FEW.events()), tmp_path / "b.json"))
    named = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert named == {1: "engine steps", 2: "prefill", 3: "widest gap between decode kernels"}
    spans = [event for event in events if event["ph"] == "X"]
    steps = [span for span in spans if span["tid"] == 1]
    assert [step["name"] for step in steps[3:5]] == ["decode, 22 ms", "with a prompt, 39 ms"]
    assert [step["ts"] for step in steps[:2]] == pytest.approx([FEW.start_us, FEW.start_us + 22_000], abs=10)
    assert steps[4]["args"] == {"step": 4, "busy_ratio": 0.97, "prompt_tokens": 353, "answers": 4}
    (prefill,) = [span for span in spans if span["tid"] == 2]
    assert prefill["name"] == "prompt of 1059 tokens"
    assert prefill["ts"] == pytest.approx(FEW.start_us + 4 * 22_000, abs=10)
    assert prefill["dur"] == pytest.approx(3 * 39_000, abs=10)
    (gap,) = [span for span in spans if span["tid"] == 3]
    assert gap["dur"] == pytest.approx(1600, rel=0.01)


def test_steps_of_a_track_do_not_overlap(tmp_path: Path) -> None:
    """Perfetto nests what overlaps."""
    events = ours(annotated(write(tmp_path / "a.json", FEW.events()), tmp_path / "b.json"))
    steps = [event for event in events if event["ph"] == "X" and event["tid"] == 1]
    for earlier, later in pairwise(steps):
        assert earlier["ts"] + earlier["dur"] <= later["ts"] + 0.0011


def test_the_annotated_trace_tells_the_same(tmp_path: Path) -> None:
    source = write(tmp_path / "a.json", FEW.events())
    annotated(source, tmp_path / "b.json")
    again, _ = read_file(tmp_path / "b.json")
    assert again.steps == read_file(source)[0].steps


def test_a_bare_list_gets_them_too(tmp_path: Path) -> None:
    source = tmp_path / "a.json"
    source.write_text(json.dumps(list(FEW.events())))
    assert len(ours(annotated(source, tmp_path / "b.json"))) > 12


def test_an_annotated_trace_does_not_overwrite_its_source(tmp_path: Path) -> None:
    source = write(tmp_path / "a.json", FEW.events())
    with pytest.raises(TraceError, match="this is the trace itself"):
        annotated(source, source)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    source = write(tmp_path / "a.json", FEW.events())
    with pytest.raises(TraceError, match=r"none/b.json: cannot be written"):
        annotated(source, tmp_path / "none" / "b.json")


def test_nothing_half_written_is_left_behind(tmp_path: Path) -> None:
    source = write(tmp_path / "a.json.gz", FEW.events())
    findings, reader = read_file(source)
    source.write_bytes(source.read_bytes()[:-2000])
    assert reader.events_end is not None
    with pytest.raises(TraceError, match="changed while it was read"):
        annotate(source, tmp_path / "b.json", findings, reader.events_end)
    assert [path.name for path in tmp_path.iterdir()] == ["a.json.gz"]
