"""Prompt buckets, and tokens guessed from text."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefillwatch.analysis.requests.prompt_sizes import NONE, PromptBuckets, TokenRatio, prompt_length_windows

# Buckets


def test_the_default_labels() -> None:
    buckets = PromptBuckets()
    assert " ".join(buckets.labels) == "0-512 512-2k 2k-8k 8k-32k 32k-128k 128k+"
    assert buckets.labels_with_none == (*buckets.labels, "none")
    assert len(buckets) == 6


@pytest.mark.parametrize(
    ("tokens", "label"),
    [
        (-1, "none"),
        (0, "0-512"),
        (511, "0-512"),
        (512, "512-2k"),
        (2047, "512-2k"),
        (2048, "2k-8k"),
        (6000, "2k-8k"),
        (8192, "8k-32k"),
        (131071, "32k-128k"),
        (131072, "128k+"),
        (10**9, "128k+"),
    ],
)
def test_a_bucket_includes_its_lower_bound_and_not_its_upper(tokens: int, label: str) -> None:
    assert PromptBuckets().label(tokens) == label


@pytest.mark.parametrize(
    ("edges", "labels"),
    [
        ((1,), "0-1 1+"),
        ((100, 1000), "0-100 100-1000 1000+"),
        ((1024, 1500, 1048576), "0-1k 1k-1500 1500-1m 1m+"),
    ],
)
def test_labels_follow_the_edges(edges: tuple[int, ...], labels: str) -> None:
    assert " ".join(PromptBuckets(edges).labels) == labels


@pytest.mark.parametrize("edges", [(), (0, 5), (-1, 5), (512, 512), (2048, 512)])
def test_edges_that_make_no_buckets_are_refused_with_the_default(edges: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"positive token counts in increasing order.*512, 2048"):
        PromptBuckets(edges)


@given(
    st.lists(st.integers(-2, 300_000), max_size=50),
    st.sets(st.integers(1, 200_000), min_size=1, max_size=8).map(lambda edges: tuple(sorted(edges))),
)
def test_many_at_once_is_one_by_one(sizes: list[int], edges: tuple[int, ...]) -> None:
    buckets = PromptBuckets(edges)
    assert buckets.bucket_many(np.array(sizes, dtype=np.int64)).tolist() == [buckets.bucket(size) for size in sizes]
    assert len(set(buckets.labels_with_none)) == len(edges) + 2
    assert buckets.bucket(-1) == NONE


def test_the_longest_prompt_stays_in_its_window_exactly() -> None:
    windows = prompt_length_windows((10, 60))
    windows.add(200_019, 0)
    windows.add_many(np.array([12, 557, 6000]), 5_000_000_000)
    assert windows.maximum(10) == 200_019
    assert windows.quantile(0.5, 10) == pytest.approx(557, rel=0.01)
    windows.advance(12_000_000_000)
    assert windows.maximum(10) == 6000
    assert windows.maximum(60) == 200_019


# Tokens from characters


def learned(prompts: Iterable[tuple[int, int]], model: str = "m") -> TokenRatio:
    ratio = TokenRatio()
    for chars, tokens in prompts:
        ratio.learn(model, chars, tokens)
    return ratio


def prose(
    rng: np.random.Generator,
    count: int,
    ratio: float = 4.4,
    template: int = 25,
    shortest: int = 40,
    longest: int = 40_000,
) -> list[tuple[int, int]]:
    """Prompts of mixed lengths whose text has ``ratio`` characters to a token, give or take 10 %."""
    chars = np.exp(rng.uniform(np.log(shortest), np.log(longest), count))
    tokens = chars / (ratio * rng.normal(1, 0.1, count)) + template
    return [(round(c), round(t)) for c, t in zip(chars, tokens, strict=True)]


def test_before_anything_is_learned_four_characters_make_a_token() -> None:
    assert TokenRatio().estimate("m", 4000) == 1000
    assert TokenRatio().estimate("m", 0) == 1


@pytest.mark.parametrize("true_ratio", [1.2, 3.2, 4.4, 6.0])
@pytest.mark.parametrize("chars", [200, 4000, 100_000])
def test_it_learns_the_ratio_of_mixed_traffic_at_every_length(true_ratio: float, chars: int) -> None:
    ratio = learned(prose(np.random.default_rng(1), 100, true_ratio))
    assert ratio.estimate("m", chars) == pytest.approx(chars / true_ratio + 25, rel=0.1)


def test_the_template_is_seen_in_short_prompts_only() -> None:
    rng = np.random.default_rng(2)
    ratio = learned(prose(rng, 100, template=200))
    assert ratio.estimate("m", 40) == pytest.approx(210, rel=0.15)
    assert ratio.estimate("m", 400_000) == pytest.approx(400_000 / 4.4, rel=0.05)


def test_short_chats_do_not_spoil_the_guess_for_a_long_document() -> None:
    """Thirty tokens for "hello" are the template's: a document is not read at that ratio."""
    ratio = learned([(20, 30), (35, 34), (28, 32), (16, 29)] * 25)
    assert ratio.estimate("m", 100_000) == pytest.approx(25_000, rel=0.1)
    assert ratio.estimate("m", 24) == pytest.approx(31, rel=0.15)


def test_one_request_is_enough_to_leave_the_assumption_behind() -> None:
    ratio = learned([(36_000, 30_000)])
    assert ratio.estimate("m", 72_000) == pytest.approx(60_000, rel=0.01)


@pytest.mark.parametrize(
    "strange",
    [(50, 500_000), (5_000_000, 1), (40_000, 900), (3000, 11_000)],
    ids=["impossible", "impossible too", "a run of spaces", "emoji"],
)
def test_strange_requests_in_between_do_little(strange: tuple[int, int]) -> None:
    usual = prose(np.random.default_rng(3), 80)
    ratio = learned(usual + [strange] * 15)
    for chars in (500, 20_000, 400_000):
        assert ratio.estimate("m", chars) == pytest.approx(learned(usual).estimate("m", chars), rel=0.1)


def test_a_change_of_traffic_is_followed_slowly() -> None:
    rng = np.random.default_rng(4)
    ratio = learned(prose(rng, 128, ratio=4.4, shortest=1000))
    before = ratio.estimate("m", 44_000)
    for chars, tokens in prose(rng, 30, ratio=1.5, shortest=1000):
        ratio.learn("m", chars, tokens)
    assert ratio.estimate("m", 44_000) == pytest.approx(before, rel=0.1)
    for chars, tokens in prose(rng, 98, ratio=1.5, shortest=1000):
        ratio.learn("m", chars, tokens)
    assert ratio.estimate("m", 44_000) == pytest.approx(44_000 / 1.5, rel=0.1)


def test_models_learn_apart_and_are_forgotten_apart() -> None:
    ratio = TokenRatio()
    ratio.learn("a", 30_000, 30_000)
    ratio.learn("b", 60_000, 10_000)
    assert ratio.estimate("a", 3000) == pytest.approx(3000, rel=0.01)
    assert ratio.estimate("b", 3000) == pytest.approx(500, rel=0.01)
    ratio.forget("a")
    assert ratio.estimate("a", 3000) == 750


@pytest.mark.parametrize(("chars", "tokens"), [(0, 10), (-5, 10), (10, 0), (10, -1), (10, 5000), (5000, 10)])
def test_nothing_is_learned_from_requests_that_tell_nothing(chars: int, tokens: int) -> None:
    ratio = learned([(chars, tokens)])
    assert ratio.estimate("m", 400) == 100


@given(st.lists(st.tuples(st.integers(1, 10**7), st.integers(1, 10**7)), max_size=40), st.integers(0, 10**8))
def test_an_estimate_is_always_a_size(prompts: list[tuple[int, int]], chars: int) -> None:
    assert learned(prompts).estimate("m", chars) >= 1
