"""Reads source.yml, and scales its times for tests that cannot wait minutes."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from prefillwatch.contract import limits

SOURCE = Path(__file__).parent.parent / "source.yml"

_UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_LIMIT = "limits."
_DURATION = re.compile(r"(\d+)(ms|[smhd])")


def parse_duration(text: str) -> float:
    """Seconds of a duration such as 5m or 1h30m. Raises ValueError for anything else."""
    parts = _DURATION.findall(text)
    if "".join(number + unit for number, unit in parts) != text or not text:
        raise ValueError(f"{text!r} is no duration; write it as 15s, 5m or 1h30m")
    return sum(int(number) * _UNITS[unit] for number, unit in parts)


def format_duration(seconds: float) -> str:
    """The shortest single-unit form: 300 gives 5m, 90 gives 90s, 0.5 gives 500ms."""
    for unit, size in _UNITS.items():
        if seconds >= size and abs(seconds / size - round(seconds / size)) < 1e-9:
            return f"{round(seconds / size)}{unit}"
    return f"{max(1, round(seconds * 1000))}ms"


@dataclass(frozen=True, slots=True)
class Duration:
    """A time in an expression. ``name`` is what recording rules are named by; it stays when the time is scaled."""

    name: str
    seconds: float

    def __str__(self) -> str:
        return format_duration(self.seconds)


@dataclass(frozen=True, slots=True)
class BurnRate:
    factor: float
    long: Duration
    short: Duration
    hold: Duration
    severity: str


@dataclass(frozen=True)
class Source:
    """What source.yml says. ``scale`` multiplies every duration: 1/15 makes a rule of minutes one of seconds."""

    raw: dict[str, Any]
    scale: float = 1.0

    def duration(self, text: str) -> Duration:
        return Duration(text, parse_duration(text) * self.scale)

    def scaled(self, scale: float) -> Source:
        return dataclasses.replace(self, scale=scale)

    # --- Names ---

    def metric(self, name: str) -> str:
        return f"{self.raw['names']['metric_prefix']}{name}"

    def vllm_metric(self, name: str) -> str:
        return f"{self.raw['names']['vllm_prefix']}{name}"

    @property
    def job(self) -> str:
        return str(self.raw["names"]["job"])

    @property
    def vllm_job(self) -> str:
        return str(self.raw["names"]["vllm_job"])

    @property
    def replica_label(self) -> str:
        return str(self.raw["names"]["replica_labels"][0])

    @property
    def replica_labels(self) -> str:
        return ", ".join(self.raw["names"]["replica_labels"])

    def runbook(self, alert: str) -> str:
        names = self.raw["names"]
        return f"{names['runbook_base']}{alert}{names['runbook_suffix']}"

    # --- Times ---

    @cached_property
    def scrape(self) -> Duration:
        return self.duration(self.raw["intervals"]["scrape"])

    @cached_property
    def evaluation(self) -> Duration:
        return self.duration(self.raw["intervals"]["evaluation"])

    @cached_property
    def diagnosis(self) -> Duration:
        return self.duration(self.raw["windows"]["diagnosis"])

    @cached_property
    def freeze(self) -> Duration:
        return self.duration(self.raw["windows"]["freeze"])

    @cached_property
    def level(self) -> Duration:
        return self.duration(self.raw["windows"]["level"])

    @cached_property
    def start(self) -> Duration:
        return self.duration(self.raw["windows"]["start"])

    @cached_property
    def restarts(self) -> Duration:
        return self.duration(self.raw["windows"]["restarts"])

    @cached_property
    def renewals(self) -> Duration:
        return self.duration(self.raw["windows"]["renewals"])

    @cached_property
    def signal(self) -> Duration:
        return self.duration(self.raw["windows"]["signal"])

    def hold(self, alert: str) -> Duration:
        return self.duration(self.raw["holds"][alert]["for"])

    def keep(self, alert: str) -> Duration:
        return self.duration(self.raw["holds"][alert]["keep"])

    # --- Numbers ---

    def threshold(self, name: str) -> float:
        return float(self.raw["thresholds"][name])

    def words(self, name: str) -> list[str]:
        return [str(word) for word in self.raw["thresholds"][name]]

    @property
    def promises(self) -> dict[str, Any]:
        return dict(self.raw["promises"])

    @cached_property
    def burn_rates(self) -> tuple[BurnRate, ...]:
        return tuple(
            BurnRate(
                float(entry["factor"]),
                self.duration(entry["long"]),
                self.duration(entry["short"]),
                self.duration(entry["for"]),
                entry["severity"],
            )
            for entry in self.raw["burn_rates"]
        )


def load(path: Path = SOURCE) -> Source:
    """Raises ValueError where a duration cannot be read, and for a limit that does not exist."""
    raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    for part in ("promises", "thresholds"):
        raw[part] = {name: _limit(f"{part}.{name}", value) for name, value in raw[part].items()}
    source = Source(raw)
    _check(source)
    return source


def _limit(place: str, value: Any) -> Any:
    """The value itself, or the limit of the contract that it names."""
    if not isinstance(value, str):
        return value
    name = value.removeprefix(_LIMIT)
    if not value.startswith(_LIMIT) or not name.isupper() or not hasattr(limits, name):
        raise ValueError(f"{place} is {value!r}; write a number, or {_LIMIT}NAME with a name in contract/limits.py")
    found = getattr(limits, name)
    return dict(found) if isinstance(found, Mapping) else list(found) if isinstance(found, tuple) else found


def _check(source: Source) -> None:
    """Everything lazily read is read once here, so that a mistake shows at the start."""
    if source.diagnosis.seconds < 4 * source.scrape.seconds:
        raise ValueError(
            f"windows.diagnosis ({source.diagnosis}) is shorter than four scrapes ({source.scrape}); lengthen it"
        )
    _ = source.evaluation, source.freeze, source.level, source.start, source.restarts
    _ = source.renewals, source.signal
    _ = source.burn_rates
    for alert in source.raw["holds"]:
        source.keep(alert)
