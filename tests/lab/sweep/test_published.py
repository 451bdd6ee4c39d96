"""The published experiment in virtual time: its table, its trap and its choice in the words of a sweep's report."""

from __future__ import annotations

import functools

import pytest
from tests.lab.probe.timelines import virtual_run

from prefillwatch.lab.probe.result import ProbeResult
from prefillwatch.lab.probe.settings import ProbeSettings
from prefillwatch.lab.sweep.choice import Slo
from prefillwatch.lab.sweep.figures import Outcome, ProbeFigures
from prefillwatch.lab.sweep.probing import probe_figures
from prefillwatch.lab.sweep.sentences import sentences
from prefillwatch.lab.sweep.store import Results
from prefillwatch.lab.sweep.terminal import report

ON, OFF = "--enable-chunked-prefill", "--no-enable-chunked-prefill"


@functools.cache
def probed(preset: str, inject: int, chunked: bool) -> ProbeFigures:
    result = ProbeResult("http://x", "m", ProbeSettings(inject=inject), started_at=0.0)
    result.runs.append(virtual_run(preset, inject, chunked=chunked))
    return probe_figures(result)


@functools.cache
def rows(preset: str = "article") -> tuple[Outcome, ...]:
    return tuple(
        Outcome(flags=(label,), label=label, probes=tuple(probed(preset, inject, label == ON) for inject in (3, 12)))
        for label in (ON, OFF)
    )


@functools.cache
def said(preset: str = "article", slo: Slo | None = None) -> str:
    return "\n".join(sentences(rows(preset), slo or Slo(), victims=6))


@pytest.mark.parametrize(("inject", "chunked", "overall", "window"), [
    (12, True, 0.345, 0.358),
    (12, False, 0.831, 0.832),
    (3, True, 0.325, 0.357),
    (3, False, 0.103, 0.825),
])  # fmt: skip
def test_the_published_table(inject: int, chunked: bool, overall: float, window: float) -> None:
    figures = probed("article", inject, chunked)
    assert figures.overall is not None
    assert figures.window is not None
    if (inject, chunked) == (3, False):
        assert figures.overall.p99_seconds < overall, "hidden among the calm ones"
    else:
        assert figures.overall.p99_seconds == pytest.approx(overall, rel=0.03)
    assert figures.window.p99_seconds == pytest.approx(window, rel=0.03)
    assert figures.overall.p50_seconds == pytest.approx(0.021, rel=0.03)


def test_twelve_prompts_in_words() -> None:
    assert (
        f"With 12 prompts at once: {ON} is better for the victims, by both populations: p99 over all tokens 345 ms "
        f"({ON}) against 832 ms ({OFF}), in the injection window 357 ms against 833 ms (2.3 × in the window)."
    ) in said()


def test_three_prompts_flip_the_sign_in_words() -> None:
    assert "With 3 prompts at once: The sign flips with the population: p99 over all tokens" in said()
    assert f"By all tokens {OFF} looks better, and it is not" in said()
    assert "With 12 prompts at once: The sign flips" not in said()


def test_the_median_is_said_to_tell_nothing() -> None:
    assert "The victims' median gap over a whole run is" in said()
    assert "it tells nothing of all this" in said()


def test_what_was_promised_names_the_setting_and_its_price() -> None:
    text = said(slo=Slo(gap_seconds=0.4))
    assert f"at most 400 ms in the injection window: {ON} keeps that (p99 of gaps 357 ms" in text
    assert f"{ON} costs, against the best of the others: first tokens after" in text
    assert f"with {OFF}." in text
    assert "no setting keeps that. The nearest is" in said(slo=Slo(gap_seconds=0.1))


def test_by_the_wrong_population_the_wrong_setting_would_keep_the_promise() -> None:
    light = [Outcome(flags=row.flags, label=row.label, probes=row.probes[:1]) for row in rows()]
    over_all, in_window = (
        "\n".join(sentences(light, Slo(gap_seconds=0.2, over=over), victims=6)) for over in ("overall", "window")
    )
    assert f"over all gaps of the probe: {OFF} keeps that" in over_all
    assert "in the injection window: no setting keeps that" in in_window


def test_a_model_too_small_to_show_it_is_called_that() -> None:
    assert "With 12 prompts at once: no victim stalled with any setting" in said("small")
    assert "takes such prompts in too fast for these flags to matter" in said("small")


def test_the_report_fits_a_terminal_and_never_parts_a_figure_from_its_unit() -> None:
    results = Results(command=("vllm", "serve", "m"), measurement={"victims": 6}, started_at=0.0, settings=list(rows()))
    lines = report(results, Slo(gap_seconds=0.4)).splitlines()
    assert max(map(len, lines)) <= 120
    assert lines[0] == "Sweep of vllm serve m"
    assert not any(line.lstrip().startswith(("ms", "s ", "% ", "× ")) for line in lines)
    assert f"* {ON}" in "\n".join(lines)
