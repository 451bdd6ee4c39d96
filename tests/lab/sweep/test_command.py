"""``prefillwatch sweep`` as it is typed: what is said before, during and after, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.lab.sweep.rows import row

from prefillwatch.cli import main
from prefillwatch.lab.sweep.store import ResultsError
from prefillwatch.lab.sweep.sweep import Sweep

SIMULATOR = ("--", "prefillwatch", "sim", "--preset", "small")
BRIEF = (
    *("--victims", "2", "--inject", "2", "--prompt-tokens", "1000", "--warmup", "300ms", "--recovery", "300ms"),
    *("--mix", "500ms", "--readers", "1", "--mix-rate", "4"),
)


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("PREFILLWATCH_API_KEY", "VLLM_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, ("sweep", *arguments), prog_name="prefillwatch")


def test_from_plan_to_report_and_a_rerun_that_only_reports() -> None:
    arguments = (*BRIEF, "--vary", "max-num-batched-tokens=512,nonsense", "--html", "sweep.html", *SIMULATOR)
    first = invoke(*arguments)
    assert first.exit_code == 0, first.output
    for told in (
        "2 settings of prefillwatch sim --preset small:",
        "On each: 2 prompts of 1,000 tokens at once into 2 streams; then a mix of",
        "Bounds: at most",
        "[1/2] --max-num-batched-tokens 512: done",
        "[2/2] --max-num-batched-tokens nonsense: FAILED: ended with code 2",
        "written: sweep.json, sweep.html",
    ):
        assert told in first.stderr
    assert first.stdout.startswith("Sweep of prefillwatch sim --preset small (sim-0.5b)\n\nThe trade-off\n")
    assert "- --max-num-batched-tokens nonsense was not measured: ended with code 2" in first.stdout
    rows = json.loads(Path("sweep.json").read_text())["settings"]
    assert [row["failure"] is None for row in rows] == [True, False]
    page = Path("sweep.html").read_text()
    assert page.count("<svg") == 2
    assert "http://" not in page.replace("http://www.w3.org", "")

    again = invoke(*BRIEF, "--vary", "max-num-batched-tokens=512", "--slo-itl-p99", "1s", *SIMULATOR)
    assert again.exit_code == 0
    assert "All are measured; nothing is started." in again.stderr
    assert "- Promised are gaps with a p99 of at most 1 s in the injection window: --max-num" in again.stdout


def test_the_plan_alone_starts_nothing_and_hides_the_key() -> None:
    result = invoke("--plan", "--inject", "3,12", "--", "vllm", "serve", "m", "--api-key", "marker")
    assert result.exit_code == 0
    assert "6 settings of vllm serve m --api-key '***':\n  (as given)\n  --no-enable-chunked-prefill\n" in result.stderr
    assert (
        "On each: 3 and 12 prompts of 6,000 tokens at once into 6 streams; then a mix of 42 requests in 60 s beside 4"
        in result.stderr
    )
    assert "6 starts of at most 15 min; over within" in result.stderr
    assert "marker" not in result.output
    assert list(Path().iterdir()) == []


def test_when_no_setting_could_be_measured_the_exit_code_tells() -> None:
    result = invoke("--setting", "--preset nonsense", *SIMULATOR)
    assert result.exit_code == 1
    assert "- No setting could be measured." in result.stdout
    assert "--preset nonsense was not measured: ended with code 2" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "Missing argument '-- COMMAND"),
        (("--", "my-server"), "it is not known how to tell 'my-server' its port; write {port}"),
        (("--", "vllm", "serve", "m", "--uds", "/run/x"), "a sweep talks to its server over TCP; leave --uds out"),
        (("--vary", "x", *SIMULATOR), "--vary 'x' is not a flag with its values"),
        (("--inject", "many", *SIMULATOR), "'many' is no list of numbers of prompts; write 12 or 3,12, or 0"),
        (("--inject", "0", "--mix", "0", *SIMULATOR), "neither a probe nor a mix is to be made"),
        (("--slo-itl-p99", "200", *SIMULATOR), "'200' is not a duration"),
        (("--arrivals", "nowhere.jsonl", *SIMULATOR), "cannot read arrivals from nowhere.jsonl"),
        (("--json", "no/such/folder.json", *SIMULATOR), "no/such/folder.json cannot be written"),
        (("--prompt-tokens", "1000000", *SIMULATOR), "--max-tokens"),
        (("--json", "/dev/full", "--overwrite", "--server-logs", "/proc/x", *SIMULATOR), "--server-logs /proc/x: the"),
    ],
)
def test_bad_input_ends_with_code_2_and_one_clear_message(arguments: tuple[str, ...], message: str) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
    assert "Traceback" not in result.output
    assert list(Path().iterdir()) == []


def test_a_prompt_that_the_model_cannot_take_ends_it_at_the_first_setting() -> None:
    result = invoke("--inject", "1", "--prompt-tokens", "9000", "--mix", "0", *SIMULATOR)
    assert result.exit_code == 2
    assert "do not fit the model's context of 8,192; take a smaller --prompt-tokens" in " ".join(result.stderr.split())
    assert not any("FAILED" in line for line in result.stderr.splitlines())


def test_a_page_without_the_means_to_draw_is_refused_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = invoke("--html", "sweep.html", *SIMULATOR)
    assert result.exit_code == 1
    assert "pip install 'prefillwatch[charts]'" in result.stderr
    assert list(Path().iterdir()) == []


def test_other_results_in_the_file_are_not_touched() -> None:
    Path("sweep.json").write_text("{}")
    result = invoke(*SIMULATOR)
    assert result.exit_code == 2
    assert "sweep.json holds no results of a sweep" in result.stderr
    assert Path("sweep.json").read_text() == "{}"


def test_results_that_cannot_be_written_are_told_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run(sweep: Sweep) -> bool:
        sweep._store.results.settings.append(row("(as given)", 0.123, 1.0))
        raise ResultsError("cannot write results to sweep.json: No space left on device")

    monkeypatch.setattr(Sweep, "run", run)
    result = invoke(*SIMULATOR)
    assert result.exit_code == 1
    assert "123 ms" in result.stdout
    assert result.stderr.endswith("error: cannot write results to sweep.json: No space left on device\n")


def test_ctrl_c_stops_the_server_and_reports_what_there_is() -> None:
    command = [sys.executable, "-m", "prefillwatch", "sweep", "--mix", "0", "--warmup", "60s", "--server-logs", "logs"]
    with subprocess.Popen([*command, *SIMULATOR], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stdout is not None
        while "victims stream" not in (line := process.stderr.readline()):
            assert line, "it ended too early"
        url = Path("logs/01.log").read_text().split()[-1]
        os.kill(process.pid, signal.SIGINT)
        said, report = process.stderr.read(), process.stdout.read()
    assert process.returncode == 130
    assert "stopping the server; once more kills it" in said
    assert "[1/6] (as given): interrupted; its server is stopped" in said
    assert "No setting could be measured" in report
    assert not processes_with(url.rpartition("/")[2])


def processes_with(word: str) -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = process.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        found += [" ".join(words)] if word in words else []
    return found
