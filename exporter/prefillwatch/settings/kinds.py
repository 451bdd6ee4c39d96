"""The kinds of values that settings have: how each is read from a flag, the environment or YAML, and how it is written.

All readers raise ValueError with a message that names the input and the remedy.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from prefillwatch.settings.addresses import parse_collector, parse_listen, parse_page_address, parse_upstream
from prefillwatch.settings.otlp import parse_headers
from prefillwatch.settings.processes import OTLP_OFF
from prefillwatch.settings.quantities import (
    format_duration,
    format_size,
    format_tokens,
    parse_duration,
    parse_size,
    parse_tokens,
)

#: Longest path of a unix socket, without the zero at its end.
_LONGEST_SOCKET_PATH: Final = 107
#: No setting needs more, and 64-bit nanoseconds or bytes can hold these.
_LONGEST_DURATION: Final = 365 * 86400.0
_LARGEST_SIZE: Final = 2**40
_LARGEST_SECRET: Final = 2**16
_YAML_KINDS: Final = ((list, "a list"), (dict, "a mapping"), (str, "a text"), ((bool, int, float), "a single value"))
_HOST_NAME: Final = re.compile(r"\*|\.?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?")
#: A token of HTTP, and no longer than any header is.
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}")
_TRUE: Final = {"true", "yes", "on", "1"}
_FALSE: Final = {"false", "no", "off", "0"}


@dataclass(frozen=True, slots=True)
class Kind:
    """The kind of a setting's value. Used in ``Annotated``: the reader runs before pydantic checks the type."""

    read: Callable[[Any], Any]
    metavar: str
    show: Callable[[Any], str] = str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self.read, handler(source))


def text(value: Any) -> str:
    """A plain value as text. YAML reads ``8080`` as a number, but the user wrote text."""
    if isinstance(value, (str, int, float)) and not isinstance(value, bool):
        return str(value)
    if value is None:
        raise ValueError("has no value; write one or leave the key out")
    if isinstance(value, bool):
        raise ValueError(f"{str(value).lower()} is not what it takes; put quotes around a word that is meant as text")
    raise ValueError(f"is {kind_in_yaml(value)}; write a single value")


def kind_in_yaml(value: Any) -> str:
    """A description of what YAML has read, without its content, which aliases can make endless."""
    for kind, words in _YAML_KINDS:
        if isinstance(value, kind):
            return words
    return f"a {type(value).__name__}"


def _switch(value: Any) -> bool:
    """true or false, in YAML's words and in those used in environments."""
    if isinstance(value, bool):
        return value
    word = text(value).strip().lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise ValueError(f"{value!r} is neither true nor false")


def choice(*words: str) -> Kind:
    """One of the words."""

    def read(value: Any) -> str:
        if value is False:
            value = "off"  # what YAML makes of a bare off
        word = "true" if value is True else text(value).strip().lower()
        if word not in words:
            raise ValueError(f"{word!r} is not one of {', '.join(words)}")
        return word

    return Kind(read, "|".join(words))


def count(least: int, most: int) -> Kind:
    """A whole number between two bounds."""

    def read(value: Any) -> int:
        word = text(value)
        try:
            number = int(word)
        except ValueError:
            raise ValueError(f"{word!r} is not a whole number; use {least} to {most}") from None
        if not least <= number <= most:
            raise ValueError(f"{number} is out of range; use {least} to {most}")
        return number

    return Kind(read, "N")


def factor(least: float) -> Kind:
    """A number that is not below ``least``."""

    def read(value: Any) -> float:
        word = text(value)
        try:
            number = float(word)
        except ValueError:
            raise ValueError(f"{word!r} is not a number; use {least:g} or more") from None
        if not least <= number < float("inf"):
            raise ValueError(f"{value} is out of range; use {least:g} or more")
        return number

    return Kind(read, "X", "{:g}".format)


def duration(least: float) -> Kind:
    """Seconds, not fewer than ``least``; 0 counts only where ``least`` is 0."""

    def read(value: Any) -> float:
        seconds = parse_duration(text(value))
        if seconds < least:
            raise ValueError(f"{value} is too short; use {format_duration(least)} or more")
        if seconds > _LONGEST_DURATION:
            raise ValueError(f"{value} is too long; use {format_duration(_LONGEST_DURATION)} or less")
        return seconds

    return Kind(read, "DURATION", format_duration)


def durations(least: int, most: int) -> Kind:
    """Rising durations of whole seconds: a YAML list, or text with commas."""

    def read(value: Any) -> tuple[int, ...]:
        items = tuple(parse_duration(item) for item in _items(value))
        if any(not item.is_integer() or not least <= item <= most for item in items):
            raise ValueError(
                f"{_shown(value)} has a length that is not usable; use whole seconds from {least}s to "
                f"{format_duration(most)}, for example 10s,1m,5m"
            )
        return _rising(tuple(int(item) for item in items), value)

    return Kind(read, "DURATION,…", _show_durations)


def _token_edges(value: Any) -> tuple[int, ...]:
    """Rising prompt sizes: a YAML list, or text with commas such as ``512,2k,8k``; at most 12 (each is a label)."""
    edges = _rising(tuple(parse_tokens(item) for item in _items(value)), value)
    if edges[0] < 1 or len(edges) > 12:
        raise ValueError(f"{_shown(value)} is not usable; write 1 to 12 sizes above 0, for example 512,2k,8k,32k")
    return edges


def _size(value: Any) -> int:
    """Bytes, at least 1 KiB."""
    number = parse_size(text(value))
    if number < 1024:
        raise ValueError(f"{value} is too small; use 1KiB or more")
    if number > _LARGEST_SIZE:
        raise ValueError(f"{value} is too large; use {format_size(_LARGEST_SIZE)} or less")
    return number


def _existing_file(value: Any) -> Path:
    """A file that can be read."""
    path = Path(text(value)).expanduser()
    try:
        path.open("rb").close()
    except OSError as error:
        raise ValueError(f"cannot read {str(path)!r}: {error.strerror}") from None
    return path


def _existing_folder(value: Any) -> Path:
    """A folder in which files can be made."""
    path = Path(text(value)).expanduser()
    if not path.is_dir():
        raise ValueError(f"{str(path)!r} is no folder; make it first: mkdir -p {path}")
    if not os.access(path, os.W_OK | os.X_OK):
        raise ValueError(f"cannot write in {str(path)!r}; choose a folder of the user that prefillwatch runs as")
    return path.absolute()


def _secret_in_file(value: Any) -> str:
    """What a file holds, less white space around it; so that a secret is never in a command line or an environment."""
    path = _existing_file(value)
    try:
        with path.open("rb") as file:
            secret = file.read(_LARGEST_SECRET).decode().strip()
    except ValueError:
        raise ValueError(f"{str(path)!r} is no text in UTF-8") from None
    if not secret or not secret.isprintable():
        raise ValueError(f"{str(path)!r} must hold the secret in one line, and nothing else")
    return secret


def _login_in_file(value: Any) -> str:
    login = _secret_in_file(value)
    user, colon, password = login.partition(":")
    if not (user and colon and password):
        raise ValueError(f"{text(value)!r} must hold one line USER:PASSWORD")
    return login


def _headers(value: Any) -> str:
    parse_headers(text(value))
    return text(value)


def _headers_in_file(value: Any) -> str:
    return _headers(_secret_in_file(value))


def _collector_or_off(value: Any) -> str:
    word = OTLP_OFF if value is False else text(value)  # what YAML makes of a bare off
    return OTLP_OFF if word.strip().lower() == OTLP_OFF else parse_collector(word)


def _socket_path(value: Any) -> Path:
    """Where a unix socket can be made."""
    path = Path(text(value)).expanduser()
    if len(os.fsencode(path)) > _LONGEST_SOCKET_PATH:
        raise ValueError(f"{str(path)!r} is too long for a unix socket; use at most {_LONGEST_SOCKET_PATH} bytes")
    return path


def _names(value: Any) -> tuple[str, ...]:
    """Host names: a YAML list, or text with commas."""
    names = tuple(_items(value))
    for name in names:
        if not _HOST_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no host name; write for example metrics.example.org, .example.org or *")
    return names


def _items(value: Any) -> list[str]:
    if isinstance(value, (list, tuple)):
        return [text(item) for item in value]
    return [item for item in text(value).replace(" ", "").split(",") if item]


def _rising(numbers: tuple[int, ...], value: Any) -> tuple[int, ...]:
    if not numbers:
        raise ValueError("has no value; write at least one")
    if list(numbers) != sorted(set(numbers)):
        raise ValueError(f"{_shown(value)} does not rise; write every value once, smallest first")
    return numbers


def _header(value: Any) -> str:
    """The name of a header, in small letters."""
    name = text(value).strip()
    if not _HEADER_NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a header; write one such as X-Tenant-Id")
    return name.lower()


def _shown(value: Any) -> str:
    return repr(",".join(str(item) for item in value)) if isinstance(value, (list, tuple)) else repr(value)


def _show_durations(lengths: tuple[int, ...]) -> str:
    return ",".join(format_duration(length) for length in lengths)


def _show_edges(edges: tuple[int, ...]) -> str:
    return ",".join(format_tokens(edge) for edge in edges)


NAMES: Final = Kind(_names, "NAME,…", ",".join)
LISTEN: Final = Kind(lambda value: parse_listen(text(value)), "HOST:PORT")
PAGE: Final = Kind(lambda value: parse_page_address(text(value)), "URL")
UPSTREAM: Final = Kind(lambda value: parse_upstream(text(value)), "URL")
FILE: Final = Kind(_existing_file, "FILE")
FOLDER: Final = Kind(_existing_folder, "DIR")
SOCKET: Final = Kind(_socket_path, "PATH")
SECRET: Final = Kind(text, "KEY")
HEADER: Final = Kind(_header, "HEADER")
SECRET_FILE: Final = Kind(_secret_in_file, "FILE")
HEADERS: Final = Kind(_headers, "NAME=VALUE,…")
HEADERS_FILE: Final = Kind(_headers_in_file, "FILE")
COLLECTOR: Final = Kind(lambda value: parse_collector(text(value)), "URL")
COLLECTOR_OR_OFF: Final = Kind(_collector_or_off, "URL|off")
LOGIN_FILE: Final = Kind(_login_in_file, "FILE")
SWITCH: Final = Kind(_switch, "", lambda value: str(value).lower())
SIZE: Final = Kind(_size, "SIZE", format_size)
TOKEN_EDGES: Final = Kind(_token_edges, "TOKENS,…", _show_edges)
