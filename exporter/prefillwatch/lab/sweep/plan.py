"""What a sweep is going to do and the most it can cost, told before anything starts. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from prefillwatch.lab.sweep.measure import Bound, Measurement
from prefillwatch.lab.sweep.redaction import without_secrets
from prefillwatch.lab.sweep.sweep import SweepSettings, row_label
from prefillwatch.report import counted, duration, listed


def plan_lines(settings: SweepSettings, measurement: Measurement, each: Bound, done: Sequence[str]) -> list[str]:
    """``done`` are the labels that were measured before."""
    labels = [row_label(setting) for setting in settings.settings]
    left = [label for label in labels if label not in done]
    lines = [f"{counted(len(labels), 'setting')} of {shlex.join(without_secrets(settings.command))}:"]
    lines += [f"  {label}{' (measured before)' if label in done else ''}" for label in labels]
    if not left:
        return [*lines, "All are measured; nothing is started."]
    return [*lines, f"On each: {_what(measurement)}.", _cost(settings, each, len(left))]


def _what(measurement: Measurement) -> str:
    probe, mix = measurement.probe, measurement.mix
    parts = []
    if measurement.injects:
        prompts = listed(map(str, measurement.injects))
        times = f", {probe.repeats} times over" if probe.repeats > 1 else ""
        parts.append(
            f"{prompts} prompts of {max(probe.prompt_tokens):,} tokens at once into {probe.victims} streams{times}"
        )
    if mix.seconds:
        requests = len(measurement.schedule().arrivals)
        parts.append(
            f"a mix of {requests} requests in {duration(mix.seconds)} beside {counted(mix.readers, 'steady reader')}"
        )
    return "; then ".join(parts)


def _cost(settings: SweepSettings, each: Bound, left: int) -> str:
    tokens = f"at most {left * each.tokens:,} tokens, {each.tokens:,} for each setting"
    times = f"{duration(each.shortest_seconds)} to {duration(each.longest_seconds)} each once its server is up"
    longest = duration(left * settings.longest_seconds(each))
    start = duration(settings.start_limit_seconds)
    return f"Bounds: {tokens}; {times}; {counted(left, 'start')} of at most {start}; over within {longest}."
