"""Quantiles with what bounds them, and stalls, from gaps alone."""

from __future__ import annotations

import random

import pytest

from prefillwatch.lab.sweep.figures import Outcome, ProbeFigures, p99_ranks_from_top, spread, stalls_of


class TestSpread:
    def test_quantiles_are_values_that_were_measured(self) -> None:
        found = spread(range(1, 101))
        assert found is not None
        assert (found.samples, found.p50_seconds, found.p99_seconds, found.max_seconds) == (100, 50, 99, 100)

    def test_a_population_without_samples_has_no_figures(self) -> None:
        assert spread([]) is None

    def test_few_samples_do_not_bound_the_tail_from_above(self) -> None:
        found = spread([0.02] * 300)
        assert found is not None
        assert found.p99_high_seconds is None

    def test_bounds_hold_the_true_p99_in_19_of_20_cases(self) -> None:
        rng = random.Random(7)
        held = 0
        for _ in range(400):
            found = spread(rng.random() for _ in range(1000))
            assert found is not None
            assert found.p99_high_seconds is not None
            held += found.p99_low_seconds <= 0.99 <= found.p99_high_seconds
        assert held >= 0.93 * 400

    def test_streams_that_stall_together_are_one_witness(self) -> None:
        values = [i / 3000 for i in range(3000)]
        alone, together = spread(values), spread([value for value in values for _ in range(6)], together=6)
        assert alone is not None
        assert together is not None
        assert together.p99_low_seconds == alone.p99_low_seconds
        assert together.p99_high_seconds == alone.p99_high_seconds

    @pytest.mark.parametrize(("n", "high"), [(1, 0), (367, 0), (368, 1), (1000, 4)])
    def test_the_largest_value_is_a_bound_from_368_samples_on(self, n: int, high: int) -> None:
        assert p99_ranks_from_top(n)[1] == high


class TestStalls:
    def test_only_what_goes_beyond_the_usual_gap_is_stall_time(self) -> None:
        found = stalls_of([[0.02] * 9 + [0.5], [0.02] * 10])
        assert (found.stalls, found.streams, found.frozen_streams) == (1, 2, 1)
        assert found.stall_seconds == pytest.approx(0.48)
        assert found.decode_seconds == pytest.approx(0.88)
        assert found.share == pytest.approx(0.48 / 0.88)

    @pytest.mark.parametrize(
        ("usual", "gap", "stalls"),
        [
            (0.001, 0.05, 0),
            (0.04, 0.15, 0),
            (0.04, 0.17, 1),
            (0.5, 0.9, 0),
            (0.5, 1.1, 1),
            (0.0, 0.9, 0),
            (0.0, 1.0, 1),
        ],
        ids=[
            "too short to feel",
            "not 4 times",
            "4 times",
            "a slow server",
            "a second is always one",
            "bursts",
            "a second between bursts",
        ],
    )
    def test_what_counts(self, usual: float, gap: float, stalls: int) -> None:
        assert stalls_of([[usual] * 9 + [gap]]).stalls == stalls

    def test_nothing_decoded_has_no_share(self) -> None:
        assert stalls_of([[]]).share is None


def test_the_probe_with_most_prompts_stands_for_the_setting() -> None:
    stalls = stalls_of([])
    probes = tuple(
        ProbeFigures(
            inject=inject,
            prompt_tokens=6000,
            runs=1,
            overall=None,
            window=None,
            first_token=None,
            stalls=stalls,
            prompt_tokens_per_second=None,
        )
        for inject in (3, 12, 1)
    )
    outcome = Outcome(flags=(), label="", probes=probes)
    assert outcome.heaviest is probes[1]
    assert Outcome(flags=(), label="").heaviest is None
