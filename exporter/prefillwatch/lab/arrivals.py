"""Access patterns of recorded traffic: a file of arrivals with prompt and output tokens becomes load.

One JSON object a line, or CSV with a header line. Field names are those of public traces, whatever their case:

- Mooncake: `timestamp` (milliseconds), `input_length`, `output_length`, `hash_ids` (one for each 512 prompt tokens;
  equal ids are equal text, so prefix caches meet what they met then)
- Azure LLM inference: `TIMESTAMP` (date and time), `ContextTokens`, `GeneratedTokens`
- BurstGPT: `Timestamp` (seconds), `Request tokens`, `Response tokens`
- and the plain ones: `arrival`, `arrived_at`, `prompt_tokens`, `output_tokens` …

A time may name its unit (`arrival_ms`). Else it is in seconds, but in milliseconds beside `input_length`, as Mooncake
has it, or where seconds would be thousands of years after 1970.
"""

from __future__ import annotations

import asyncio
import csv
import itertools
import random
import re
import time
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Final, TextIO

import msgspec

from prefillwatch.errors import ConfigError
from prefillwatch.lab.client import Answer, ask
from prefillwatch.lab.words import SINGLE_MESSAGE_OVERHEAD, WORDS, prompt_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
    from pathlib import Path

#: More arrivals than this are not read from one file.
MOST_ARRIVALS: Final = 500_000
_LONGEST_LINE: Final = 1 << 20
_MOST_TOKENS: Final = 10_000_000
_BLOCK_TOKENS: Final = 512

_TIMES: Final = (
    "timestamp",
    "arrival",
    "arrivedat",
    "arrivaltime",
    "arrivaltimestamp",
    "createdtime",
    "createdat",
    "startedat",
    "starttime",
    "time",
    "ts",
)
_UNITS_S: Final = {
    "": None,
    "s": 1.0,
    "sec": 1.0,
    "seconds": 1.0,
    "ms": 1e-3,
    "milliseconds": 1e-3,
    "us": 1e-6,
    "ns": 1e-9,
}
_TIME_NAMES: Final = {name + unit: factor for name in _TIMES for unit, factor in _UNITS_S.items()}
_MOONCAKE: Final = "inputlength"
_PROMPTS: Final = (
    _MOONCAKE,
    "prompttokens",
    "contexttokens",
    "requesttokens",
    "inputtokens",
    "promptlength",
    "promptlen",
    "inputlen",
    "numprompttokens",
    "numprefilltokens",
)
_OUTPUTS: Final = (
    "outputlength",
    "outputtokens",
    "generatedtokens",
    "responsetokens",
    "completiontokens",
    "decodetokens",
    "outputlen",
    "numoutputtokens",
    "numdecodetokens",
)
_FORM: Final = (
    'one JSON object a line such as {"arrival": 0.25, "prompt_tokens": 900, "output_tokens": 120}, or CSV with a header'
)


class ArrivalsError(ConfigError):
    """The file of arrivals cannot be used; the message names the file, the line and what to do."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request: seconds after the first one, and sizes in tokens."""

    at_seconds: float
    prompt_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()
    """Equal numbers stand for equal pieces of 512 prompt tokens; empty where the file does not tell."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Arrivals in order of time, the first at 0. `left_out` were in the file but not sent: failed or beyond a limit."""

    arrivals: tuple[Arrival, ...]
    left_out: int = 0

    @property
    def seconds(self) -> float:
        """From the first arrival to the last."""
        return self.arrivals[-1].at_seconds if self.arrivals else 0.0

    @property
    def prompt_tokens(self) -> int:
        return sum(arrival.prompt_tokens for arrival in self.arrivals)

    @property
    def output_tokens(self) -> int:
        return sum(arrival.output_tokens for arrival in self.arrivals)

    def most_tokens(self, template_tokens: int) -> int:
        """Prompts and answers together, on a server whose chat template has at most so many: none is shorter."""
        return sum(max(each.prompt_tokens, template_tokens) + max(1, each.output_tokens) for each in self.arrivals)

    def fitting(self, max_model_len: int | None) -> Schedule:
        """Without those that with their answers are longer than the model takes, which are counted as left out."""
        if max_model_len is None:
            return self
        kept = tuple(each for each in self.arrivals if each.prompt_tokens + each.output_tokens <= max_model_len)
        return Schedule(kept, self.left_out + len(self.arrivals) - len(kept))

    def limited(
        self,
        *,
        speed: float = 1.0,
        requests: int | None = None,
        tokens: int | None = None,
        seconds: float | None = None,
        prompt_tokens: int | None = None,
    ) -> Schedule:
        """Its beginning, `speed` times as fast: not more than so many requests, tokens (prompts and answers together)
        and seconds (after speeding up), and without prompts longer than `prompt_tokens`, which the model may not take.
        """
        if not speed > 0:
            raise ConfigError(f"speed must be above 0, not {speed:g}: 2 plays arrivals twice as fast")
        kept: list[Arrival] = []
        spent = 0
        for arrival in self.arrivals:
            at_seconds = arrival.at_seconds / speed
            cost = arrival.prompt_tokens + arrival.output_tokens
            if prompt_tokens is not None and arrival.prompt_tokens > prompt_tokens:
                continue
            if len(kept) == requests or (seconds is not None and at_seconds > seconds):
                break
            if tokens is not None and spent + cost > tokens:
                break
            spent += cost
            kept.append(replace(arrival, at_seconds=at_seconds))
        return Schedule(tuple(kept), self.left_out + len(self.arrivals) - len(kept))


def read_arrivals(path: Path) -> Schedule:
    """The schedule in a file. Raises `ArrivalsError`."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return _schedule(path, _rows(path, file))
    except OSError as error:
        raise ArrivalsError(f"cannot read arrivals from {path}: {error.strerror}; give a file of {_FORM}") from None
    except UnicodeDecodeError:
        raise ArrivalsError(f"{path} is no text file (UTF-8); arrivals are {_FORM}") from None


def _schedule(path: Path, rows: Iterable[tuple[int, Mapping[str, Any]]]) -> Schedule:
    found: list[Arrival] = []
    left_out = 0
    for line, row in rows:
        if len(found) >= MOST_ARRIVALS:
            left_out += 1
            continue
        try:
            arrival = _arrival(row)
        except ValueError as error:
            raise ArrivalsError(f"{path}, line {line}: {error}") from None
        if arrival.prompt_tokens:
            found.append(arrival)
        else:
            left_out += 1
    if not found:
        what = f"none of its {left_out} arrivals has prompt tokens" if left_out else f"it is empty; expected is {_FORM}"
        raise ArrivalsError(f"{path} holds nothing that could be sent: {what}")
    found.sort(key=lambda arrival: arrival.at_seconds)
    first = found[0].at_seconds
    return Schedule(tuple(replace(each, at_seconds=each.at_seconds - first) for each in found), left_out)


def _rows(path: Path, file: TextIO) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Numbered lines as objects with plain keys: lower case, letters and digits only."""
    lines = _lines(path, file)
    first = next(lines, None)
    if first is None:
        return
    if first[1].lstrip().startswith("{"):
        for number, text in itertools.chain([first], lines):
            yield number, _plain(_parse(path, number, text))
        return
    if first[1].lstrip().startswith("["):
        raise ArrivalsError(f"{path} is one JSON list; write one object a line, as jq -c '.[]' does")
    header = [_plain_key(name) for name in _fields(path, *first)]
    if not set(header) & set(_PROMPTS):
        raise ArrivalsError(f"{path}, line {first[0]}: neither JSON nor a CSV header with known names; write {_FORM}")
    for number, text in lines:
        yield number, dict(zip(header, _fields(path, number, text), strict=False))


def _fields(path: Path, number: int, text: str) -> list[str]:
    try:
        return next(csv.reader([text]))
    except csv.Error as error:
        raise ArrivalsError(f"{path}, line {number}: no valid CSV ({error}); one request a line") from None


def _lines(path: Path, file: TextIO) -> Iterator[tuple[int, str]]:
    for number in itertools.count(1):
        text = file.readline(_LONGEST_LINE + 1)
        if not text:
            return
        if len(text) > _LONGEST_LINE:
            raise ArrivalsError(f"{path}, line {number}: longer than {_LONGEST_LINE} characters; one request a line")
        if text.strip():
            yield number, text


def _parse(path: Path, number: int, text: str) -> dict[str, Any]:
    try:
        row = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ArrivalsError(f"{path}, line {number}: no valid JSON ({error}); each line is one JSON object") from None
    if not isinstance(row, dict):
        raise ArrivalsError(f"{path}, line {number}: not a JSON object; expected is {_FORM}")
    return row


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    return {_plain_key(name): value for name, value in row.items()}


def _plain_key(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _arrival(row: Mapping[str, Any]) -> Arrival:
    prompt_name = _one_of(row, _PROMPTS, "prompt_tokens")
    time_name = _one_of(row, _TIME_NAMES, "arrival")
    factor = _TIME_NAMES[time_name]
    if factor is None and prompt_name == _MOONCAKE:
        factor = 1e-3
    blocks = row.get("hashids")
    return Arrival(
        _seconds(time_name, row[time_name], factor),
        _tokens(row, prompt_name),
        _tokens(row, _one_of(row, _OUTPUTS, "output_tokens")),
        tuple(block for block in blocks if isinstance(block, int)) if isinstance(blocks, list) else (),
    )


def _one_of(row: Mapping[str, Any], names: Iterable[str], usual: str) -> str:
    name = next((name for name in names if row.get(name) not in (None, "")), None)
    if name is None:
        fields = ", ".join(row)[:200] or "no fields"
        raise ValueError(f'no "{usual}" (or another common name of it) among {fields}; add it')
    return name


def _tokens(row: Mapping[str, Any], name: str) -> int:
    value = row[name]
    try:
        number = float(value)  # a table that knows no gaps in whole numbers writes 374.0
        if isinstance(value, bool) or not number.is_integer():
            raise ValueError
        tokens = int(number)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name} is {value!r:.40}, but must be a whole number of tokens") from None
    if not 0 <= tokens <= _MOST_TOKENS:
        raise ValueError(f"{name} is {tokens}, but must be between 0 and {_MOST_TOKENS}")
    return tokens


def _seconds(name: str, value: Any, factor: float | None) -> float:
    """Of a number with the given unit (None: seconds, unless they are too many), or of a date and time."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return _date_seconds(name, value)
    if isinstance(value, bool) or not -1e19 < number < 1e19:
        raise ValueError(f"{name} is {value!r:.40}, but must be a time in seconds, or a date and time")
    return number * (factor or next(unit for limit, unit in _BY_SIZE if abs(number) < limit))


#: Numbers of this size are no seconds since 1970 any more, but milliseconds, microseconds or nanoseconds.
_BY_SIZE: Final = ((1e11, 1.0), (1e14, 1e-3), (1e17, 1e-6), (float("inf"), 1e-9))


def _date_seconds(name: str, value: Any) -> float:
    """Fractions may have more digits than microseconds need, as Azure's have."""
    text = re.sub(r"(\.\d{6})\d+", r"\1", str(value).strip()).replace("Z", "+00:00")
    text = re.sub(r"\.(\d{1,5})(?=$|[+-])", lambda digits: "." + digits[1].ljust(6, "0"), text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{name} is {value!r:.40}; write seconds (12.5) or a date and time (2024-05-10 00:00:00.009)"
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()


# --- Playing a schedule ---


@dataclass(slots=True)
class PlayReport:
    """What was sent, in the order in which answers ended. `turned_away` were due while `max_in_flight` others ran."""

    answers: list[tuple[Arrival, Answer]] = field(default_factory=list)
    turned_away: int = 0
    sent: int = 0


def sender(
    url: str,
    model: str,
    *,
    prompt: Callable[[Arrival], str] | None = None,
    headers: Mapping[str, str] | None = None,
    timeout_seconds: float = 600.0,
    seed: int = 1,
) -> Callable[[Arrival], Awaitable[Answer]]:
    """Sends an arrival as a streaming chat request; ``prompt`` writes its text (default: `prompt_text`)."""
    rng = random.Random(f"arrivals {seed}")

    async def send(arrival: Arrival) -> Answer:
        text = prompt(arrival) if prompt else prompt_text(arrival, rng)
        body = chat_body(model, text, arrival.output_tokens)
        return await ask(url, body, headers=headers, timeout_seconds=timeout_seconds)

    return send


async def play(
    schedule: Schedule,
    send: Callable[[Arrival], Awaitable[Answer]],
    *,
    max_in_flight: int = 64,
    report: PlayReport | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> PlayReport:
    """Sends each arrival when it is due, whatever became of those before, and waits for the answers.

    Cancelling hangs up on what still runs; what was measured so far is in the ``report`` given.
    """
    report = report if report is not None else PlayReport()
    running: set[asyncio.Task[None]] = set()

    async def one(arrival: Arrival) -> None:
        report.answers.append((arrival, await send(arrival)))

    start = clock()
    try:
        for arrival in schedule.arrivals:
            await asyncio.sleep(max(0.0, start + arrival.at_seconds - clock()))
            if len(running) >= max_in_flight:
                report.turned_away += 1
                continue
            report.sent += 1
            task = asyncio.ensure_future(one(arrival))
            running.add(task)
            task.add_done_callback(running.discard)
        await asyncio.gather(*running)
    finally:
        for task in list(running):
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    return report


def prompt_text(arrival: Arrival, rng: random.Random) -> str:
    """Made-up words, on the simulator exactly as many tokens as asked for; equal blocks get equal words."""
    tokens = max(arrival.prompt_tokens, SINGLE_MESSAGE_OVERHEAD + 1)
    if not arrival.blocks:
        return prompt_of(tokens, rng)
    words: list[str] = []
    own = tokens - SINGLE_MESSAGE_OVERHEAD
    for block in arrival.blocks[: -(-own // _BLOCK_TOKENS)]:
        words += random.Random(f"block {block}").choices(WORDS, k=_BLOCK_TOKENS)
    return " ".join([*words[:own], *rng.choices(WORDS, k=max(0, own - len(words)))])


def chat_body(model: str, text: str, output_tokens: int) -> dict[str, Any]:
    """A streaming chat request for an answer of exactly so many tokens, where the server knows `ignore_eos`."""
    return {
        "model": model,
        "messages": [{"role": "user", "content": text}],
        "max_tokens": max(1, output_tokens),
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": True,
    }
