"""Options for experiments that play recorded arrivals, and how the file is read by them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from prefillwatch.commands._options import duration, number, options
from prefillwatch.commands._output import say
from prefillwatch.errors import ConfigError
from prefillwatch.lab.arrivals import Reading, Schedule, check_rate, read_arrivals

C = TypeVar("C")
ANYWAY: Final = "--arrivals-anyway"


def with_arrivals(*, instead_of: str) -> Callable[[C], C]:
    """Adds --arrivals and what says how its file is to be read, as `arrivals_file` and `arrivals_…`."""
    return options(
        click.option(
            "--arrivals",
            "arrivals_file",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help=f"Recorded arrivals with prompt and output tokens instead of {instead_of}: JSON, CSV, .gz, or a "
            "folder of ServeGen's clients.",
        ),
        duration("--arrivals-from", "0", "Begin so late in them."),
        click.option(
            "--arrivals-unit",
            type=click.Choice(["s", "ms", "us", "ns"]),
            help="Of their times. [default: as found, and said]",
        ),
        number(
            "--arrivals-block",
            None,
            "That one of their hash_ids stands for. [default: as found, and said]",
            most=65536,
            metavar="TOKENS",
        ),
        click.option(
            "--arrivals-rate",
            type=click.FloatRange(0, 10_000),
            metavar="X",
            help="Requests a second, for a file without times; conversations, where times count from their start.",
        ),
        click.option(ANYWAY, is_flag=True, help="Send them although they come faster than any server answers."),
    )


def arrivals_of(given: dict[str, Any]) -> Schedule | None:
    """Takes the options above out of those ``given`` and returns what the file holds from --arrivals-from on. Prints
    what it assumed. Raises ConfigError."""
    file: Path | None = given.pop("arrivals_file")
    begin = given.pop("arrivals_from")
    reading = Reading(
        unit=given.pop("arrivals_unit"),
        block_tokens=given.pop("arrivals_block"),
        rate=given.pop("arrivals_rate") or None,
    )
    if file is None:
        if reading != Reading() or begin:
            raise ConfigError("how arrivals are read was given, but no file of them; add --arrivals FILE")
        return None
    schedule = read_arrivals(file, reading)
    schedule = schedule.since(begin) if begin else schedule
    count = len(schedule.arrivals)
    length = f"{schedule.seconds:,.0f}" if schedule.seconds >= 1000 else f"{schedule.seconds:.4g}"
    words = "; ".join([f"{count:,} {'request' if count == 1 else 'requests'} in {length} s", *schedule.said])
    say(f"arrivals in {file.name}: {words}")
    return schedule


def question(schedule: Schedule, anyway: bool) -> None:
    """To be called before anything is sent. Raises ConfigError where no server could answer so many at once, unless the
    user insists."""
    if not anyway:
        check_rate(schedule, ANYWAY)
