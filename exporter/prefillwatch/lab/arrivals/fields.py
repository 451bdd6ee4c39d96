"""One request of a file: which of its fields are the time, the prompt's and the answer's tokens, and the blocks.

Names are those of public traces, in lower case without spaces and marks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping

_MOST_TOKENS: Final = 10_000_000
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
    "t",
)
_SUFFIXES: Final = {
    "": None,
    "s": "s",
    "sec": "s",
    "seconds": "s",
    "ms": "ms",
    "milliseconds": "ms",
    "us": "us",
    "ns": "ns",
}
#: Also with a unit appended. "ts" is a time without a unit, not a "t" in seconds.
_TIME_NAMES: Final = {
    **{name + suffix: unit for name in _TIMES for suffix, unit in _SUFFIXES.items() if name != "t"},
    "t": None,
    "ts": None,
}
#: Mooncake has it with milliseconds, others with seconds.
_EITHER_UNIT: Final = "inputlength"
_PROMPT: Final = re.compile("(num)?(prompt|input|context|request|prefill)(tokens|length|len)|in")
_OUTPUT: Final = re.compile("(num)?(output|generated|response|completion|decode)(tokens|length|len)|out")
#: Known by fields that only one maker's files have: the usual size of a block, and the unit of times where it is known.
_MAKERS: Final = (
    ("chatid", 16, "s"),
    ("t", 64, "s"),
    ("batchtimestamp", 512, "ms"),
)


@dataclass(frozen=True, slots=True)
class Row:
    """A request as the file has it."""

    #: In `unit`; None where the file has no times.
    time: float | None
    #: None where neither the field's name nor its form tells.
    unit: str | None
    #: What tells the unit.
    why: str
    prompt_tokens: int
    output_tokens: int
    blocks: tuple[Hashable, ...]
    usual_block: int
    conversation: Hashable


def plain_key(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def row_of(fields: Mapping[str, Any], *, timeless: bool) -> Row:
    """Raises ValueError, in words for the user; without a time only where ``timeless`` allows it."""
    prompt_name = _name_of(fields, _PROMPT, "prompt_tokens")
    time_name = next((name for name in _TIME_NAMES if fields.get(name) not in (None, "")), None)
    if time_name is None and not timeless:
        raise ValueError(f"{_missing(fields, 'arrival')}; add it, or give a rate by --arrivals-rate")
    maker = next((maker for maker in _MAKERS if maker[0] in fields), None)
    usual_block, usual_unit = maker[1:] if maker else (512, None if prompt_name == _EITHER_UNIT else "s")
    time, unit, why = None, None, ""
    if time_name is not None:
        time, unit, why = _time(time_name, fields[time_name])
        if unit is None and usual_unit is not None:
            unit, why = usual_unit, "as is usual beside such fields"
    return Row(
        time,
        unit,
        why,
        _tokens(fields, prompt_name),
        _tokens(fields, _name_of(fields, _OUTPUT, "output_tokens")),
        _blocks(fields),
        usual_block,
        fields.get("id") if "t" in fields else None,
    )


def _blocks(fields: Mapping[str, Any]) -> tuple[Hashable, ...]:
    """Ids of a conversation's own (WEKA's) mean nothing in another."""
    ids = fields.get("hashids")
    if not isinstance(ids, list):
        return ()
    blocks = [block for block in ids if isinstance(block, (int, str))]
    if "t" in fields and fields.get("hashidscope") != "global":
        return tuple((str(fields.get("id")), block) for block in blocks)
    return tuple(blocks)


def has_prompts(names: Iterable[str]) -> bool:
    """Whether one of the plain names is that of a prompt's tokens."""
    return any(map(_PROMPT.fullmatch, names))


def _name_of(fields: Mapping[str, Any], names: re.Pattern[str], usual: str) -> str:
    name = next((name for name, value in fields.items() if value not in (None, "") and names.fullmatch(name)), None)
    if name is None:
        raise ValueError(f"{_missing(fields, usual)}; add it")
    return name


def _missing(fields: Mapping[str, Any], usual: str) -> str:
    return f'no "{usual}" (or another common name of it) among {", ".join(fields)[:200] or "no fields"}'


def _tokens(fields: Mapping[str, Any], name: str) -> int:
    value = fields[name]
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


def _time(name: str, value: Any) -> tuple[float, str | None, str]:
    """A number with the unit that its name has, or a date and time in seconds."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return _date_seconds(name, value), "s", "they are dates"
    if isinstance(value, bool) or not -1e19 < number < 1e19:
        raise ValueError(f"{name} is {value!r:.40}, but must be a time in seconds, or a date and time")
    return number, _TIME_NAMES[name], "by the field's name"


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
