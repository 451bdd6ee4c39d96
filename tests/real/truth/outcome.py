"""A scenario judged: everything that is asserted or printed of it."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.real.truth.confusion import UNSEEN, Confusion, confusion
from tests.real.truth.figures import Latency, Range, Times, as_json, latencies, prefill_times
from tests.real.truth.live import Scenario, said_path
from tests.real.truth.said import Incident, Said, read_said
from tests.real.truth.true_causes import Truth, read_truth

from prefillwatch.contract.causes import FREEZE_CAUSES, UNATTRIBUTED

ROWS = (*(name for name in FREEZE_CAUSES if name != UNATTRIBUTED), "unexplained", "nothing", "delivery", "starved")
COLUMNS = (*FREEZE_CAUSES, UNSEEN)


MOST_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Outcome:
    scenario: Scenario
    confusion: Confusion
    times: Times
    latencies: list[Latency]
    said: Said
    truth: Truth

    @property
    def pace_ms(self) -> float:
        """How long the engine's steps without a prompt took, their median; infinite without such a step."""
        steps = [(step.end_ns - step.start_ns) / 1e6 for step in self.truth.seen.steps if not step.prefill]
        return statistics.median(steps) if steps else math.inf

    @property
    def true_stalls(self) -> Counter[str]:
        return Counter(stall.cause for stall in self.truth.stalls)

    def as_json(self) -> dict[str, Any]:
        return {
            "scenario": self.scenario.name,
            "about": self.scenario.about,
            "cause": self.scenario.cause,
            "stall_seconds": nested(self.confusion),
            "true_stalls": dict(self.true_stalls),
            "named_stalls": self.said.stalls(),
            **shares(self.confusion),
            "prefill_times": asdict(self.times) | {"error": self.times.error},
            "latencies": as_json(self.latencies),
            "waits": waits(self.said.incidents),
            "incidents": [each.document for each in self.said.incidents],
        }


def judge(scenario: Scenario, recording: Path, before: Sequence[Outcome] = ()) -> Outcome:
    """`before`: everything judged so far."""
    truth = read_truth(recording)
    said = read_said(said_path(recording), truth.header["started_monotonic_ns"])
    seen_before = [each.truth for each in before if each.truth.header["sidecar"] == truth.header["sidecar"]]
    found = confusion(said, truth.stalls)
    gaps = list(latencies(truth, seen_before, said))
    return Outcome(scenario, found, prefill_times(truth, said), gaps, said, truth)


def waits(incidents: Iterable[Incident]) -> dict[str, int]:
    return dict(Counter(each.cause for each in incidents if each.kind == "wait"))


def nested(found: Confusion) -> dict[str, dict[str, float]]:
    table: dict[str, dict[str, float]] = {}
    for (true, named), seconds in sorted(found.seconds.items()):
        if seconds:
            table.setdefault(true, {})[named] = round(seconds, 3)
    return table


def shares(found: Confusion) -> dict[str, float]:
    return {
        "precision": round(found.precision, 4),
        "recall": round(found.recall, 4),
        "culprits_in_prefill": round(found.membership, 4),
        "culprits_rightly_shared": round(found.sharing, 4),
        "discarded_seconds": round(found.discarded, 3),
    }


def together(outcomes: Iterable[Outcome]) -> Confusion:
    return sum((each.confusion for each in outcomes), Confusion())


def report_json(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    whole = together(outcomes)
    return {
        "stall_seconds": nested(whole),
        **shares(whole),
        "scenarios": [each.as_json() for each in outcomes],
    }


def report_text(outcomes: Sequence[Outcome]) -> str:
    return "\n\n".join([*map(_scenario_text, outcomes), "All together", table(together(outcomes))])


def table(found: Confusion) -> str:
    """Stall seconds; rows are true causes, columns what was named."""
    rows = [row for row in ROWS if found.true(row)]
    width = max(map(len, ROWS))
    lines = [" " * width + "".join(f"{column:>14}" for column in COLUMNS)]
    for row in rows:
        cells = (found.seconds[row, column] for column in COLUMNS)
        lines.append(f"{row:{width}}" + "".join(f"{cell:14.2f}" if cell else f"{'.':>14}" for cell in cells))
    figures = shares(found)
    lines.append("  ".join(f"{name} {value:.3f}" for name, value in figures.items()))
    return "\n".join(lines)


def _scenario_text(outcome: Outcome) -> str:
    named = {cause: round(count) for cause, count in outcome.said.stalls().items()}
    return "\n".join(
        [
            f"{outcome.scenario.name}: {outcome.scenario.about}; a step without a prompt took {outcome.pace_ms:.1f} ms",
            table(outcome.confusion),
            f"stalls truly {dict(outcome.true_stalls)}, named {named}, waits named {waits(outcome.said.incidents)}",
            _times_text(outcome.times),
            # With the other faults what is on the wire is not what the engine made.
            *(_latency_lines(outcome.latencies) if outcome.scenario.cause == "prefill" else ()),
        ]
    )


def _times_text(times: Times) -> str:
    return (
        f"prefill of {times.ours_count} of {times.requests} requests {times.ours:.2f} s, steps {times.logged:.2f} s"
        f" ({100 * times.error:+.1f} %), vLLM's of {times.finished} finished {times.reported:.2f} s;"
        f" queue {times.queue_ours:.2f} s, steps {times.queue_logged:.2f} s"
    )


def _latency_lines(found: list[Latency]) -> Iterator[str]:
    yield (
        f"latency: of {len(found)} quantiles of windows {sum(each.is_the_engines for each in found)} are the engine's,"
        f" {sum(each.fits for each in found)} explained by what engine and client saw"
    )
    for each in [each for each in found if not each.fits][:MOST_SHOWN]:
        yield (
            f"    {each.name} {each.window} at {each.at:.1f} s: ours {each.ours * 1e3:.1f} ms, engine"
            f" {_in_ms(each.engine)}, client {_in_ms(each.client)}, somebody without a core {each.waited:.0%}"
        )


def _in_ms(found: Range) -> str:
    return f"{found.middle * 1e3:.1f} ({found.low * 1e3:.1f} to {found.high * 1e3:.1f})"
