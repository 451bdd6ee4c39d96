"""Options that the experiments share: how long something takes, and how a server is reached."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import click

from prefillwatch.errors import ConfigError
from prefillwatch.settings.quantities import parse_duration

C = TypeVar("C")

_READ = click.Path(path_type=Path, dir_okay=False, exists=True)


def seconds(ctx: click.Context, option: click.Parameter, text: str | None) -> float | None:  # noqa: ARG001 (click's signature)
    """A callback of an option whose value is a duration; one that was not given stays None."""
    try:
        return parse_duration(text) if text is not None else None
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def with_key(command: C) -> C:
    """Adds --api-key-file and --api-key."""
    from_file = click.option("--api-key-file", type=_READ, metavar="FILE", help="The API key.")
    itself = click.option(
        "--api-key", envvar="PREFILLWATCH_API_KEY", show_envvar=True, metavar="KEY", help="The API key itself."
    )
    return _apply(from_file, itself, command)


def with_trust(command: C) -> C:
    """Adds --ca and --insecure."""
    authority = click.option("--ca", "ca_file", type=_READ, metavar="PEM", help="Authority.")
    insecure = click.option("--insecure", is_flag=True, help="Do not verify the server's certificate.")
    return _apply(authority, insecure, command)


def _apply(first: Any, second: Any, command: C) -> C:
    decorated: C = first(second(command))
    return decorated


def key_of(file: Path | None, itself: str | None) -> str | None:
    """The key in the file, or else the one that was given. Raises ConfigError where the file cannot be read."""
    if file is None:
        return itself
    try:
        return file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--api-key-file {file}: it cannot be read as text ({type(error).__name__})") from None
