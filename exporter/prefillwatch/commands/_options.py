"""Options that commands share: kinds of values, what is sent for how long, and how a server is reached."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from prefillwatch.errors import ConfigError
from prefillwatch.settings.addresses import parse_listen
from prefillwatch.settings.quantities import parse_duration

C = TypeVar("C")


class Value(click.ParamType):  # type: ignore[type-arg]  # generic in the newest click only
    """The type of an option whose text is read by a function that raises ValueError; to a user, ConfigError."""

    def __init__(self, read: Callable[[str], Any], metavar: str) -> None:
        self.name = metavar
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ARG002
        if not isinstance(value, str):
            return value
        try:
            return self._read(value)
        except ValueError as error:
            raise ConfigError(f"{param.opts[0] if param else self.name}: {error}") from None


#: Seconds.
DURATION: Final = Value(parse_duration, "DURATION")
ADDRESS: Final = Value(parse_listen, "HOST:PORT")
#: A file to write, or to read where our own message says what is wrong with it.
FILE: Final = click.Path(path_type=Path, dir_okay=False)
FOLDER: Final = click.Path(path_type=Path, file_okay=False)
_EXISTING: Final = click.Path(path_type=Path, dir_okay=False, exists=True)


def duration(name: str, default: str | None, help_text: str) -> Callable[[Any], Any]:
    """An option of seconds; None where it is not given and has no default."""
    return click.option(name, type=DURATION, default=default, show_default=default is not None, help=help_text)


def number(
    name: str, default: int | None, help_text: str, *, least: int = 1, most: int | None = None, metavar: str = "N"
) -> Callable[[Any], Any]:
    """An option of a whole number; None where it is not given and has no default."""
    limits = click.IntRange(least, most)
    shown = default is not None
    return click.option(name, type=limits, metavar=metavar, default=default, show_default=shown, help=help_text)


def switch(name: str, help_text: str) -> Callable[[Any], Any]:
    """An option that is on unless its ``--no-…`` is given."""
    return click.option(f"{name}/--no-{name.removeprefix('--')}", default=True, help=f"{help_text} [default: on]")


def file(name: str, help_text: str, *, default: str | None = None, exists: bool = False) -> Callable[[Any], Any]:
    """An option of a file: ``--json`` is the parameter ``json_file``."""
    kind = _EXISTING if exists else FILE
    parameter = f"{name.removeprefix('--')}_file"
    shown = default is not None
    return click.option(name, parameter, type=kind, default=default, show_default=shown, metavar="FILE", help=help_text)


def options(*options: Callable[[Any], Any]) -> Callable[[C], C]:
    """One decorator that adds them all, in this order."""

    def add(command: C) -> C:
        return functools.reduce(lambda decorated, option: option(decorated), reversed(options), command)

    return add


def with_streams(recovery: str) -> Callable[[C], C]:
    """Adds --victims, --warmup and --recovery, the last with a default: the steady streams of a probe."""
    return options(
        number("--victims", 6, "A probe's steady streams.", most=512),
        duration("--warmup", "3s", "Streams alone."),
        duration("--recovery", recovery, "Streams alone again."),
    )


#: Adds --injection-limit, --max-tokens and --max-time.
with_bounds = options(
    duration("--injection-limit", "2m", "Long prompts without a first token by then are given up."),
    number("--max-tokens", 2_000_000, "A probe sends no more than this in all."),
    duration("--max-time", "15m", "Then a probe ends."),
)

with_model = options(click.option("--model", metavar="NAME", help="Which of its models. [default: the first it lists]"))

#: Adds --api-key-file and --api-key.
with_key = options(
    click.option("--api-key-file", type=_EXISTING, metavar="FILE", help="The API key."),
    click.option(
        "--api-key", envvar="PREFILLWATCH_API_KEY", show_envvar=True, metavar="KEY", help="The API key itself."
    ),
)

#: Adds --ca and --insecure.
with_trust = options(
    click.option("--ca", "ca_file", type=_EXISTING, metavar="PEM", help="Authority."),
    click.option("--insecure", is_flag=True, help="Do not verify the server's certificate."),
)


def key_of(file: Path | None, itself: str | None) -> str | None:
    """The key in the file, or else the one that was given. Raises ConfigError where the file cannot be read."""
    if file is None:
        return itself
    try:
        return file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--api-key-file {file}: it cannot be read as text ({type(error).__name__})") from None
