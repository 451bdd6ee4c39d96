"""The report as a user sees it: terminal, JSON and page, made from runs in virtual time."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from tests.lab.probe.timelines import answer, run_of, steady, virtual_run

from prefillwatch.errors import ConfigError
from prefillwatch.lab.probe.page import to_html
from prefillwatch.lab.probe.result import ProbeResult
from prefillwatch.lab.probe.saved import read_side
from prefillwatch.lab.probe.sentences import Side
from prefillwatch.lab.probe.settings import ProbeSettings
from prefillwatch.lab.probe.terminal import report
from prefillwatch.lab.probe.timeline import Run


def result_of(*runs: Run, **settings: Any) -> ProbeResult:
    sizes = tuple(dict.fromkeys(run.prompt_tokens for run in runs)) or (6000,)
    probe = ProbeSettings(**{"inject": 3, "prompt_tokens": sizes, **settings})
    return ProbeResult("http://127.0.0.1:8000", "m", probe, 1_800_000_000.0, "tokenize", list(runs))


@pytest.fixture(scope="module")
def off() -> ProbeResult:
    return result_of(virtual_run("article", 3, chunked=False), label="chunked prefill off")


@pytest.fixture(scope="module")
def doses() -> ProbeResult:
    sizes = (500, 1000, 2000, 4000)
    return result_of(*(virtual_run("article", 1, prompt_tokens=size) for size in sizes), inject=1)


@pytest.fixture(scope="module")
def page(off: ProbeResult) -> str:
    return to_html(off, side_of(off))


def side_of(result: ProbeResult) -> Side:
    (dose,) = result.doses()
    return Side(result.settings.label, dose.overall, dose.window)


def test_the_two_populations_stand_side_by_side_with_their_sizes(off: ProbeResult) -> None:
    lines = report(off)
    assert lines[0] == "Probe of m at http://127.0.0.1:8000 (chunked prefill off)"
    assert lines[1] == "6 victims; 3 long prompts at once of 6,000 tokens (counted by the server)"
    assert lines[3].split() == ["victims'", "gaps", "p50", "p99", "max", "samples"]
    assert re.fullmatch(r"all tokens +21 ms +2\d\.\d ms +8[23]\d ms +2,\d\d\d", lines[4])
    assert re.fullmatch(r"injection window( +8[23]\d ms){3} +\d\d", lines[5])
    assert all(len(line) <= 118 for line in lines)


def test_what_the_figures_mean_is_said_verdict_first(off: ProbeResult) -> None:
    text = " ".join(" ".join(report(off)).split())
    assert text.index("This model on this machine shows the effect") < text.index("The two p99 disagree")
    assert "18 gaps of 6 of 6 victims were stalls" in text
    assert "The 3 long prompts got their first tokens after" in text


def test_several_sizes_are_a_table(doses: ProbeResult) -> None:
    lines = report(doses)
    rows = [line.split()[0] for line in lines if re.match(r"[\d,]+ +\d", line)]
    assert rows == ["500", "1,000", "2,000", "4,000"]
    assert any(line.startswith("With 4,000 tokens: ") for line in lines)
    assert "fitted to 4 sizes, R²" in " ".join(lines)


def test_repeats_show_their_range() -> None:
    runs = [virtual_run("article", 1, prompt_tokens=tokens) for tokens in (2000, 1900)]
    runs[1].prompt_tokens, runs[1].repeat = 2000, 1
    lines = report(result_of(*runs, inject=1, repeats=2))
    assert lines[1].endswith(", 2 times over")
    assert re.search(r"injection window .* ms \(\d+ ms to \d+ ms\)", lines[5])


def test_the_json_has_the_figures_of_the_largest_size_at_the_top(doses: ProbeResult) -> None:
    figures = json.loads(json.dumps(doses.to_json()))
    assert figures["prompt_tokens"] == 4000
    for population in ("overall", "window"):
        assert figures[population].keys() == {"p50_seconds", "p99_seconds", "max_seconds", "samples"}
        assert figures[population] == figures["doses"][-1][population]
    (prompt,) = figures["prompts"]
    assert prompt["prompt_tokens"] == 4000
    assert 0.5 < prompt["ttft_seconds"] < 0.7
    assert [dose["prompt_tokens"] for dose in figures["doses"]] == [500, 1000, 2000, 4000]
    assert figures["verdict"]["effect"] == "freezes"
    assert figures["response"]["cost"]["token_seconds"] == pytest.approx(94e-6, rel=0.2)
    assert (figures["complete"], figures["problem"]) == (True, "")
    assert figures["settings"]["stall"] == {"min_seconds": 0.1, "factor": 4.0, "always_seconds": 1.0}


def test_an_earlier_probe_is_compared_with_by_its_file(off: ProbeResult, tmp_path: Path) -> None:
    on = result_of(virtual_run("article", 3), label="chunked prefill on")
    file = tmp_path / "on.json"
    file.write_text(json.dumps(on.to_json()))
    before = read_side(file)
    assert before == side_of(on)
    assert "The sign flips with the population" in " ".join(report(off, before))


def test_a_file_of_something_else_is_no_earlier_probe(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    for text in ("[]", "nothing", '{"overall": 1}'):
        file.write_text(text)
        with pytest.raises(ConfigError, match=r"x\.json is no file that prefillwatch probe --json has written"):
            read_side(file)


def test_what_was_cut_short_says_so_and_shows_what_there_is(off: ProbeResult) -> None:
    cut = result_of(*off.runs)
    cut.problem = "it was interrupted"
    assert report(cut)[3] == "Not complete: it was interrupted. What was measured until then:"
    assert json.loads(json.dumps(cut.to_json()))["complete"] is False


def test_nothing_measured_is_said_and_no_error() -> None:
    nothing = result_of()
    nothing.problem = "it was interrupted"
    assert report(nothing)[-1] == "Nothing was measured: no long prompt was sent."
    assert "Nothing was measured" in to_html(nothing)
    figures = json.loads(json.dumps(nothing.to_json()))
    assert figures["overall"] == {"samples": 0, "p50_seconds": None, "p99_seconds": None, "max_seconds": None}
    assert figures["prompts"] == []


def test_a_run_without_a_single_gap_is_a_page_too() -> None:
    run = run_of(answer(0, [10]), injected=[answer(1000, [1100], prompt_tokens=6000)], ended_ms=2000)
    assert "No verdict: no victim streamed while a long prompt was taken in." in to_html(result_of(run, inject=1))


def test_trouble_is_named() -> None:
    failed = answer(1000, [], status=400, closed_ns=1_100_000_000)
    cached = answer(1000, [1100], prompt_tokens=6010, cached_tokens=3000)
    broken = answer(0, steady(1, 400), error="connection lost")
    run = run_of([broken, answer(410, steady(500, 1050)), answer(1060, steady(1200, 2000))], injected=[failed, cached])
    run.prompt_tokens = 6000
    said = " ".join(" ".join(report(result_of(run))).split())
    assert "25 % of the long prompts' tokens came from the prefix cache" in said
    assert "1 answer of victims ended inside an injection window" in said
    assert "1 victim lost an answer to an error" in said
    assert "Prompts were up to 10 tokens longer than asked for." in said
    assert "1 long prompt failed, the first with: HTTP 400." in said


def test_the_page_needs_nothing_but_itself(page: str, doses: ProbeResult) -> None:
    for html, charts in ((page, 2), (to_html(doses), 3)):
        assert html.count("<svg ") == charts
        assert not re.findall(r'(?:src|href)="(?!#)', html)
        assert "<script" not in html
        assert "prefers-color-scheme: dark" in html
        assert len(html) < 400_000


def test_clip_paths_of_one_chart_are_not_those_of_another(page: str) -> None:
    ids = [re.findall(r'<clipPath id="([^"]+)"', svg) for svg in re.findall(r"<svg .*?</svg>", page, re.DOTALL)]
    assert len(ids) == 2
    assert set(ids[0]).isdisjoint(ids[1])


def test_charts_say_what_they_show_and_take_the_colours_of_the_page(page: str) -> None:
    for svg in re.findall(r"<svg .*?</svg>", page, re.DOTALL):
        root = ET.fromstring(svg)
        assert root.get("role") == "img"
        assert root.get("aria-label")
        assert "var(--ink)" in svg
        assert not re.findall(r"#(?:1c2024|c8500f|fefefe)", svg)


def test_text_from_outside_cannot_become_markup() -> None:
    nasty = result_of(label="<b>&")
    nasty.problem = "</p><script>"
    html = to_html(nasty)
    assert "<script" not in html
    assert "<b>" not in html
    assert "&lt;b&gt;&amp;" in html
