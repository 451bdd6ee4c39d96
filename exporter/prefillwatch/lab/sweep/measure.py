"""The measurement that every setting gets: the probe, for each number of prompts at once, and the mix."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from prefillwatch.errors import ConfigError
from prefillwatch.lab.arrivals import Schedule
from prefillwatch.lab.probe.experiment import Progress, run_probe
from prefillwatch.lab.probe.settings import Plan, ProbeSettings, plan
from prefillwatch.lab.prompts import LARGEST_TEMPLATE, learning_tokens
from prefillwatch.lab.sweep.figures import MixFigures, ProbeFigures
from prefillwatch.lab.sweep.mix import MixSettings, mix_schedule
from prefillwatch.lab.sweep.play_mix import run_mix
from prefillwatch.lab.sweep.probing import probe_figures
from prefillwatch.lab.target import Target, TargetError

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Measurement:
    """What is done on a running server. ``arrivals`` take the place of the made-up ones where given."""

    probe: ProbeSettings
    #: Prompts at once, one probe each; empty: no probe.
    injects: tuple[int, ...]
    mix: MixSettings
    arrivals: Schedule | None = None
    #: Tells one file of arrivals from another.
    arrivals_digest: str = ""

    def __post_init__(self) -> None:
        if not self.injects and not self.mix.seconds:
            raise ConfigError("neither a probe nor a mix is to be made; give --inject or --mix a value above 0")

    def probes(self) -> list[ProbeSettings]:
        return [dataclasses.replace(self.probe, inject=inject) for inject in self.injects]

    def schedule(self, max_model_len: int | None = None) -> Schedule:
        if self.arrivals is None:
            return mix_schedule(self.mix, max_model_len)
        return self.arrivals.limited(speed=self.mix.rate, seconds=self.mix.seconds).fitting(max_model_len)

    def made_with(self) -> dict[str, Any]:
        """What must be the same for two rows to be compared."""
        probe, mix = self.probe, self.mix
        return {
            "victims": probe.victims,
            "prompts_at_once": list(self.injects),
            "prompt_tokens": max(probe.prompt_tokens),
            "repeats": probe.repeats,
            "warm_up_seconds": probe.warmup_seconds,
            "recovery_seconds": probe.recovery_seconds,
            "answer_tokens": probe.answer_tokens,
            "mix_seconds": mix.seconds,
            "mix_readers": mix.readers,
            "mix_rate": mix.rate,
            "seed": mix.seed,
            "arrivals": self.arrivals_digest or None,
        }


@dataclass(frozen=True, slots=True)
class Bound:
    """The most that one setting can cost, once its server is up. Tokens are those of prompts and answers together."""

    tokens: int
    shortest_seconds: float
    longest_seconds: float


def bound(measurement: Measurement) -> Bound:
    """Raises ConfigError where a probe goes beyond its own limits."""
    plans: list[Plan] = [plan(probe) for probe in measurement.probes()]
    mix, schedule = measurement.mix, measurement.schedule()
    mix_tokens = 0
    if mix.seconds:
        mix_tokens = schedule.most_tokens(LARGEST_TEMPLATE) + learning_tokens()
        mix_tokens += mix.readers * mix.reader_tokens
    return Bound(
        tokens=sum(each.tokens for each in plans) + mix_tokens,
        shortest_seconds=sum(each.shortest_seconds for each in plans) + mix.seconds,
        longest_seconds=sum(each.longest_seconds for each in plans) + bool(mix.seconds) * (mix.longest_seconds),
    )


async def measure(
    target: Target, measurement: Measurement, say: Say
) -> tuple[tuple[ProbeFigures, ...], MixFigures | None]:
    """Raises TargetError, or ConfigError where the prompts do not fit the model."""
    probes = []
    for settings in measurement.probes():

        def tell(progress: Progress, inject: int = settings.inject) -> None:
            if not progress.passing:
                say(f"probe with {inject}: {progress.text}")

        result = await run_probe(target, settings, tell)
        if result.problem:
            raise TargetError(f"the probe with {settings.inject} prompts did not come to its end: {result.problem}")
        probes.append(probe_figures(result))
    mix = None
    if measurement.mix.seconds:
        schedule = measurement.schedule(target.max_model_len)
        left_out = schedule.left_out - measurement.schedule().left_out
        too_long = f", {left_out} left out that the model does not take" if left_out else ""
        count = len(schedule.arrivals)
        say(f"mix: {count} request{'' if count == 1 else 's'} in {measurement.mix.seconds:g} s{too_long}")
        mix = msgspec.structs.replace(await run_mix(target, schedule, measurement.mix), left_out=left_out)
    return tuple(probes), mix
