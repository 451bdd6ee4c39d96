"""Load in the manner of ServeGen's clients: windows with a rate and the shape of the gaps, and lengths as shares.

`chunk-N-trace.csv` has no header: start of the window in seconds, requests a second, coefficient of variation, the
distribution of the gaps (Gamma, Weibull, or none) and its shape and scale. `chunk-N-dataset.json` beside it has, for
windows of its own, the share of each length. Such a pair is one client of many; a folder holds several.
"""

from __future__ import annotations

import bisect
import csv
import heapq
import itertools
import random
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import msgspec

from prefillwatch.lab.arrivals.files import LARGEST_WHOLE, numbered_lines, opened
from prefillwatch.lab.arrivals.schedule import Arrival, ArrivalsError, Schedule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_COLUMNS: Final = 6
_LAST_WINDOW_S: Final = 600.0
_MOST_PER_WINDOW: Final = 1_000_000
_TRACE: Final = "-trace.csv"
_DATASET: Final = "-dataset.json"
_SHARE: Final = re.compile(r"(\d{1,8})\s*:\s*([0-9.eE+-]{1,32})")


@dataclass(frozen=True, slots=True)
class Window:
    start_seconds: float
    seconds: float
    rate: float
    kind: str
    #: Of the gaps. Their scale is not kept: it follows from the rate.
    shape: float


@dataclass(frozen=True, slots=True)
class Lengths:
    """Lengths with how often each comes, added up."""

    values: tuple[int, ...]
    summed: tuple[float, ...]

    def draw(self, rng: random.Random) -> int:
        at = bisect.bisect(self.summed, rng.random() * self.summed[-1])
        return self.values[min(at, len(self.values) - 1)]


def is_servegen(first_line: str) -> bool:
    """Whether a file begins like such a trace: six columns, no header."""
    cells = first_line.strip().split(",")
    return len(cells) == _COLUMNS and all(_number(cell) is not None for cell in cells[:2])


def generate(path: Path, most: int, seed: int = 1) -> Schedule:
    """Of one client, or of all whose files are in a folder, each of which is a tenant of its own. The same requests for
    the same seed, and those of a client whoever is beside it. Raises ArrivalsError."""
    traces = sorted(_traces(path), key=_number_of) if path.is_dir() else [path]
    if not traces:
        raise ArrivalsError(f"{path} holds no client of ServeGen: files named chunk-1{_TRACE} with chunk-1{_DATASET}")
    clients = [_client(each, seed, tenant=path.is_dir()) for each in traces]
    in_order = heapq.merge(*clients, key=lambda arrival: arrival.at_seconds)
    found = list(itertools.islice(in_order, most))
    if not found:
        raise ArrivalsError(f"{path} holds nothing that could be sent: no window has a rate above 0")
    first = found[0].at_seconds
    arrivals = tuple(replace(each, at_seconds=each.at_seconds - first) for each in found)
    said = [
        f"made at random by ServeGen's rates, gaps and lengths, from {first:,.0f} s on; no request of it was recorded"
    ]
    if path.is_dir():
        said.append(f"{len(traces):,} clients, each the user of its requests")
    return Schedule(arrivals, sum(1 for _ in in_order), tuple(said))


def _traces(folder: Path) -> list[Path]:
    try:
        return [each for each in folder.iterdir() if each.name.removesuffix(".gz").endswith(_TRACE)]
    except OSError as error:
        raise ArrivalsError(f"cannot read the folder {folder}: {error.strerror}") from None


def _number_of(trace: Path) -> tuple[int, str]:
    return int(next(iter(re.findall(r"\d{1,9}", trace.name)), 0)), trace.name


def _client(trace: Path, seed: int, *, tenant: bool) -> Iterator[Arrival]:
    name = trace.name.removesuffix(".gz").removesuffix(_TRACE)
    windows = list(_windows(trace))
    prompts, outputs = _lengths(trace.with_name(name + _DATASET))
    rng = random.Random(f"servegen {seed} {name}" if tenant else f"servegen {seed}")
    client = name.replace("chunk", "client") if tenant else ""

    def arrivals() -> Iterator[Arrival]:
        for window in windows:
            if window.rate > 0:
                prompt, output = (_at(lengths, window.start_seconds) for lengths in (prompts, outputs))
                for time in _times(window, rng):
                    yield Arrival(time, prompt.draw(rng), max(1, output.draw(rng)), tenant=client)

    return arrivals()


def _windows(path: Path) -> Iterator[Window]:
    with opened(path) as file:
        rows = [(number, next(csv.reader([text]))) for number, text in numbered_lines(path, file)]
    starts = [_number(cells[0]) for _, cells in rows]
    for (number, cells), start, end in itertools.zip_longest(rows, starts, starts[1:]):
        rate = _number(cells[1]) if len(cells) == _COLUMNS else None
        if start is None or rate is None or not 0 <= rate * _LAST_WINDOW_S <= _MOST_PER_WINDOW:
            raise ArrivalsError(
                f"{path}, line {number}: no window of ServeGen (start,rate,cv,distribution,shape,scale)"
            )
        seconds = _LAST_WINDOW_S if end is None else end - start
        if not seconds > 0:
            raise ArrivalsError(f"{path}, line {number}: the next window does not begin later")
        yield Window(start, seconds, rate, cells[3].strip().lower(), _number(cells[4]) or 1.0)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if -1e12 < number < 1e12 else None


def _times(window: Window, rng: random.Random) -> Iterator[float]:
    """As many as the rate makes of the window, with gaps of the shape given, fitted into it."""
    expected = window.rate * window.seconds
    count = int(expected) + (rng.random() < expected % 1)
    gap: Callable[[], float] = {
        "gamma": lambda: rng.gammavariate(max(window.shape, 0.01), 1.0),
        "weibull": lambda: rng.weibullvariate(1.0, max(window.shape, 0.1)),
    }.get(window.kind, lambda: rng.expovariate(1.0))
    ends = list(itertools.accumulate(gap() for _ in range(count + 1)))
    scale = window.seconds / ends[-1] if ends[-1] else 0.0
    return (window.start_seconds + end * scale for end in ends[:-1])


def _lengths(path: Path) -> tuple[dict[float, Lengths], dict[float, Lengths]]:
    with opened(path) as file:
        text = file.read(LARGEST_WHOLE)
    try:
        windows = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ArrivalsError(f"{path}: no valid JSON ({error}); it has the lengths of ServeGen's windows") from None
    if not isinstance(windows, dict):
        raise ArrivalsError(f"{path}: no object of windows with input_tokens and output_tokens")
    found: tuple[dict[float, Lengths], dict[float, Lengths]] = ({}, {})
    for start, each in windows.items():
        for name, lengths in zip(("input_tokens", "output_tokens"), found, strict=True):
            shares = _shares(each.get(name) if isinstance(each, dict) else None)
            if shares and (at := _number(start)) is not None:
                lengths[at] = shares
    if not all(found):
        raise ArrivalsError(f"{path}: no window has both input_tokens and output_tokens")
    return found


def _shares(text: Any) -> Lengths | None:
    """Of a dictionary written as text, as the files have it."""
    pairs = [(int(length), _number(share) or 0.0) for length, share in _SHARE.findall(str(text))]
    pairs = [(length, share) for length, share in pairs if length > 0 and share > 0]
    if not pairs:
        return None
    return Lengths(tuple(length for length, _ in pairs), tuple(itertools.accumulate(share for _, share in pairs)))


def _at(lengths: dict[float, Lengths], seconds: float) -> Lengths:
    """Of the window that holds the moment; where that is empty, of the nearest that is not."""
    holding = max((start for start in lengths if start <= seconds), default=None)
    nearest = min(lengths, key=lambda start: abs(start - seconds))
    return lengths[nearest if holding is None else holding]
