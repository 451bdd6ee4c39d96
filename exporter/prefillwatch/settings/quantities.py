"""Durations, sizes and token counts as people write them: ``500ms``, ``1m30s``, ``64MiB``, ``8k``."""

from __future__ import annotations

import re
from typing import Final

_SECONDS_PER: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES_PER: Final = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
}
# More digits are a slip, and more than a float or 64 bits hold.
_NUMBER: Final = r"[0-9]{1,15}(?:\.[0-9]{1,15})?"
_DURATION_PART: Final = re.compile(rf"({_NUMBER})(us|ms|s|m|h|d)")
_DURATION: Final = re.compile(rf"(?:{_DURATION_PART.pattern})+")
_SIZE: Final = re.compile(rf"({_NUMBER})\s*([A-Za-z]*)")
_TOKENS: Final = re.compile(r"([0-9]{1,15})([kK]?)")


def parse_duration(text: str) -> float:
    """Seconds in a duration such as ``500ms``, ``60s`` or ``1m30s``; ``0`` needs no unit. Raises ValueError."""
    stripped = text.strip()
    if stripped in ("0", "0.0"):
        return 0.0
    if not _DURATION.fullmatch(stripped):
        raise ValueError(f"{text!r} is not a duration; write a number with its unit, for example 500ms, 60s or 5m")
    return sum(float(number) * _SECONDS_PER[unit] for number, unit in _DURATION_PART.findall(stripped))


def parse_size(text: str) -> int:
    """Bytes in a size such as ``64MiB``, ``10MB`` or ``65536``. Raises ValueError."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or match[2].lower() not in _BYTES_PER:
        raise ValueError(f"{text!r} is not a size; write a number of bytes or one with a unit, for example 64MiB")
    return int(float(match[1]) * _BYTES_PER[match[2].lower()])


def parse_tokens(text: str) -> int:
    """Tokens in a count such as ``512`` or ``8k``; k is 1,024, as in context lengths. Raises ValueError."""
    match = _TOKENS.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a number of tokens; write for example 512 or 8k")
    return int(match[1]) * (1024 if match[2] else 1)


def format_duration(seconds: float) -> str:
    """A duration with the largest unit that leaves a whole number: 60.0 gives ``1m``, 0.5 gives ``500ms``."""
    microseconds = round(seconds * 1e6)
    for unit, factor in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1), ("ms", 1e-3)):
        in_unit = round(factor * 1e6)
        if microseconds and microseconds % in_unit == 0:
            return f"{microseconds // in_unit}{unit}"
    return f"{microseconds}us" if microseconds else "0"


def format_size(size: int) -> str:
    """A size with the largest unit that leaves a whole number: 67108864 gives ``64MiB``."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size and size % factor == 0:
            return f"{size // factor}{unit}"
    return f"{size}B"


def format_tokens(tokens: int) -> str:
    """A token count as in the bucket names: 512 stays ``512``, 8192 gives ``8k``."""
    return f"{tokens // 1024}k" if tokens >= 1024 and tokens % 1024 == 0 else str(tokens)
