"""The objects in a file, whatever its form: one a line, a list, several lines each, CSV with a header; gzip or not."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TextIO

import msgspec

from prefillwatch.lab.arrivals.fields import has_prompts, plain_key
from prefillwatch.lab.arrivals.schedule import ArrivalsError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: A conversation of a day may be one line.
LONGEST_LINE: Final = 1 << 26
#: Of a file that is one list or has objects of several lines, which is read as a whole.
LARGEST_WHOLE: Final = 1 << 28
_GZIP: Final = b"\x1f\x8b"
FORM: Final = (
    'one JSON object a line such as {"arrival": 0.25, "prompt_tokens": 900, "output_tokens": 120}, or CSV with a header'
)
#: Where in the file, and the object there.
Numbered = tuple[str, dict[str, Any]]


@contextmanager
def opened(path: Path) -> Iterator[TextIO]:
    """The file's text, decompressed if it is gzip whatever its name. Raises ArrivalsError when it cannot be read."""
    try:
        with path.open("rb") as file:
            packed = file.peek(2)[:2] == _GZIP
            source: Any = gzip.GzipFile(fileobj=file) if packed else file
            yield io.TextIOWrapper(source, encoding="utf-8-sig", newline="")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ArrivalsError(f"{path}: the compressed file is damaged or cut off ({error})") from None
    except OSError as error:
        raise ArrivalsError(f"cannot read arrivals from {path}: {error.strerror}; give a file of {FORM}") from None
    except UnicodeDecodeError:
        raise ArrivalsError(f"{path} is no text file (UTF-8); arrivals are {FORM}") from None


def objects(path: Path, file: TextIO) -> Iterator[Numbered]:
    """The file's objects; those of CSV with keys in lower case. Raises ArrivalsError."""
    lines = numbered_lines(path, file)
    first = next(lines, None)
    if first is None:
        return
    start = first[1].lstrip()
    if start.startswith("["):
        yield from _whole(path, first[1], file)
    elif start.startswith("{"):
        try:
            row = msgspec.json.decode(first[1])
        except (msgspec.DecodeError, RecursionError) as error:
            yield from _several_lines(path, first, file, error)
            return
        yield f"line {first[0]}", row
        for number, text in lines:
            yield f"line {number}", _parse(path, number, text)
    else:
        yield from _table(path, itertools.chain([first], lines))


def _table(path: Path, lines: Iterator[tuple[int, str]]) -> Iterator[Numbered]:
    number, text = next(lines)
    header = [plain_key(name) for name in _cells(path, number, text)]
    if not has_prompts(header):
        raise ArrivalsError(f"{path}, line {number}: neither JSON nor a CSV header with known names; write {FORM}")
    for number, text in lines:
        yield f"line {number}", dict(zip(header, _cells(path, number, text), strict=False))


def _cells(path: Path, number: int, text: str) -> list[str]:
    try:
        return next(csv.reader([text]))
    except csv.Error as error:
        raise ArrivalsError(f"{path}, line {number}: no valid CSV ({error}); one request a line") from None


def numbered_lines(path: Path, file: TextIO) -> Iterator[tuple[int, str]]:
    """Those that are not empty. Raises ArrivalsError where one is too long."""
    for number in itertools.count(1):
        text = file.readline(LONGEST_LINE + 1)
        if not text:
            return
        if len(text) > LONGEST_LINE:
            raise ArrivalsError(f"{path}, line {number}: longer than {LONGEST_LINE} characters; one request a line")
        if text.strip():
            yield number, text


def _parse(path: Path, number: int, text: str) -> dict[str, Any]:
    try:
        row = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ArrivalsError(f"{path}, line {number}: no valid JSON ({error}); each line is one JSON object") from None
    if not isinstance(row, dict):
        raise ArrivalsError(f"{path}, line {number}: not a JSON object; expected is {FORM}")
    return row


def _several_lines(path: Path, first: tuple[int, str], file: TextIO, error: Exception) -> Iterator[Numbered]:
    """Objects that span several lines. A first line that is broken in itself is reported as such."""
    if first[1].rstrip().endswith("}") or not (after := file.readline(LONGEST_LINE)).strip():
        raise ArrivalsError(f"{path}, line {first[0]}: no valid JSON ({error}); each line is one JSON object") from None
    yield from _whole(path, first[1] + after, file)


def _whole(path: Path, start: str, file: TextIO) -> Iterator[Numbered]:
    text = start + file.read(LARGEST_WHOLE + 1)
    if len(text) > LARGEST_WHOLE:
        raise ArrivalsError(f"{path}: more than {LARGEST_WHOLE} characters in one list; write one object a line")
    number = 0
    for value in _values(path, text):
        for row in value if isinstance(value, list) else [value]:
            number += 1
            if not isinstance(row, dict):
                raise ArrivalsError(f"{path}, entry {number}: not a JSON object; expected is {FORM}")
            yield f"entry {number}", row


def _values(path: Path, text: str) -> Iterator[Any]:
    decode = json.JSONDecoder().raw_decode
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        try:
            value, at = decode(text, at)
        except json.JSONDecodeError as error:
            raise ArrivalsError(f"{path}, line {error.lineno}: no valid JSON ({error.msg})") from None
        except (ValueError, RecursionError):
            raise ArrivalsError(f"{path}: no valid JSON (numbers or lists beyond all measure)") from None
        yield value
