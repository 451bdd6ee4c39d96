"""The figures of an earlier probe, read back from its JSON file to compare with."""

from __future__ import annotations

from pathlib import Path

import msgspec

from prefillwatch.errors import ConfigError
from prefillwatch.lab.probe.figures import Spread
from prefillwatch.lab.probe.sentences import Side


class _Spread(msgspec.Struct):
    samples: int
    p50_seconds: float | None = None
    p99_seconds: float | None = None
    max_seconds: float | None = None

    def spread(self) -> Spread:
        return Spread(self.samples, self.p50_seconds, self.p99_seconds, self.max_seconds)


class _Probe(msgspec.Struct):
    overall: _Spread
    window: _Spread
    label: str = ""


def read_side(file: Path) -> Side:
    """Raises ConfigError when the file is not what `prefillwatch probe --json` writes."""
    try:
        probe = msgspec.json.decode(file.read_bytes(), type=_Probe)
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(f"{file} is no file that prefillwatch probe --json has written ({error})") from None
    return Side(probe.label or file.name, probe.overall.spread(), probe.window.spread())
