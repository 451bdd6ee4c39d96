"""Options that the experiments share: what is sent and for how long, and how a server is reached."""

from __future__ import annotations

import functools
from collections.abc import Callable
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


def _duration(name: str, default: str, help_text: str) -> Callable[[Any], Any]:
    return click.option(name, default=default, show_default=True, callback=seconds, metavar="DURATION", help=help_text)


def options(*options: Callable[[Any], Any]) -> Callable[[C], C]:
    """One decorator that adds them all, in this order."""

    def add(command: C) -> C:
        return functools.reduce(lambda decorated, option: option(decorated), reversed(options), command)

    return add


def with_streams(recovery: str) -> Callable[[C], C]:
    """Adds --victims, --warmup and --recovery, the last with a default: the steady streams of a probe."""
    return options(
        click.option(
            "--victims",
            type=click.IntRange(1, 512),
            metavar="N",
            default=6,
            show_default=True,
            help="A probe's steady streams.",
        ),
        _duration("--warmup", "3s", "Streams alone."),
        _duration("--recovery", recovery, "Streams alone again."),
    )


#: Adds --injection-limit, --max-tokens and --max-time.
with_bounds = options(
    _duration("--injection-limit", "2m", "Long prompts without a first token by then are given up."),
    click.option(
        "--max-tokens",
        type=click.IntRange(1),
        metavar="N",
        default=2_000_000,
        show_default=True,
        help="A probe sends no more than this in all.",
    ),
    _duration("--max-time", "15m", "Then a probe ends."),
)

with_model = options(click.option("--model", metavar="NAME", help="Which of its models. [default: the first it lists]"))

#: Adds --api-key-file and --api-key.
with_key = options(
    click.option("--api-key-file", type=_READ, metavar="FILE", help="The API key."),
    click.option(
        "--api-key", envvar="PREFILLWATCH_API_KEY", show_envvar=True, metavar="KEY", help="The API key itself."
    ),
)

#: Adds --ca and --insecure.
with_trust = options(
    click.option("--ca", "ca_file", type=_READ, metavar="PEM", help="Authority."),
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
