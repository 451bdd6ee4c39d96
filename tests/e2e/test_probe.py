"""`prefillwatch probe` as a user runs it, against the simulated server in real time."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.processes import Command, Sidecar, Sim
from tests.kit.eventually import PATIENCE_S, eventually

QUICK = ("--warmup", "500ms", "--recovery", "500ms", "--prompt-tokens", "2000")


def ended(command: Command, limit_s: float = 3 * PATIENCE_S) -> int:
    command.process.wait(limit_s)
    return command.wait()


@pytest.fixture(scope="module")
def article(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[bool, int], tuple[str, dict[str, Any]]]:
    """The published experiment: (chunked, prompts) to the report and its figures. Three servers work side by side."""
    folder = tmp_path_factory.mktemp("article")
    with contextlib.ExitStack() as running:

        def kept(command: Any) -> Any:
            running.callback(command.kill)
            return command

        servers = {
            (True, 12): kept(Sim("--preset", "article")),
            (False, 12): kept(Sim("--preset", "article", "--no-enable-chunked-prefill")),
            (True, 3): kept(Sim("--preset", "article")),
        }
        probes = {which: kept(probe_article(server.url, which, folder)) for which, server in servers.items()}
        for probe in probes.values():
            assert ended(probe) == 0, probe.output
        earlier = ("--compare", str(folder / "True-3.json"))
        probes[False, 3] = kept(probe_article(servers[False, 12].url, (False, 3), folder, *earlier))
        assert ended(probes[False, 3]) == 0, probes[False, 3].output
    return {
        which: (" ".join(probe.output.split()), json.loads((folder / f"{which[0]}-{which[1]}.json").read_text()))
        for which, probe in probes.items()
    }


def probe_article(url: str, which: tuple[bool, int], folder: Path, *more: str) -> Command:
    chunked, prompts = which
    label = f"chunked prefill {'on' if chunked else 'off'}"
    # With a longer recovery a hiccup of this machine more or less cannot lift a stall over the p99 of everything.
    recovery = "5s" if prompts == 12 else "9s"
    options = ("--inject", str(prompts), "--label", label, "--recovery", recovery)
    return Command("probe", "--url", url, *options, "--json", str(folder / f"{chunked}-{prompts}.json"), *more)


def p99(figures: dict[str, Any], population: str) -> float:
    found: float = figures[population]["p99_seconds"]
    return found


def test_twelve_prompts_give_the_published_table(article: dict[Any, tuple[str, dict[str, Any]]]) -> None:
    (_, on), (report, off) = article[True, 12], article[False, 12]
    assert p99(on, "overall") == pytest.approx(0.345, rel=0.15)
    assert p99(off, "overall") == pytest.approx(0.831, rel=0.1)
    assert on["overall"]["p50_seconds"] == pytest.approx(0.0213, rel=0.2)
    assert "Both populations tell the same" in report
    assert "This model on this machine shows the effect" in report
    assert len(off["prompts"]) == 12
    assert {prompt["prompt_tokens"] for prompt in off["prompts"]} == {6000}


def test_three_prompts_flip_the_sign_and_the_report_says_so(article: dict[Any, tuple[str, dict[str, Any]]]) -> None:
    (_, on), (report, off) = article[True, 3], article[False, 3]
    assert p99(off, "overall") < p99(on, "overall")
    assert p99(off, "window") > 2 * p99(on, "window")
    assert "The two p99 disagree" in report
    assert "The sign flips with the population" in report
    assert "By all tokens chunked prefill off looks better, and it is not" in report


def test_ctrl_c_reports_what_was_measured_and_writes_the_files(
    sim: Sim, start: Callable[..., Any], tmp_path: Path
) -> None:
    files = ("--json", str(tmp_path / "probe.json"), "--html", str(tmp_path / "probe.html"))
    probe: Command = start(Command, "probe", "--url", sim.url, *QUICK, "--inject", "2", "--recovery", "5m", *files)
    eventually(lambda: "taken in after" in probe.output)
    assert probe.stop(2) == 130
    assert "Not complete: it was interrupted. What was measured until then:" in probe.output
    assert "injection window" in probe.output
    assert "Traceback" not in probe.output
    figures = json.loads((tmp_path / "probe.json").read_text())
    assert not figures["complete"]
    assert figures["window"]["samples"] > 0
    assert (tmp_path / "probe.html").read_text().endswith("</html>\n")


def test_what_will_be_sent_at_most_is_told_before_anything_is(sim: Sim, start: Callable[..., Any]) -> None:
    probe: Command = start(Command, "probe", "--url", sim.url, *QUICK, "--inject", "1")
    assert probe.wait() == 0
    lines = probe.output.splitlines()
    assert re.match(r"at most [\d,]+ tokens \(.+\), between [\d.]+ s and [\d.]+ min", lines[1])
    assert lines[2] == "getting to know the server"


def test_it_works_through_a_sidecar_too(serve: Callable[..., Sidecar], start: Callable[..., Any]) -> None:
    sidecar = serve()
    probe: Command = start(
        Command, "probe", "--url", sidecar.url, *QUICK, "--prompt-tokens", "100,2000", "--repeats", "1"
    )
    assert ended(probe) == 0, probe.output
    assert "(counted by the server)" in probe.output


def test_without_matplotlib_only_the_page_is_refused_and_before_anything_is_sent(sim: Sim, tmp_path: Path) -> None:
    (tmp_path / "matplotlib.py").write_text("raise ImportError\n")
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    command = [sys.executable, "-m", "prefillwatch", "probe", "--url", sim.url, "--html", str(tmp_path / "x.html")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 1
    assert "pip install 'prefillwatch[charts]'" in done.stderr
    assert "at most" not in done.stderr
