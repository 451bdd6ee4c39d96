"""The command, from its arguments to its exit code."""

from __future__ import annotations

import gzip
import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.lab.trace.gpu_trace import GpuTrace, MadeStep, text_of, write
from tests.lab.trace.profiled_server import profiled_server

from prefillwatch.cli import main
from prefillwatch.lab.trace import capture

FEW = GpuTrace((*[MadeStep(22.0)] * 4, *[MadeStep(39.0, 353)] * 3, *[MadeStep(22.0)] * 5))

BARE = b'{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "pid": 0, "tid": 7}]}'


def invoke(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["trace", *map(str, arguments)], prog_name="prefillwatch")


def test_everything_at_once(tmp_path: Path) -> None:
    source = write(tmp_path / "a.pt.trace.json.gz", FEW.events())
    json_file, svg, png, annotated = (tmp_path / name for name in ("f.json", "b.svg", "b.png", "n.json.gz"))
    result = invoke(source, "--json", json_file, "--svg", svg, "--png", png, "--annotate", annotated)
    assert result.exit_code == 0
    assert "a step every 39 ms instead of every 22 ms" in " ".join(result.output.split())
    assert f"Annotated trace, for https://ui.perfetto.dev: {annotated}" in result.output
    told = json.loads(json_file.read_text())
    assert told["file"] == "a.pt.trace.json.gz"
    assert told["cadence"]["during"]["median_seconds"] == pytest.approx(0.039, abs=1e-5)
    assert svg.read_text().startswith("<svg ")
    assert png.read_bytes().startswith(b"\x89PNG")
    assert gzip.decompress(annotated.read_bytes()).count(b'"cat":"prefillwatch"') == 13


def test_a_trace_that_was_cut_off_is_told_as_far_as_it_goes_and_fails(tmp_path: Path) -> None:
    source = tmp_path / "cut.json"
    source.write_bytes(text_of(FEW.events())[:-60_000])
    result = invoke(source, "--json", tmp_path / "f.json", "--annotate", tmp_path / "n.json")
    assert result.exit_code == 1
    assert "Heartbeat: " in result.output
    assert f"prefillwatch: error: {source}: it ends in the middle" in result.output
    assert (tmp_path / "f.json").exists()
    assert not (tmp_path / "n.json").exists()


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("empty.json", b"", "it is empty"),
        ("page.html", b"<html>", "it begins with '<html>', so it is no JSON"),
        ("other.json", b'{"a": 1}', 'it holds no "traceEvents" list'),
        ("bare.json", BARE, "none of its 1 events is a GPU kernel or a CPU op with a time and a duration"),
        ("pair.json", BARE.replace(b"X", b"B"), "none of its 1 events is a GPU kernel or a CPU op with a time and a"),
        ("none.json", None, "it cannot be read (No such file or directory)"),
    ],
)
def test_what_is_no_trace_is_one_line(tmp_path: Path, name: str, data: bytes | None, said: str) -> None:
    if data is not None:
        (tmp_path / name).write_bytes(data)
    result = invoke(tmp_path / name)
    assert result.exit_code == 1
    assert len(result.output.splitlines()) == 1
    assert f"prefillwatch: error: {tmp_path / name}: {said}" in result.output


@pytest.mark.parametrize("arguments", [(), ("a.json", "--capture", "http://127.0.0.1:1")])
def test_either_a_file_or_a_server(arguments: tuple[str, ...]) -> None:
    result = invoke(*arguments)
    assert (result.exit_code, result.output) == (
        2,
        "prefillwatch: error: give a trace FILE, or --capture URL to make one\n",
    )


def test_where_to_write_is_checked_before_anything_is_read(tmp_path: Path) -> None:
    result = invoke(tmp_path / "a.json", "--svg", tmp_path / "none" / "b.svg")
    assert result.exit_code == 2
    assert "--svg" in result.output
    assert "cannot be written" in result.output


def test_capture_finds_its_trace_and_reports(tmp_path: Path) -> None:
    with profiled_server(tmp_path) as server:
        result = invoke(
            *("--capture", server.url, "--trace-dir", tmp_path, "--prompt-tokens", "900", "--victims", "2"),
            *("--steps-before", "4", "--steps-after", "4", "--victim-tokens", "600", "--json", tmp_path / "f.json"),
        )
    assert result.exit_code == 0
    assert "at most " in result.output
    assert "_rank0.17.pt.trace.json.gz: vLLM 0.32.0" in result.output
    assert "there is one more, of another worker: " in result.output
    assert "Seen by the clients: median gap between tokens of 2 streams: before " in result.output
    assert json.loads((tmp_path / "f.json").read_text())["clients"]["prompt_tokens"] == 900


def test_capture_without_a_folder_says_where_the_trace_is(tmp_path: Path) -> None:
    with profiled_server(tmp_path) as server:
        result = invoke(
            *("--capture", server.url, "--prompt-tokens", "300", "--victims", "1", "--steps-before", "2"),
            *("--steps-after", "2", "--victim-tokens", "400", "--no-warm"),
        )
    assert result.exit_code == 0
    assert "the trace is where the server writes it, its torch_profiler_dir" in result.output
    assert "first token of the prompt of 300 tokens" in result.output


def test_capture_of_a_server_without_profiler_names_the_flag(tmp_path: Path) -> None:
    with profiled_server(tmp_path, start_status=404) as server:
        result = invoke("--capture", server.url, "--trace-dir", tmp_path)
    assert result.exit_code == 1
    assert "start vLLM with --profiler-config" in result.output


def test_ctrl_c_ends_a_capture_stops_the_profiler_and_reports_what_there_is(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "prefillwatch", "trace", "--trace-dir", str(tmp_path), "--no-warm"]
    command += ["--prompt-tokens", "300", "--victims", "1", "--steps-before", "200", "--victim-tokens", "8000"]
    with (
        profiled_server(tmp_path) as server,
        subprocess.Popen([*command, "--capture", server.url], stdout=-1, stderr=-1, text=True) as process,
    ):
        server.on_start = lambda: os.kill(process.pid, signal.SIGINT)
        report, said = process.communicate()
    assert process.returncode == 130
    assert not server.running
    assert "Heartbeat: 12 engine steps" in report
    assert said.endswith("prefillwatch: error: the capture ended early: interrupted\n")


def test_capture_out_of_time_still_reports_and_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with profiled_server(tmp_path) as server:
        server.on_start = lambda: monkeypatch.setattr(capture, "_now", lambda: math.inf)
        result = invoke(
            *("--capture", server.url, "--trace-dir", tmp_path, "--prompt-tokens", "300", "--victims", "1"),
            *("--victim-tokens", "600", "--max-time", "30s", "--no-warm"),
        )
    assert result.exit_code == 1
    assert "Heartbeat: 12 engine steps" in result.output
    assert "the capture ended early: not done within 30 s (--max-time)" in result.output
