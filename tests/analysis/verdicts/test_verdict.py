"""The rules on single cases, and which of them goes first."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from prefillwatch.analysis.verdicts.verdict import Case, judge, weigh
from prefillwatch.contract.causes import FREEZE_CAUSES


def case(**facts: Any) -> Case:
    """A common silence of one second at 20 ms per token, of which nothing is known."""
    return Case(**({"gap": 1.0, "excess": 0.98, "baseline": 0.02, "common_silence": 1.0, "withheld": 49.0} | facts))


PREFILL = {"prefill_tokens": 6000, "prefill_possible": 1.6, "cost_known": True}
LEFT_OUT = {"common_silence": 0.03, "other_steps": 40}


def test_nothing_known_is_unattributed() -> None:
    assert judge(case()) == "unattributed"


@pytest.mark.parametrize("possible", [0.98, 1.6, math.inf])
def test_a_prompt_that_can_have_taken_so_long(possible: float) -> None:
    assert judge(case(**PREFILL | {"prefill_possible": possible})) == "prefill"


@pytest.mark.parametrize(
    "sign", [{"recomputed_tokens": 300}, {"preemptions": 1.0, "kv_usage": 1.0, "gauges_known": True}]
)
def test_who_is_only_supposed_to_have_been_in_service_yields_to_signs_of_preemption(sign: dict[str, Any]) -> None:
    assert judge(case(**PREFILL, **sign)) == "prefill"
    assert judge(case(**PREFILL, **sign, prefill_guessed=True)) == "preemption"


def test_a_prompt_that_cannot() -> None:
    assert judge(case(**PREFILL | {"prefill_tokens": 300, "prefill_possible": 0.12})) == "unattributed"


@pytest.mark.parametrize(
    ("facts", "cause"),
    [
        ({"caught_up": 45.0}, "frontend"),
        ({"by_text": 45.0}, "frontend"),
        ({"caught_up": 45.0, "events": 46, "burst_before": 50}, "buffering"),
        ({"caught_up": 45.0, "events": 46} | LEFT_OUT, "buffering"),
        ({"by_text": 45.0} | LEFT_OUT, "unattributed"),
        ({"by_text": 45.0, "streams": 2} | LEFT_OUT, "frontend"),
        ({"blocked": 0.8}, "client"),
        ({"own_lag": 0.6}, "unattributed"),
        ({"records_lost": True}, "unattributed"),
        ({"recomputed_tokens": 7000}, "preemption"),
        ({"preemptions": 1.0, "gauges_known": True} | LEFT_OUT, "preemption"),
        ({"kv_usage": 0.99, "gauges_known": True} | LEFT_OUT, "preemption"),
        (LEFT_OUT, "preemption"),
        ({"kv_usage": 0.4, "gauges_known": True} | LEFT_OUT, "unattributed"),
    ],
)
def test_a_prompt_in_service_does_not_outweigh_better_evidence(facts: dict[str, Any], cause: str) -> None:
    assert judge(case(**PREFILL | facts)) == cause


@pytest.mark.parametrize("caught_up", [0.0, 3.0, 20.0])
def test_a_few_tokens_in_a_row_are_no_bunch(caught_up: float) -> None:
    assert judge(case(**PREFILL, caught_up=caught_up)) == "prefill"


def test_one_long_word_of_a_single_stream_is_no_bunch() -> None:
    short = {"gap": 0.1, "excess": 0.08, "common_silence": 0.1, "withheld": 4.0, "by_text": 3.0}
    assert judge(case(**PREFILL | short)) == "prefill"
    assert judge(case(**PREFILL | short | {"streams": 6})) == "frontend"


def test_streams_of_another_engine_say_nothing_about_this_one() -> None:
    assert judge(case(**PREFILL | LEFT_OUT, several_engines=True)) == "prefill"


def test_a_count_of_preemptions_that_stands_still_is_evidence_against_one() -> None:
    full = {"kv_usage": 0.99, "gauges_known": True} | LEFT_OUT
    assert judge(case(**full)) == "preemption"  # not counted here
    assert judge(case(**full, preemptions_counted=True)) == "unattributed"
    assert judge(case(**full, preemptions=1.0, preemptions_counted=True)) == "preemption"
    assert case(**full).evidence()["preemptions"] is None
    assert case(**full, preemptions_counted=True).evidence()["preemptions"] == 0.0


def test_preemption_without_anybody_else_to_show_it() -> None:
    full = {"preemptions": 2.0, "kv_usage": 1.0, "gauges_known": True}
    assert judge(case(**full)) == "preemption"
    assert judge(case(**full | {"kv_usage": 0.3})) == "unattributed"
    assert judge(case(**full | {"kv_usage": None})) == "preemption"


@pytest.mark.parametrize("sign", ["answered_meanwhile", "prompts_stood_still"])
def test_a_pause_needs_a_sign_that_only_the_engine_stood_still(sign: str) -> None:
    assert judge(case(**{sign: True})) == "engine_pause"
    assert judge(case(**PREFILL, **{sign: True})) == "prefill"


def test_every_cause_can_be_reached_and_no_other() -> None:
    cases = [
        case(),
        case(**PREFILL),
        case(caught_up=45.0),
        case(caught_up=45.0, events=46, burst_before=46),
        case(blocked=1.0),
        case(recomputed_tokens=10),
        case(answered_meanwhile=True),
    ]
    assert {judge(each) for each in cases} == set(FREEZE_CAUSES)


def test_evidence_is_plain_json() -> None:
    evidence = case(**PREFILL | {"prefill_possible": math.inf, "cost_known": False}).evidence()
    assert json.loads(json.dumps(evidence, allow_nan=False)) == evidence
    assert evidence["prefill_possible_seconds"] is None


BUNCH = {"caught_up": 45.0}


@pytest.mark.parametrize(
    ("facts", "cause"),
    [
        (BUNCH | {"events": 4, "burst_before": 4}, "buffering"),
        (BUNCH | {"events": 3, "burst_before": 3}, "frontend"),
        (BUNCH | {"events": 10, "burst_before": 20}, "buffering"),
        (BUNCH | {"events": 10, "burst_before": 21}, "frontend"),
        ({"withheld": 200.0, "caught_up": 32.0}, "frontend"),
        ({"withheld": 200.0, "caught_up": 31.0}, "prefill"),
        ({"withheld": 2.0, "caught_up": 2.0}, "frontend"),
        ({"withheld": 2.0, "caught_up": 1.9}, "prefill"),
        ({"withheld": 4.0, "by_text": 4.0}, "frontend"),
        ({"withheld": 4.0, "by_text": 3.9}, "prefill"),
        ({"withheld": 4.0, "by_text": 3.0, "streams": 2}, "prefill"),
        ({"withheld": 4.0, "by_text": 3.0, "streams": 3}, "frontend"),
        (LEFT_OUT | {"gauges_known": True, "kv_usage": 0.95}, "preemption"),
        (LEFT_OUT | {"gauges_known": True, "kv_usage": 0.94}, "unattributed"),
    ],
)
def test_just_enough_of_a_sign_and_just_too_little(facts: dict[str, Any], cause: str) -> None:
    assert judge(case(**PREFILL | facts)) == cause


@pytest.mark.parametrize(
    ("facts", "cause"),
    [
        ({"answered_meanwhile": True}, "engine_pause"),
        ({"page_silent": True}, "engine_pause"),
        ({"page_silent": True, "by_text": 6.0}, "frontend"),
        ({"answered_meanwhile": True, "unread_work": True}, "unattributed"),
        ({"answered_meanwhile": True, "prompts_stood_still": True, "departed": True}, "unattributed"),
        ({"answered_meanwhile": True, "more_running": True}, "unattributed"),
        ({"answered_meanwhile": True, "pace_known": False}, "unattributed"),
        ({"answered_meanwhile": True, "hole_near": True}, "unattributed"),
        ({"answered_meanwhile": True, "several_engines": True}, "unattributed"),
        ({"asked_for": "asleep", "asked_for_part": 0.6} | PREFILL, "engine_pause"),
        ({"bursts": 2} | PREFILL, "buffering"),
        ({"bursts": 1} | PREFILL, "prefill"),
        ({"pace_known": False} | PREFILL, "unattributed"),
        ({"pace_known": False, "caught_up": 45.0}, "unattributed"),
        ({"page_silent": True, "page_answers_in_prefill": True} | PREFILL, "unattributed"),
        ({"page_silent": True, "ends_at_first_token": True} | PREFILL, "prefill"),
    ],
)
def test_evidence_is_weighed(facts: dict[str, Any], cause: str) -> None:
    assert judge(case(**facts)) == cause


def test_the_strength_goes_with_the_evidence() -> None:
    weak = weigh(case(answered_meanwhile=True))
    strong = weigh(case(answered_meanwhile=True, prompts_stood_still=True))
    assert 0.5 <= weak.strength < strong.strength <= 1.0
    assert weigh(case()).strength < 0.5
