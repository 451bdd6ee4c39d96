"""The published experiment on a simulated engine in virtual time, seen through the tap alone, held against the truth.

Six streams decode at 21 ms; long prompts of 6,000 tokens arrive. What the engine put into its steps is known here, and
what the observer says must agree.
"""

from __future__ import annotations

import pytest
from tests.core.script import DONE, Observed, Relay, chunk, stream_tokens, usage

from prefillwatch.export import table
from prefillwatch.lab.simulator import Arrival, Delivery, Engine, SimRequest, VirtualRun, preset_engine, run_virtual
from prefillwatch.units import MS

DELIVERY = Delivery(after_step_ns=MS, per_stream_ns=200_000, first_token_ns=5 * MS)


def run_engine(prompts: int, *, chunked: bool) -> VirtualRun:
    victims = [Arrival(i * 3 * MS, SimRequest(f"victim-{i}", prompt_tokens=20, max_tokens=300)) for i in range(6)]
    lumps = [
        Arrival(2000 * MS + i * MS, SimRequest(f"lump-{i}", prompt_tokens=6000, max_tokens=8)) for i in range(prompts)
    ]
    engine = Engine(preset_engine("article", enable_chunked_prefill=chunked))
    return run_virtual(engine, victims + lumps, delivery=DELIVERY)


def observe(run: VirtualRun) -> Observed:
    """What the wire showed of the run goes through the tap, packet by packet, as time passes."""
    observed = Observed()
    relay = Relay(observed)
    streams: dict[str, int] = {}
    seen: dict[str, int] = {}
    for at_ns, what, name in run.events():
        at_ms = at_ns / MS
        if at_ms - observed.now_ms > 20:
            relay.flush()
            observed.advance(at_ms)
        prompt_tokens = run.requests[name].prompt_tokens
        if what == "sent":
            streams[name] = relay.request(at_ms, {"messages": [{"role": "user", "content": "x" * 4 * prompt_tokens}]})
            seen[name] = 0
        elif what == "token":
            if not seen[name]:
                stream_tokens(relay, streams[name], [at_ms])
            else:
                relay.data(at_ms, streams[name], chunk())
            seen[name] += 1
        else:
            relay.data(at_ms, streams[name], usage(prompt_tokens, seen[name]) + DONE)
            relay.end(at_ms, streams[name])
    relay.flush()
    observed.advance(observed.now_ms + 12_000)
    return observed


def true_gaps(run: VirtualRun) -> int:
    """Gaps that ended with a step in which a long prompt rode."""
    steps = [step for step in run.steps if any(name.startswith("lump") for name in step.prefill)]
    return sum(len(step.decode) for step in steps)


@pytest.mark.parametrize("chunked", [True, False])
@pytest.mark.parametrize("prompts", [3, 12])
def test_gaps_steps_and_first_tokens_agree_with_the_engine(prompts: int, chunked: bool) -> None:
    run = run_engine(prompts, chunked=chunked)
    observed = observe(run)
    gaps = observed.counts(table.INTER_TOKEN_LATENCY)
    assert gaps[("m", "2k-8k")] == true_gaps(run)
    assert sum(gaps.values()) == sum(len(times) - 1 for times in run.reads_ns.values())

    long_steps = [step for step in run.steps if step.decode and any(n.startswith("lump") for n in step.prefill)]
    steps = observed.counts(table.STEP_TIME)
    assert sum(count for (_, tokens), count in steps.items() if tokens in ("512-2k", "2k-8k")) == len(long_steps)

    if prompts < 12:
        return  # too few prompts to tell from outside in which order an engine of unknown budget took them
    begun = {name: next(s.start_ns for s in run.steps if name in s.prefill) for name in run.requests if "lump" in name}
    true_queue = sum(start - run.sent_ns[name] for name, start in begun.items()) / 1e9
    assert observed.sums(table.QUEUE)[("m", "2k-8k")] == pytest.approx(true_queue, rel=0.1, abs=0.1)
    total = observed.sums(table.QUEUE)[("m", "2k-8k")] + observed.sums(table.PREFILL)[("m", "2k-8k")]
    assert total == pytest.approx(observed.sums(table.TIME_TO_FIRST_TOKEN)[("m", "2k-8k")])


def test_the_freeze_shows_in_its_own_population_and_not_in_the_median() -> None:
    on, off = (observe(run_engine(12, chunked=chunked)) for chunked in (True, False))
    for observed, p99 in ((on, 0.345), (off, 0.831)):
        gauges = observed.values(table.INTER_TOKEN_LATENCY_P99)
        assert gauges[("m", "5m", "prefill")] == pytest.approx(p99, rel=0.05)
        assert gauges[("m", "5m", "clear")] == pytest.approx(0.021, rel=0.1)
        assert observed.values(table.INTER_TOKEN_LATENCY_P50)[("m", "5m", "all")] == pytest.approx(0.021, rel=0.05)
