"""The bounds of a probe: told before it, and refused where they are beyond what is allowed."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from prefillwatch.errors import ConfigError
from prefillwatch.lab.arrivals import Arrival, Schedule
from prefillwatch.lab.probe.settings import ProbeSettings, fitted, plan
from prefillwatch.lab.prompts import learning_tokens

DOSES = ProbeSettings(inject=2, prompt_tokens=(500, 1000), repeats=3, answer_tokens=10, victims=4, victim_tokens=2000)


def test_the_bound_counts_prompts_answers_victims_and_what_it_takes_to_know_the_server() -> None:
    planned = plan(DOSES)
    assert planned.long_prompt_tokens == 3 * 2 * (510 + 1010)
    assert planned.victim_tokens == 6 * 4 * 2000
    assert planned.learning_tokens == learning_tokens() + 1001
    assert planned.tokens == planned.long_prompt_tokens + planned.victim_tokens + planned.learning_tokens


def test_the_shortest_time_is_that_of_warm_up_and_recovery() -> None:
    planned = plan(DOSES)
    assert planned.shortest_seconds == 6 * (3 + 5)
    assert planned.longest_seconds == DOSES.max_seconds


def test_the_bound_in_words() -> None:
    said = plan(DOSES).sentence()
    assert said.startswith(
        f"at most {plan(DOSES).tokens:,} tokens (9,120 of long prompts and their answers, 48,000 of victims"
    )
    assert said.endswith("between 48 s and 15 min")


def test_recorded_arrivals_bring_their_own_tokens_and_time() -> None:
    arrivals = Schedule((Arrival(0, 100, 5), Arrival(30, 900, 7)))
    settings = ProbeSettings().of_arrivals(arrivals)
    assert (settings.inject, settings.prompt_tokens) == (2, (900,))
    assert plan(settings).long_prompt_tokens == 512 + 5 + 900 + 7, "a chat template may be longer than a prompt was"
    assert plan(settings).shortest_seconds == 38


def test_recorded_arrivals_that_the_model_cannot_take_are_left_out_and_counted() -> None:
    settings = ProbeSettings().of_arrivals(Schedule((Arrival(0, 100, 5), Arrival(30, 900, 7))))
    assert fitted(settings, 907) == settings
    left = fitted(settings, 906)
    assert (left.inject, left.prompt_tokens, left.arrivals_left_out) == (1, (100,), 1)
    with pytest.raises(ConfigError, match="none of the recorded arrivals fits the model's context of 104"):
        fitted(settings, 104)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"max_tokens": plan(DOSES).tokens - 1},
            f"may send up to {plan(DOSES).tokens:,} tokens, more than --max-tokens",
        ),
        ({"max_seconds": 47.0}, "takes at least 48 s, more than --max-time 47 s allows"),
    ],
)
def test_beyond_what_is_allowed(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        plan(dataclasses.replace(DOSES, **changes))
    assert words in str(raised.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"victims": 0},
        {"inject": 0},
        {"repeats": 0},
        {"prompt_tokens": ()},
        {"prompt_tokens": (500, 0)},
        {"victim_tokens": 300},
        {"warmup_seconds": 0.0},
        {"max_seconds": float("inf")},
    ],
)
def test_settings_without_sense(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(changes))):
        dataclasses.replace(DOSES, **changes)
