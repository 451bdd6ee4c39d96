"""The presets against the measurements they stand for, in virtual time."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import pytest

from prefillwatch.lab.simulator import PRESETS, Arrival, Engine, SimRequest, preset_engine, run_virtual
from prefillwatch.units import MS

VICTIMS = 6
VICTIM_TOKENS = 316  # about 1,900 victim tokens in all, as in the measurement
PROMPT_TOKENS = 6000


@dataclass(frozen=True)
class Probe:
    """Victims' inter-token latencies in milliseconds: all of them, and those while an injected prompt was in flight."""

    overall: np.ndarray
    window: np.ndarray

    def p(self, quantile: float) -> float:
        return float(np.percentile(self.overall, quantile))

    def window_p(self, quantile: float) -> float:
        return float(np.percentile(self.window, quantile))


def probe(preset: str, injected: int, *, chunked: bool, at_ms: int = 2000) -> Probe:
    engine = Engine(preset_engine(preset, enable_chunked_prefill=chunked))
    victims = [Arrival(i * 3 * MS, SimRequest(f"victim-{i}", 20, VICTIM_TOKENS)) for i in range(VICTIMS)]
    prompts = [Arrival(at_ms * MS, SimRequest(f"prompt-{i}", PROMPT_TOKENS, 16)) for i in range(injected)]
    run = run_virtual(engine, victims + prompts)
    last_first_token = max(run.reads_ns[f"prompt-{i}"][0] for i in range(injected))
    overall, window = [], []
    for i in range(VICTIMS):
        reads = run.reads_ns[f"victim-{i}"]
        for start, end in itertools.pairwise(reads):
            overall.append((end - start) / MS)
            if end > at_ms * MS and start < last_first_token:
                window.append((end - start) / MS)
    return Probe(np.array(overall), np.array(window))


class TestArticle:
    def test_six_streams_decode_at_21_ms_whatever_happens_in_the_tail(self) -> None:
        for injected in (3, 12):
            for chunked in (True, False):
                assert probe("article", injected, chunked=chunked).p(50) == pytest.approx(21.2, rel=0.02)

    def test_twelve_prompts_stall_the_victims_for_346_ms_in_chunks_and_for_832_ms_without(self) -> None:
        on = probe("article", 12, chunked=True)
        off = probe("article", 12, chunked=False)
        assert on.p(99) == pytest.approx(346.5, rel=0.02)
        assert off.p(99) == pytest.approx(832, rel=0.01)
        assert off.p(99) / on.p(99) == pytest.approx(2.4, rel=0.02)

    def test_three_prompts_mislead_a_p99_over_all_tokens_and_the_injection_window_puts_it_right(self) -> None:
        on = probe("article", 3, chunked=True)
        off = probe("article", 3, chunked=False)
        assert on.p(99) == pytest.approx(325, rel=0.03)
        assert off.p(99) < 103 < on.p(99), "over all tokens, the setting that freezes looks better"
        assert off.window_p(99) == pytest.approx(825, rel=0.02)
        assert off.window_p(99) > 2 * on.window_p(99), "among the tokens of the injection window it does not"

    def test_a_smaller_budget_gives_smaller_stalls_and_a_later_first_token(self) -> None:
        worst, first_token = [], []
        for budget in (512, 1024, 2048, 4096):
            engine = Engine(preset_engine("article", max_num_batched_tokens=budget))
            victim = Arrival(0, SimRequest("victim", 20, 300))
            run = run_virtual(engine, [victim, Arrival(1000 * MS, SimRequest("prompt", PROMPT_TOKENS, 1))])
            worst.append(max(run.gaps_ns("victim")))
            first_token.append(run.reads_ns["prompt"][0])
        assert worst == sorted(worst)
        assert first_token == sorted(first_token, reverse=True)


class TestSmall:
    @pytest.mark.parametrize("chunked", [True, False])
    @pytest.mark.parametrize("injected", [3, 12])
    def test_no_gap_comes_near_a_stall(self, injected: int, chunked: bool) -> None:
        result = probe("small", injected, chunked=chunked, at_ms=500)
        assert result.p(50) == pytest.approx(4.0, rel=0.02)
        assert result.overall.max() < 2 * result.p(50)

    def test_the_two_settings_cannot_be_told_apart_at_any_scale_that_people_notice(self) -> None:
        on = probe("small", 12, chunked=True, at_ms=500)
        off = probe("small", 12, chunked=False, at_ms=500)
        assert abs(on.p(99) - off.p(99)) < 3


class TestTinyKv:
    def test_a_handful_of_growing_answers_preempt_each_other(self) -> None:
        engine = Engine(preset_engine("tiny-kv"))
        run = run_virtual(engine, [Arrival(i * MS, SimRequest(f"r{i}", 600, 300)) for i in range(8)])
        assert any(step.preempted for step in run.steps)
        assert set(run.outcome.values()) == {"length"}

    def test_one_request_of_full_length_fits(self) -> None:
        engine = Engine(preset_engine("tiny-kv"))
        run = run_virtual(engine, [Arrival(0, SimRequest("r", 2000, 5000))])
        assert run.outcome == {"r": "length"}
        assert not any(step.preempted for step in run.steps)


class TestSteady:
    def test_a_step_takes_25_ms_with_one_stream_and_with_a_thousand(self) -> None:
        for streams in (1, 1000):
            engine = Engine(preset_engine("steady"))
            run = run_virtual(engine, [Arrival(0, SimRequest(f"r{i}", 8, 20)) for i in range(streams)])
            assert {gap for i in range(streams) for gap in run.gaps_ns(f"r{i}")} == {25 * MS}


def test_every_preset_has_a_line_of_help_and_runs_both_ways() -> None:
    for name, preset in PRESETS.items():
        assert preset.help
        assert "\n" not in preset.help
        preset_engine(name)
        preset_engine(name, enable_chunked_prefill=False)


def test_an_unknown_preset_is_refused_with_the_known_names() -> None:
    with pytest.raises(ValueError, match="unknown preset 'big': choose one of article, small, tiny-kv, steady"):
        preset_engine("big")


def test_a_budget_that_was_asked_for_is_kept_without_chunked_prefill() -> None:
    assert preset_engine("article", enable_chunked_prefill=False).max_num_batched_tokens == 8192
    config = preset_engine("article", enable_chunked_prefill=False, max_num_batched_tokens=10000)
    assert config.max_num_batched_tokens == 10000
