"""What a prompt would do, forecast when it is sent, held against the steps of engines that know the truth."""

from __future__ import annotations

import statistics

import pytest
from tests.simulation import play
from tests.simulation.faults import NONE
from tests.simulation.shapes import SHAPES

from prefillwatch.analysis.pressure import Pressures
from prefillwatch.analysis.requests import Request
from prefillwatch.observer.metrics import Publisher

#: Milliseconds of a step that is longer than any without a prompt.
LONG = 100.0


@pytest.mark.parametrize("name", ["vLLM, prefix caching", "llama.cpp, slots"])
def test_gaps_and_first_tokens_are_as_forecast(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gap within a tenth in the median and within a third for most; first tokens within half for most."""
    (shape,) = (each for each in SHAPES if each.name == name)
    forecast: dict[str, float] = {}
    first_tokens: list[float] = []
    sent = Pressures.sent

    def listen(pressures: Pressures, request: Request, time_ns: int) -> None:
        cached = request.prompt_tokens - max(1, request.uncached_tokens)
        known = pressures.forecast(request.prompt_tokens, cached, time_ns)
        if known is not None and request.streaming:
            forecast[request.request_id] = 1000 * known.gap_s
        sent(pressures, request, time_ns)

    monkeypatch.setattr(Pressures, "sent", listen)
    monkeypatch.setattr(Publisher, "forecast", lambda _, ratio: first_tokens.append(ratio))
    gaps = []
    for seed in range(5):
        forecast.clear()
        run = play.run(shape, NONE, seed)
        for prompt, gap in forecast.items():
            steps = [step.end - step.start for rank in run.ranks for step in rank.steps if prompt in step.prompts]
            if steps and max(steps) >= LONG and prompt in run.delivery.events:
                gaps.append(gap / max(steps))
    assert len(gaps) >= 20
    assert statistics.median(gaps) == pytest.approx(1, abs=0.1)
    assert sum(0.67 < each < 1.5 for each in gaps) >= 0.75 * len(gaps)
    assert len(first_tokens) >= 20
    assert statistics.median(first_tokens) == pytest.approx(1, abs=0.25)
    assert sum(0.5 < each < 2 for each in first_tokens) >= 0.75 * len(first_tokens)
