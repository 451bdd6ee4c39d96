"""Streams that pause, made of figures."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.doctor.making import gaps, histogram
from tests.doctor.test_trust import TRUST

from prefillwatch.contract.causes import FREEZE_CAUSES, PREFILL
from prefillwatch.doctor.figures import Culprit, Figures, Incident, Moment, Stalls
from prefillwatch.doctor.finding import Finding, Seen, Sort
from prefillwatch.doctor.histogram import Histogram
from prefillwatch.doctor.pauses import other_pauses, prompt_pauses, slow_for_all

TWO = (Moment(decoding=2, running=2),)


def sidecar(beside: dict[str, Histogram], **stalls: tuple[int, float]) -> Figures:
    total = Histogram((), (0.0,))
    for each in beside.values():
        total = each if not total.bounds else total.plus(each)
    told = {cause: Stalls(*pair) for cause, pair in stalls.items()}
    return Figures(server="prefillwatch", gaps=total, gaps_beside=beside, stalls=told, moments=TWO, trust=TRUST)


def server(gap: Histogram | None, steps: tuple[float, ...] = ()) -> Figures:
    tokens = histogram(steps, (128.0, 512.0, 2048.0)) if steps else None
    return Figures(server="vllm", gaps=gap, step_tokens=tokens, moments=TWO)


def test_a_single_stall_is_seen_however_many_calm_gaps_there_are() -> None:
    found = prompt_pauses(sidecar({"none": gaps((10_000, 0.02)), "2k-8k": gaps((1, 0.9))}, prefill=(1, 0.88)))
    assert found.seen is Seen.YES
    assert "1 stall cost the readers 880 ms, 0.4 % of their time" in found.words
    assert found.words.endswith("The p99 over all gaps, ~20 ms (15 ms to 20 ms), does not show it.")


def test_stalls_are_seen_in_few_gaps_too() -> None:
    assert prompt_pauses(sidecar({"2k-8k": gaps((3, 0.9))}, prefill=(3, 2.6))).seen is Seen.YES


def test_too_few_gaps_for_a_no() -> None:
    found = prompt_pauses(sidecar({"none": gaps((100, 0.02)), "2k-8k": gaps((50, 0.02))}))
    assert found.seen is Seen.UNKNOWN
    assert found.words == "Too few tokens to tell: 150 gaps, and 200 are needed."


def test_gaps_beside_short_prompts_say_nothing_of_long_ones() -> None:
    assert prompt_pauses(sidecar({"none": gaps((500, 0.02)), "0-512": gaps((500, 0.02))})).seen is Seen.UNKNOWN
    assert prompt_pauses(sidecar({"none": gaps((500, 0.02)), "512-2k": gaps((500, 0.02))})).seen is Seen.NO


def test_totals_and_a_worst_gap_that_they_do_not_count_are_not_in_one_sentence() -> None:
    told = sidecar({"2k-8k": gaps((6, 0.15))}, prefill=(6, 0.711))
    earlier = Incident("freeze", "prefill", 7, 0.947, 0.02, (), whole=False)
    within = Incident("freeze", "prefill", 3, 0.16, 0.02, ())
    words = prompt_pauses(replace(told, incidents=(earlier,))).words
    assert "cost the readers 711 ms, 79 % of their time. In an incident that is not all within" in words
    assert "the worst gap was 947 ms where 20 ms is usual, of 7 streams at once." in words
    found = prompt_pauses(replace(told, incidents=(earlier, within)))
    assert "79 % of their time; the worst gap was 160 ms where 20 ms is usual, of 3 streams at once." in found.words
    assert found.numbers["worst_gap_seconds"] == 0.16


def test_culprits_are_named_once_and_bystanders_are_not() -> None:
    incident = Incident("freeze", "prefill", 6, 0.9, 0.02, (Culprit(6000, 0.97, "big"), Culprit(30, 0.03, "small")))
    told = sidecar({"2k-8k": gaps((6, 0.9))}, prefill=(6, 5.0))
    found = prompt_pauses(replace(told, incidents=(incident, incident)))
    assert "To blame: 1 prompt, the largest of 6,000 tokens." in found.words
    assert found.aside == "The largest was request big."
    assert "big" not in found.words
    assert found.numbers["incidents"] == 2


def test_an_estimated_size_is_about() -> None:
    incident = Incident("freeze", "prefill", 6, 0.9, None, (Culprit(6000, 1.0, estimated=True),))
    found = prompt_pauses(replace(sidecar({"2k-8k": gaps((6, 0.9))}, prefill=(6, 5.0)), incidents=(incident,)))
    assert "the largest of about 6,000 tokens." in found.words


@pytest.mark.parametrize("cause", [name for name in FREEZE_CAUSES if name != PREFILL])
def test_other_causes_are_told_apart(cause: str) -> None:
    figures = sidecar({"none": gaps((500, 0.02))}, **{cause: (7, 3.0)})
    (found,) = other_pauses(figures)
    assert found.symptom == f"pauses_{cause}"
    assert found.numbers["stalls"] == 7
    assert prompt_pauses(figures).seen is not Seen.YES


def test_clients_that_do_not_read_are_no_trouble() -> None:
    (found,) = other_pauses(sidecar({"none": gaps((500, 0.02))}, client=(7, 3.0)))
    assert found.sort is Sort.NOTE
    assert not found.is_trouble


def test_a_slow_engine_is_no_interference() -> None:
    (found,) = slow_for_all(sidecar({"none": gaps((500, 0.35)), "2k-8k": gaps((500, 0.35))}))
    assert "That is no interference" in found.words
    assert not list(slow_for_all(sidecar({"none": gaps((500, 0.02)), "2k-8k": gaps((500, 0.9))})))
    assert not list(slow_for_all(sidecar({"none": gaps((50, 0.35))})))


# --- Servers that stand alone -------------------------------------------------------------------------------------


def test_pauses_in_a_histogram() -> None:
    found = prompt_pauses(server(gaps((1000, 0.02), (6, 0.9)), steps=(*(8.0,) * 1000, 6000.0)))
    assert found.seen is Seen.YES
    assert found.title == "Streams pause"
    assert "6 of 1,006 gaps were longer than 200 ms, the longest 750 ms to 1 s" in found.words
    assert "1 of 1,001 engine steps carried more than 512 tokens" in found.words
    assert found.unknown


def test_pauses_without_long_steps_are_not_put_down_to_prompts() -> None:
    found = prompt_pauses(server(gaps((1000, 0.02), (6, 0.9)), steps=(8.0,) * 1000))
    assert found.seen is Seen.YES
    assert "long prompts did not do it" in found.words
    assert not found.remedy


def test_where_steps_are_not_told_neither_is_what_was_in_them() -> None:
    assert "engine step" not in prompt_pauses(server(gaps((1000, 0.02), (6, 0.9)))).words


def test_what_is_slow_for_everybody_is_no_pause() -> None:
    assert prompt_pauses(server(gaps((1000, 0.3)), steps=(6000.0,) * 9)).seen is Seen.NO


def test_a_second_of_silence_is_a_pause_on_the_slowest_engine() -> None:
    assert prompt_pauses(server(gaps((1000, 0.45), (1, 1.2)), steps=(6000.0,))).seen is Seen.YES


def coarse(*groups: tuple[int, float]) -> Histogram:
    return histogram((seconds for count, seconds in groups for _ in range(count)), (0.025, 0.1))


def test_a_histogram_that_ends_below_the_limit_cannot_say_that_nothing_was_above_it() -> None:
    found = prompt_pauses(server(coarse((1000, 0.02), (400, 0.12))))
    assert found.seen is Seen.UNKNOWN
    assert (
        found.words == "400 of 1,400 gaps were longer than 100 ms, where this histogram ends; how long is not reported."
    )
    assert found.numbers["pauses"] is None
    assert prompt_pauses(server(coarse((1000, 0.02)))).seen is Seen.NO  # all of them lie below its end


def test_their_mean_tells_that_some_were_long_all_the_same() -> None:
    found = prompt_pauses(server(coarse((1500, 0.09), (2700, 1.1))))
    assert found.seen is Seen.YES
    assert found.words.startswith("2,700 of 4,200 gaps were longer than 100 ms, where this histogram ends, and took ")


def test_a_plugin_with_coarse_buckets_shows_nothing_either() -> None:
    found = with_plugin({"none": coarse((1000, 0.05)), "2k-8k": coarse((10, 0.05), (30, 0.15))})
    assert found.seen is Seen.UNKNOWN


@pytest.mark.parametrize(
    ("figures", "words"),
    [
        (server(gaps((100, 0.02)), steps=(6000.0,)), "Too few tokens to tell: 100 gaps"),
        (server(gaps((1000, 0.02)), steps=(8.0,)), "no long prompt came"),
        (replace(server(gaps((1000, 0.02))), moments=(Moment(running=1),)), "Only one stream at a time"),
        (server(None), "reports nothing of the time between tokens"),
    ],
)
def test_where_it_cannot_be_told(figures: Figures, words: str) -> None:
    found = prompt_pauses(figures)
    assert found.seen is Seen.UNKNOWN
    assert words in found.words


# --- With our plugin ----------------------------------------------------------------------------------------------


def with_plugin(beside: dict[str, Histogram]) -> Finding:
    return prompt_pauses(Figures(server="vllm", gaps=gaps((9, 0.02)), gaps_beside=beside, by_step=True, moments=TWO))


def test_the_plugin_tells_what_rode_in_the_step() -> None:
    found = with_plugin({"none": gaps((900, 0.02)), "512-2k": gaps((40, 0.3)), "2k-8k": gaps((20, 0.9))})
    assert found.seen is Seen.YES
    assert "60 of 60 gaps with prompts in their engine step were above 100 ms" in found.words
    assert "p99 gap by prompt tokens in the step: no prompt 20 ms" in found.words
    assert found.unknown == "which requests they were"


def test_the_plugin_shows_that_prompts_do_no_harm() -> None:
    assert with_plugin({"none": gaps((900, 0.02)), "2k-8k": gaps((60, 0.03))}).seen is Seen.NO


def test_few_steps_with_prompts_show_nothing() -> None:
    assert with_plugin({"none": gaps((900, 0.02)), "2k-8k": gaps((5, 0.9))}).seen is Seen.UNKNOWN


def test_steps_of_unknown_content_leave_it_at_guessing() -> None:
    assert with_plugin({"unknown": gaps((900, 0.02))}).words.startswith("Too few tokens to tell: 9 gaps")
