"""From a file to a schedule.

What is read, beside plain rows (`arrival`, `prompt_tokens`, `output_tokens`):

- Mooncake: `timestamp` (milliseconds), `input_length`, `output_length`, `hash_ids` (one for each 512 prompt tokens;
  equal ids are equal text, so prefix caches meet what they met then); Qwen-Bailian and vLLM's timed traces have the
  same names with seconds and 16 tokens
- Azure LLM inference: `TIMESTAMP` (date and time), `ContextTokens`, `GeneratedTokens`; vidur's form of it
- BurstGPT: `Timestamp` (seconds), `Request tokens`, `Response tokens`
- AIBrix: `timestamp` (milliseconds) and `requests`; WEKA: conversations of `t`, `in`, `out`, `hash_ids`
- OpenTelemetry spans of model calls; ServeGen's chunks, one or a folder of them, each of which is a tenant

A unit or block size that a file does not name is found out where its numbers prove it, taken as usual where not, said
either way, and may be given.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from prefillwatch.lab.arrivals.fields import Row, row_of
from prefillwatch.lab.arrivals.file_units import UNITS_S, block_size, unit_by_evidence, unit_by_size
from prefillwatch.lab.arrivals.files import FORM, objects, opened
from prefillwatch.lab.arrivals.schedule import MOONCAKE_BLOCK, Arrival, ArrivalsError, Schedule
from prefillwatch.lab.arrivals.servegen import generate, is_servegen
from prefillwatch.lab.arrivals.shapes import CHARACTERS_PER_TOKEN, ESTIMATED, requests_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Any

#: More arrivals than this are not read from one file.
MOST_ARRIVALS: Final = 500_000


@dataclass(frozen=True, slots=True)
class Reading:
    """What the user says of a file; None is left to be found out."""

    #: Of its times: s, ms, us or ns.
    unit: str | None = None
    block_tokens: int | None = None
    #: Requests (or conversations) a second, where the file does not say when they came.
    rate: float | None = None
    seed: int = 1


def read_arrivals(path: Path, reading: Reading | None = None) -> Schedule:
    """The schedule in a file. Raises `ArrivalsError`."""
    reading = reading or Reading()
    if path.is_dir():
        made = True
    else:
        with opened(path) as file:
            made = is_servegen(file.readline(1 << 12))
    if made:
        _refuse_rate(path, reading)
        return generate(path, MOST_ARRIVALS, reading.seed)
    return _schedule(path, reading, _Rows(path, reading))


class _Rows:
    """The requests of a file, and how many of them are not sent."""

    def __init__(self, path: Path, reading: Reading) -> None:
        self.rows: list[Row] = []
        self.left_out: Counter[str] = Counter()
        self.estimated = 0
        for place, fields in _requests(path):
            if len(self.rows) >= MOST_ARRIVALS:
                self.left_out[f"beyond the first {MOST_ARRIVALS:,}"] += 1
                continue
            try:
                row = row_of(fields, timeless=reading.rate is not None)
            except ValueError as error:
                raise ArrivalsError(f"{path}, {place}: {error}") from None
            if not row.prompt_tokens:
                self.left_out["without prompt tokens"] += 1
            elif not row.output_tokens:
                self.left_out["failed: without an answer"] += 1
            else:
                self.rows.append(row)
                self.estimated += bool(fields.get(ESTIMATED))


def _requests(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    with opened(path) as file:
        for place, whole in objects(path, file):
            for fields in _held(path, place, whole):
                yield place, fields


def _held(path: Path, place: str, whole: dict[str, Any]) -> list[dict[str, Any]]:
    try:
        return list(requests_in(whole))
    except ValueError as error:
        raise ArrivalsError(f"{path}, {place}: {error}") from None


def _schedule(path: Path, reading: Reading, read: _Rows) -> Schedule:
    rows, left_out = read.rows, read.left_out
    if not rows:
        lost = left_out.total()
        what = f"it is empty; expected is {FORM}"
        if lost:
            why = "prompt tokens" if left_out["without prompt tokens"] else "an answer"
            what = f"none of its {lost} arrivals has {why}"
        raise ArrivalsError(f"{path} holds nothing that could be sent: {what}")
    said: list[str] = []
    block_tokens, proven = _block_tokens(rows, reading, said)
    times = _times(path, rows, reading, proven, said)
    if read.estimated:
        said.append(f"{read.estimated:,} lengths estimated from texts, {CHARACTERS_PER_TOKEN} characters a token")
    said += [f"{count:,} left out ({why})" for why, count in left_out.items() if count]
    found = sorted(
        (
            Arrival(time, row.prompt_tokens, row.output_tokens, row.blocks, block_tokens)
            for time, row in zip(times, rows, strict=True)
        ),
        key=lambda arrival: arrival.at_seconds,
    )
    first = found[0].at_seconds
    moved = tuple(replace(each, at_seconds=each.at_seconds - first) for each in found)
    return Schedule(moved, left_out.total(), tuple(said))


def _block_tokens(rows: list[Row], reading: Reading, said: list[str]) -> tuple[int, int | None]:
    """Tokens of a block, and the same once more where it is proven."""
    counts = [(row.prompt_tokens, len(row.blocks)) for row in rows if row.blocks]
    if not counts:
        return MOONCAKE_BLOCK, None
    if reading.block_tokens is not None:
        said.append(f"blocks of {reading.block_tokens} tokens (as given)")
        return reading.block_tokens, None
    size, proven, why = block_size(counts, rows[0].usual_block)
    said.append(f"blocks of {size} tokens ({why})")
    return size, size if proven else None


def _times(path: Path, rows: list[Row], reading: Reading, blocks: int | None, said: list[str]) -> list[float]:
    """In seconds, on the file's clock."""
    if all(row.time is None for row in rows):
        said.append(f"no times in the file: {reading.rate:g} a second, gaps at random")
        rng = random.Random(f"arrivals {reading.seed}")
        times = [0.0]
        while len(times) < len(rows):
            times.append(times[-1] + rng.expovariate(reading.rate or 1.0))
        return times
    if any(row.time is None for row in rows):
        raise ArrivalsError(f"{path}: some rows have a time and some have none; give all of them one, or none")
    numbers = [row.time for row in rows if row.time is not None]
    unit, why = _unit(rows, numbers, reading, blocks)
    said.append(f"times in {unit} ({why})")
    times = [number * UNITS_S[unit] for number in numbers]
    if len({row.conversation for row in rows}) > 1:
        return _conversations(rows, times, reading, said)
    _refuse_rate(path, reading)
    return times


def _unit(rows: list[Row], numbers: list[float], reading: Reading, blocks: int | None) -> tuple[str, str]:
    first = rows[0]
    if reading.unit is not None and first.why != "they are dates":
        return reading.unit, "as given"
    if first.unit is not None and first.why in ("they are dates", "by the field's name"):
        return first.unit, first.why
    if large := unit_by_size(numbers):
        return large, "too large for seconds"
    return (first.unit, first.why) if first.unit is not None else unit_by_evidence(numbers, blocks)


def _conversations(rows: list[Row], times: list[float], reading: Reading, said: list[str]) -> list[float]:
    """Times count from the start of each conversation; when those began, only a rate can tell."""
    rng = random.Random(f"arrivals {reading.seed}")
    starts: dict[object, float] = {}
    at = 0.0
    for row in rows:
        if row.conversation not in starts:
            starts[row.conversation] = at
            at += rng.expovariate(reading.rate) if reading.rate else 0.0
    begun = f"begun at random, {reading.rate:g} a second" if reading.rate else "all begun at once, for want of a rate"
    said.append(f"{len(starts):,} conversations, {begun}")
    return [time + starts[row.conversation] for time, row in zip(times, rows, strict=True)]


def _refuse_rate(path: Path, reading: Reading) -> None:
    if reading.rate is not None:
        raise ArrivalsError(f"{path} says when its requests came; a rate is for files without times")
