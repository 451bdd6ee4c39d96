"""The timeline where the engine tells its steps, on recordings of a real vLLM and what its stat logger said."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.judges import timeline as timeline_judge
from tests.judges.timeline import RECORDINGS, score
from tests.judges.truth import Inferred, Seen, from_recording, observe

from prefillwatch.analysis.steps.timeline import PrefillTimeline
from prefillwatch.analysis.tuning import DEFAULT
from prefillwatch.engine.plugin.steps import StepReader
from prefillwatch.engine.step_report import StepReport
from prefillwatch.units import MS

#: So late a step comes to be known.
ON_ITS_WAY_NS = 60 * MS


def told(path: Path) -> Iterator[StepReport]:
    """What the plugin would have told."""
    reader = StepReader(0)
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in map(json.loads, file):
            if line["kind"] == "iteration" and "index" in line:  # not so where clients left and nothing was computed
                report = reader.read(line["at"], *stats(line))
                if report is not None and report.is_step:
                    yield report


def stats(line: dict[str, Any]) -> tuple[SimpleNamespace, SimpleNamespace | None]:
    """As vLLM hands them over."""
    details = SimpleNamespace(
        iteration_index=line["index"],
        num_ctx_requests=line["prefill_requests"],
        num_ctx_tokens=line["prefill_tokens"],
        num_generation_requests=line["decode_requests"],
        num_generation_tokens=line["decode_tokens"],
        elapsed_ms=line["elapsed_ms"],
    )
    scheduler = SimpleNamespace(
        num_running_reqs=line["running"],
        num_waiting_reqs=line["waiting"],
        kv_cache_usage=line["kv_usage"],
        iteration_details=details,
    )
    iteration = SimpleNamespace(inter_token_latencies_iter=line["itl"]) if "itl" in line else None
    return scheduler, iteration


@pytest.fixture
def tell_steps(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes the score's timeline hear of the engine's steps too."""

    def use(path: Path) -> None:
        steps = list(told(path))

        def observe_told(seen: Seen) -> Inferred:
            settle = PrefillTimeline.settle

            def tell_and_settle(timeline: PrefillTimeline, now_ns: int) -> None:
                while steps and steps[0].end_ns <= now_ns - ON_ITS_WAY_NS:
                    tell(timeline, steps.pop(0))
                settle(timeline, now_ns)

            monkeypatch.setattr(PrefillTimeline, "settle", tell_and_settle)
            return observe(seen)

        monkeypatch.setattr(timeline_judge, "observe", observe_told)

    return use


def tell(timeline: PrefillTimeline, step: StepReport) -> None:
    start_ns = step.end_ns - step.duration_ns
    timeline.engine_totals(start_ns, step.end_ns, step.decode_requests, step.prefill_tokens, step.prefill_requests)


@pytest.mark.parametrize("name", ["engine-stopped-300", "first-logprobs", "mixed", "nobody-decoding", "shared-prefix"])
def test_causes_names_sums_and_splits(name: str, tell_steps: Any) -> None:
    path = RECORDINGS / f"{name}.jsonl.gz"
    tell_steps(path)
    result = score(from_recording(path))
    assert (result.recall, result.precision) == (1.0, 1.0)
    assert result.names < 0.01
    assert result.sums == pytest.approx(1.0, abs=0.001)  # inferred ones are up to 5 % off
    assert result.split < 0.01  # inferred ones up to 24 %
    assert result.lost_splits == 0


def test_steps_told_within_the_promised_time_are_in_time() -> None:
    assert DEFAULT.first_tokens.reported_late_ns > ON_ITS_WAY_NS


def test_a_step_without_prompt_tokens_is_none_however_long_it_was() -> None:
    """Which the wire alone cannot know: a prompt was waiting all the time."""
    timeline = PrefillTimeline()
    timeline.sent("a", 0, 300)
    timeline.engine_totals(0, 5000 * MS, 6, 0, 0)
    timeline.engine_totals(5000 * MS, 5100 * MS, 6, 300, 1)
    timeline.first_token("a", 5101 * MS)
    timeline.settle(6000 * MS)
    assert [(step.prefill_tokens, step.members) for step in timeline.drain_final()] == [(0, ()), (300, (("a", 300),))]
    (split,) = timeline.drain_splits()
    assert (split.queue_ns, split.prefill_ns) == (5000 * MS, 101 * MS)
