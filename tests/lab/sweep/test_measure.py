"""What is done on each setting, what it may cost at most, and that it is told."""

from __future__ import annotations

import asyncio

import pytest
from tests.lab.sweep.rows import failed, row

from prefillwatch.errors import ConfigError
from prefillwatch.lab.arrivals import Arrival, Schedule
from prefillwatch.lab.probe.settings import ProbeSettings, plan
from prefillwatch.lab.simulator import SimServer, SimSettings
from prefillwatch.lab.sweep.figures import MixFigures, ProbeFigures
from prefillwatch.lab.sweep.grid import Setting
from prefillwatch.lab.sweep.measure import Measurement, bound, measure
from prefillwatch.lab.sweep.mix import MixSettings
from prefillwatch.lab.sweep.plan import plan_lines
from prefillwatch.lab.sweep.sentences import on_front
from prefillwatch.lab.sweep.sweep import SweepSettings
from prefillwatch.lab.target import reach

PROBE = ProbeSettings(inject=12)
NO_MIX = MixSettings(seconds=0)
ARRIVALS = Schedule((Arrival(0.0, 300, 20), Arrival(0.5, 700, 10), Arrival(90.0, 100, 10)))


def test_the_bound_is_that_of_all_probes_and_of_the_mix() -> None:
    twelve, both = (bound(Measurement(PROBE, injects, NO_MIX)) for injects in ((12,), (3, 12)))
    assert twelve.tokens == plan(PROBE).tokens
    assert both.tokens > twelve.tokens
    assert both.longest_seconds == 2 * twelve.longest_seconds
    with_mix = bound(Measurement(PROBE, (12,), MixSettings(seconds=60)))
    assert with_mix.tokens > twelve.tokens + 60_000, "the arrivals, and the readers"
    assert with_mix.shortest_seconds == twelve.shortest_seconds + 60


def test_a_probe_beyond_its_own_limits_is_refused() -> None:
    with pytest.raises(ConfigError, match="--max-tokens"):
        bound(Measurement(ProbeSettings(inject=12, max_tokens=1000), (12,), NO_MIX))


def test_nothing_to_measure_is_refused() -> None:
    with pytest.raises(ConfigError, match="neither a probe nor a mix"):
        Measurement(PROBE, (), NO_MIX)


def test_arrivals_of_a_file_take_the_place_of_the_mix_for_its_length() -> None:
    measurement = Measurement(PROBE, (12,), MixSettings(seconds=60), ARRIVALS, "digest")
    assert [each.prompt_tokens for each in measurement.schedule().arrivals] == [300, 700]
    assert [each.prompt_tokens for each in measurement.schedule(max_model_len=512).arrivals] == [300]
    assert measurement.made_with()["arrivals"] == "digest"


def test_the_plan_says_what_where_and_how_much_at_most() -> None:
    settings = SweepSettings(("vllm", "serve", "m", "--api-key", "marker"), (Setting(), Setting(("--a", "1"))))
    measurement = Measurement(ProbeSettings(repeats=2), (3, 12), MixSettings())
    each = bound(measurement)
    lines = plan_lines(settings, measurement, each, ["(as given)"])
    assert lines[:3] == ["2 settings of vllm serve m --api-key '***':", "  (as given) (measured before)", "  --a 1"]
    assert lines[3].startswith("On each: 3 and 12 prompts of 6,000 tokens at once into 6 streams, 2 times over; then a")
    assert f"Bounds: at most {each.tokens:,} tokens, {each.tokens:,} for each setting" in lines[4]
    assert "1 start of at most 15 min" in lines[4]
    assert plan_lines(settings, measurement, each, ["(as given)", "--a 1"])[-1].startswith("All are measured")


def test_on_a_server_every_probe_and_the_mix_are_made() -> None:
    probe = ProbeSettings(victims=2, prompt_tokens=(1000,), warmup_seconds=0.3, recovery_seconds=0.3)
    measurement = Measurement(probe, (1, 2), MixSettings(seconds=1.0, readers=1), ARRIVALS)
    said: list[str] = []

    async def play() -> tuple[tuple[ProbeFigures, ...], MixFigures | None]:
        async with SimServer(SimSettings(preset="small")) as server:
            return await measure(await reach(server.url), measurement, said.append)

    probes, mix = asyncio.run(play())
    assert [each.inject for each in probes] == [1, 2]
    for each in probes:
        assert each.failures == ()
        assert each.first_token is not None
        assert each.first_token.samples == each.inject
        assert each.window is not None
        assert each.overall is not None
        assert 0 < each.window.samples < each.overall.samples
        assert each.prompt_tokens_per_second is not None
    assert mix is not None
    assert {size: each.samples for size, each in mix.first_token_by_size.items()} == {"0-512": 1, "512-2k": 1}
    assert "mix: 2 requests in 1 s" in said
    assert any(line.startswith("probe with 2: ") for line in said)


def test_the_front_in_words_names_winners_once() -> None:
    rows = [row("best", 0.1, 1.0, 200), row("slow", 0.2, 2.0, 200), row("late", 0.3, 3.0, 150), failed("broken")]
    assert on_front(rows) == "On the Pareto front: best. Slow and late are beaten by best."
