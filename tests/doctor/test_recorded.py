"""What is said of recorded servers: simulated ones in all their states, and the sidecars in front of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from prefillwatch.doctor.examine import Report, examine
from prefillwatch.doctor.finding import Finding, Seen
from prefillwatch.doctor.look import Look
from prefillwatch.doctor.render import render

LookAt = Callable[[str, str], Look]


def found(report: Report, symptom: str) -> Finding:
    return next(finding for finding in report.findings if finding.symptom == symptom)


def seen(report: Report) -> set[str]:
    return {finding.symptom for finding in report.findings if finding.is_trouble}


def test_prompts_in_one_piece_freeze_readers(look: LookAt) -> None:
    report = examine(look("unchunked", "sidecar"))
    assert seen(report) == {"streams_pause"}
    assert report.exit_code == 1
    pauses = report.findings[0]
    assert pauses.symptom == "streams_pause"
    assert pauses.numbers["stalls"] == 29
    assert pauses.numbers["culprits"] == 6
    assert pauses.numbers["largest_culprit_tokens"] == 6145
    assert "To blame: 6 prompts, the largest of 6,145 tokens." in pauses.words
    assert pauses.aside.startswith("The largest was request chatcmpl-")
    assert "The p99 over all gaps" not in pauses.words
    assert "chatcmpl" not in str(report.document())
    assert "no prompt 34 ms, 0-512 98 ms, 2k-8k 853 ms" in pauses.words
    assert "--enable-chunked-prefill, --max-num-batched-tokens 1264 keeps gaps under 200 ms" in pauses.remedy
    assert found(report, "whole_prompts").seen is Seen.YES


def test_prompts_in_chunks_slow_readers_down(look: LookAt) -> None:
    report = examine(look("chunked", "sidecar"))
    pauses = found(report, "streams_pause")
    assert pauses.seen is Seen.YES
    assert "where 21.4 ms is usual" in pauses.words
    assert pauses.remedy.startswith("--max-num-batched-tokens 1216 keeps gaps under 200 ms")
    assert not any(finding.symptom == "whole_prompts" for finding in report.findings)


@pytest.mark.parametrize("scenario", ["unchunked", "chunked"])
def test_from_the_servers_own_page_pauses_are_seen_and_their_causes_are_not(look: LookAt, scenario: str) -> None:
    report = examine(look(scenario, "server"))
    pauses = found(report, "streams_pause")
    assert seen(report) == {"streams_pause"}
    assert pauses.unknown == "whether long prompts made these very gaps, and whose"
    assert "engine steps carried more than 512 tokens, as those with long prompts do" in pauses.words
    assert report.would_tell.startswith("prefillwatch in front of it does")


def test_prompts_that_do_no_harm(look: LookAt) -> None:
    report = examine(look("harmless", "sidecar"))
    assert seen(report) == set()
    assert report.exit_code == 0
    assert found(report, "streams_pause").seen is Seen.NO
    assert "none of them was a stall" in found(report, "streams_pause").words
    assert found(examine(look("harmless", "server")), "streams_pause").seen is Seen.NO


def test_without_long_prompts_nothing_is_said_of_their_effect(look: LookAt) -> None:
    report = examine(look("healthy", "sidecar"))
    assert report.exit_code == 0
    assert found(report, "streams_pause").seen is Seen.UNKNOWN
    assert "so it could not show" in found(report, "streams_pause").words
    assert found(report, "single_user").seen is Seen.NO


def test_a_full_cache(look: LookAt) -> None:
    report = examine(look("preemption", "sidecar"))
    assert seen(report) >= {"frozen_now", "pauses_preemption", "kv_nearly_full", "queue_saturation"}
    assert "streams_pause" not in seen(report)
    assert report.findings[0].symptom == "frozen_now"
    assert "leave --max-num-batched-tokens alone" in found(report, "pauses_preemption").remedy
    alone = examine(look("preemption", "server"))
    assert seen(alone) == {"kv_nearly_full", "queue_saturation", "streams_pause"}
    assert "long prompts did not do it" in found(alone, "streams_pause").words
    assert found(alone, "streams_pause").unknown == "what did"


def test_a_queue(look: LookAt) -> None:
    report = examine(look("queue", "sidecar"))
    assert seen(report) == {"queue_saturation", "late_first_tokens"}
    late = found(report, "late_first_tokens")
    assert "7 of 11 prompts of 0-512 tokens waited longer than 2.5 s" in late.words
    assert late.remedy.startswith("they waited for their turn")
    assert seen(examine(look("queue", "server"))) == {"queue_saturation", "late_first_tokens"}


@pytest.mark.parametrize("kind", ["sidecar", "server"])
def test_a_single_reader_shows_nothing_and_that_is_said(look: LookAt, kind: str) -> None:
    report = examine(look("single", kind))
    assert report.exit_code == 0
    single = found(report, "single_user")
    assert single.seen is Seen.YES
    assert "the effect cannot show" in single.words
    assert found(report, "streams_pause").words == "Only one stream at a time was seen, so it could not show."


@pytest.mark.parametrize("kind", ["sidecar", "server"])
def test_nobody_there(look: LookAt, kind: str) -> None:
    report = examine(look("idle", kind))
    assert report.exit_code == 0
    assert report.findings[0].symptom == "idle"
    assert not any(finding.seen is Seen.YES for finding in report.findings[1:])


def test_a_fresh_start_has_nothing_to_compare_with(look: LookAt) -> None:
    report = examine(look("fresh", "sidecar"))
    assert report.exit_code == 0
    assert "too short to compare with the time before" in found(report, "throughput_for_tail").words
    longer = examine(replace(look("fresh", "sidecar"), seconds=90.0))
    assert "Too few gaps to compare: 10 before" in found(longer, "throughput_for_tail").words


@pytest.mark.parametrize("kind", ["sidecar", "server"])
def test_a_restart_between_the_looks_counts_from_it(look: LookAt, kind: str) -> None:
    busy, fresh = look("unchunked", kind), look("fresh", kind)
    report = examine(replace(fresh, first=busy.last))
    assert found(report, "restarted").seen is Seen.YES
    assert report.figures.gaps is not None
    assert 800 < report.figures.gap_count < 900
    comparison = "restarted while watching" if kind == "sidecar" else "no rate to compare with"
    assert comparison in found(report, "throughput_for_tail").words


@pytest.mark.parametrize("kind", ["sidecar", "server"])
def test_one_look_tells_totals_since_the_start(look: LookAt, kind: str) -> None:
    watched = look("unchunked", kind)
    report = examine(Look(watched.last, moments=watched.moments[-1:], advice=watched.advice))
    assert found(report, "streams_pause").seen is Seen.YES
    assert report.document()["watched_seconds"] is None
    comparison = "--watch 5m" if kind == "sidecar" else "no rate to compare with"
    assert comparison in found(report, "throughput_for_tail").words


def test_a_server_that_went_away_is_a_fault(look: LookAt) -> None:
    report = examine(replace(look("healthy", "server"), lost="no answer"))
    assert seen(report) == {"lost"}
    assert report.exit_code == 1


def test_measurements_of_a_sidecar_leave_nothing_open(look: LookAt) -> None:
    measured = {each.name: each for each in examine(look("unchunked", "sidecar")).measurements}
    assert list(measured) == [
        "prompt lengths",
        "first token by size",
        "gaps between tokens",
        "queue and prefill",
        "throughput",
        "KV cache",
    ]
    assert not any(each.unknown for each in measured.values())
    assert measured["gaps between tokens"].numbers["samples"] == 1814
    assert "longest 853 ms" in measured["gaps between tokens"].words
    assert "5-8: 158/s" in measured["throughput"].words


def test_measurements_of_a_server_say_what_they_lack(look: LookAt) -> None:
    measured = {each.name: each for each in examine(look("unchunked", "server")).measurements}
    assert measured["first token by size"].unknown == "by prompt size"
    assert measured["throughput"].unknown == "at each concurrency"
    assert measured["gaps between tokens"].numbers["p99_at_least_seconds"] == 0.5
    assert measured["gaps between tokens"].numbers["p99_at_most_seconds"] == 0.75


def test_our_plugin_in_a_real_vllm_tells_what_rode_in_the_steps(look: LookAt) -> None:
    """Recorded of vLLM 0.32 on a CPU: four readers, and long prompts three at a time."""
    report = examine(look("plugin", "server"))
    assert seen(report) == {"streams_pause"}
    pauses = report.findings[0]
    assert pauses.words == (
        "73 of 73 gaps with prompts in their engine step were above 100 ms. p99 gap by prompt tokens in the step: "
        "no prompt 72 ms, 1-512 397 ms, 512-2k 4.7 s."
    )
    assert pauses.unknown == "which requests they were"
    assert pauses.numbers["gaps_beside_512-2k"] == 57
    measured = {each.name: each for each in report.measurements}
    assert "2,100 gaps; p99 beside prompts ~4.6 s, without ~72 ms" in measured["gaps between tokens"].words
    assert report.would_tell == "prefillwatch in front of it does (prefillwatch serve --upstream URL)"


def test_the_plugin_is_advised_where_it_could_be(look: LookAt) -> None:
    bare, told = examine(look("healthy", "server")), examine(look("plugin", "server"))
    assert "plugin inside vLLM" in bare.would_tell
    assert "plugin" not in told.would_tell
    headlines = [next(render(report, "URL", lambda text, _: text, 200)) for report in (bare, told)]
    assert "vLLM's own metrics, watched" in headlines[0]
    assert "vLLM's own metrics, with our plugin in it, watched" in headlines[1]
