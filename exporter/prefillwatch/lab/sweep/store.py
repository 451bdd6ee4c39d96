"""The file of results: written whole after every setting, read again to go on where a sweep ended."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from prefillwatch import __version__
from prefillwatch.errors import ConfigError, PrefillwatchError
from prefillwatch.lab.sweep.figures import Outcome
from prefillwatch.lab.sweep.pareto import pareto_front

FORMAT: Final = "prefillwatch sweep"
VERSION: Final = 1


class ResultsError(PrefillwatchError):
    """The results could not be written."""


class Results(msgspec.Struct, kw_only=True):
    """What the file holds. Times are Unix seconds; commands are without secrets."""

    format: str = FORMAT
    version: int = VERSION
    prefillwatch: str = __version__
    command: tuple[str, ...]
    #: What was done on each setting; rows can be held against each other only where it is the same.
    measurement: dict[str, Any]
    model: str | None = None
    started_at: float
    finished_at: float | None = None
    settings: list[Outcome] = msgspec.field(default_factory=list)
    #: Labels of the settings that no other beats.
    pareto_front: tuple[str, ...] = ()


@dataclass(slots=True)
class Store:
    """Results and the file that they are kept in."""

    path: Path
    results: Results
    #: Labels that were in the file already, measured.
    resumed: tuple[str, ...] = ()
    _order: list[str] = field(default_factory=list)

    def measured(self, label: str) -> bool:
        return any(row.label == label and row.failure is None for row in self.results.settings)

    def add(self, outcome: Outcome) -> None:
        """Replaces what was known of the setting; on disk when this returns. Raises ResultsError."""
        rows = {row.label: row for row in self.results.settings}
        rows[outcome.label] = outcome
        places = {label: place for place, label in enumerate(self._order)}
        self.results.settings = sorted(rows.values(), key=lambda row: places.get(row.label, len(places)))
        self.results.pareto_front = tuple(row.label for row in pareto_front(self.results.settings))
        self.write()

    def write(self) -> None:
        """Raises ResultsError."""
        text = msgspec.json.format(msgspec.json.encode(self.results), indent=2)
        try:
            _replace(self.path, text + b"\n")
        except OSError as error:
            raise ResultsError(
                f"cannot write results to {self.path}: {error.strerror}; name another by --json"
            ) from None


def open_store(
    path: Path,
    command: Sequence[str],
    measurement: Mapping[str, Any],
    labels: Sequence[str],
    *,
    now: float,
    overwrite: bool = False,
) -> Store:
    """The results in a file that is there, if they were made the same way; else new ones.

    Raises ConfigError when the file holds something else, or results of another command or measurement.
    """
    # As it will read in the file: tuples are lists there.
    made: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(dict(measurement)))
    known = None if overwrite else _read(path)
    if known is None:
        return Store(path, Results(command=tuple(command), measurement=made, started_at=now), _order=list(labels))
    differing = _differences(known, tuple(command), made)
    if differing:
        raise ConfigError(
            f"{path} holds results of another sweep ({'; '.join(differing)}), which cannot be held against these; "
            "write to another file with --json, or add --overwrite to begin anew"
        )
    resumed = tuple(row.label for row in known.settings if row.failure is None)
    return Store(path, known, resumed, list(labels))


def _read(path: Path) -> Results | None:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}; name another file by --json") from None
    try:
        results = msgspec.json.decode(data, type=Results)
        if (results.format, results.version) != (FORMAT, VERSION):
            raise msgspec.ValidationError("of another kind or version")
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path} holds no results of a sweep ({error}); name another file by --json, or add --overwrite"
        ) from None
    return results


def _differences(known: Results, command: tuple[str, ...], made: Mapping[str, Any]) -> list[str]:
    found = [] if known.command == command else ["the command differs"]
    for name in sorted({*known.measurement, *made}):
        there, here = known.measurement.get(name), made.get(name)
        if there != here:
            found.append(f"{name.replace('_', ' ')} {_shown(there)} there, {_shown(here)} here")
    return found


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, list):
        return ",".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _replace(path: Path, data: bytes) -> None:
    """All or nothing: whenever the program is stopped, the file is the old one or the new one."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
