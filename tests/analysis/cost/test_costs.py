"""One object answers what prompts and steps cost. Times in milliseconds; a token costs 0.1 ms."""

from __future__ import annotations

import math

import pytest

from prefillwatch.analysis.cost import ClearStep, Costs, KnownCost, PromptWork, Server, StepLaw, StepSample

MS = 1_000_000
LAW = StepLaw(0.1 * MS, trusted=True)
SMALLEST = 512


def costs(law: StepLaw = LAW) -> Costs:
    return Costs(ClearStep(), lambda: law, lambda start_ns, end_ns: (law, SMALLEST), SMALLEST)


def steps(count: int, tokens: int, end_ms: float = 0, token_ms: float = 0.1, largest: int = 0) -> list[StepSample]:
    excess_ns = round(tokens * token_ms * MS)
    end_ns = round(end_ms * MS)
    return [StepSample(end_ns, 20 * MS + excess_ns, excess_ns, tokens, largest or tokens) for _ in range(count)]


def work(tokens: int, cached: int = 0, *, size_known: bool = True) -> PromptWork:
    return PromptWork(tokens, tokens, cached, tokens + cached, size_known)


def test_nothing_seen_nothing_known() -> None:
    unlearned = costs(StepLaw())
    assert unlearned.expected_ns(1000) == 0
    assert unlearned.line(0) is None
    assert not unlearned.known.law.known
    assert unlearned.advised(0, 0.2, Server(), 0).tokens is None
    assert unlearned.newest(0, 10) == []


def test_the_law_says_what_prompt_tokens_take() -> None:
    assert costs().expected_ns(1000) == 100 * MS


def test_steps_of_late_say_it_where_the_law_lags_behind() -> None:
    slow = costs()
    slow.add(0, steps(2, 1000, token_ms=0.3))
    assert slow.expected_ns(1000) == 100 * MS  # two are any two
    slow.add(0, steps(1, 1000, token_ms=0.3))
    assert slow.expected_ns(1000) == pytest.approx(300 * MS)


def test_a_prompt_may_take_twice_what_it_should() -> None:
    known = KnownCost(LAW, 4000)
    assert costs().at_most_ns([work(1000)], known, 0).most_ns == 200 * MS
    assert costs().at_most_ns([work(1000), work(500)], known, 0).most_ns == 300 * MS
    assert costs().at_most_ns([], known, 0).most_ns == 0


def test_attention_over_cached_tokens_counts_as_if_they_were_computed() -> None:
    assert costs().at_most_ns([work(1000, cached=3000)], KnownCost(LAW, 4000), 0).most_ns == 800 * MS


def test_a_prompt_longer_than_any_may_take_the_more() -> None:
    assert costs().at_most_ns([work(6000)], KnownCost(LAW, 1000), 0).most_ns == 6 * 600 * MS


def test_short_prompts_put_no_bound_on_a_long_one() -> None:
    assert costs().at_most_ns([work(6000)], KnownCost(LAW, SMALLEST), 0).most_ns == math.inf


def test_while_nothing_is_learned_only_short_prompts_are_bounded() -> None:
    unlearned = KnownCost()
    assert costs().at_most_ns([work(SMALLEST)], unlearned, 0).most_ns == 0
    assert costs().at_most_ns([work(SMALLEST + 1)], unlearned, 0).most_ns == math.inf
    assert costs().at_most_ns([work(25, size_known=False)], unlearned, 0).most_ns == math.inf  # a picture


def test_steps_with_prompts_as_long_raise_the_bound_those_of_others_do_not() -> None:
    found = costs()
    found.add(0, steps(3, 1000, token_ms=0.4, largest=8000))
    known = KnownCost(LAW, 8000)
    assert found.at_most_ns([work(5000)], known, 1).most_ns == pytest.approx(2 * 2000 * MS)
    assert found.at_most_ns([work(3000)], known, 1).most_ns == 600 * MS


def test_steps_within_a_delay_do_not_speak_for_it() -> None:
    found = costs()
    found.add(0, steps(3, 1000, end_ms=500, token_ms=0.4))
    known = KnownCost(LAW, 1000)
    during, after = (400 * MS, 600 * MS), (500 * MS, 900 * MS)
    assert found.at_most_ns([work(1000)], known, *during).most_ns == 200 * MS
    assert found.at_most_ns([work(1000)], known, 400 * MS).most_ns == 200 * MS  # it lasts
    assert found.at_most_ns([work(1000)], known, *after).most_ns == pytest.approx(800 * MS)


def test_a_prompt_alone() -> None:
    found = costs()
    assert found.alone_ns(work(1000), 5 * MS) == 100 * MS
    assert costs(StepLaw()).alone_ns(work(1000), 5 * MS) == 5000 * MS
    found.add(0, steps(1, 500))
    assert found.alone_ns(work(1000), 5 * MS) == 200 * MS  # twice as long as the longest seen


def test_the_line_is_of_one_model_and_goes_with_it() -> None:
    found = costs()
    found.add(0, steps(20, 1000) + steps(20, 0))
    found.add(1, steps(20, 1000, token_ms=0.2) + steps(20, 0))
    laws = [found.line(model) for model in (0, 1)]
    assert [round(law.token_ns) for law in laws if law is not None] == [100_000, 200_000]
    assert found.steps_seen(0) == 20
    found.forget_model(0)
    assert found.line(0) is None
    assert found.line(1) is not None


def test_advice_goes_by_the_line() -> None:
    found = costs()
    found.add(0, steps(20, 2000) + steps(20, 0))
    advice = found.advised(0, 0.1001, Server(budget=2048), 6000)
    assert advice.tokens == 800  # 20 ms and 0.1 ms per token


def test_what_is_kept_can_be_handed_on() -> None:
    first, second = costs(), costs()
    first.add(0, steps(5, 1000) + steps(3, 0))
    second.add(0, first.newest(0, 4))
    assert second.newest(0, 10) == steps(3, 0) + steps(4, 1000)
