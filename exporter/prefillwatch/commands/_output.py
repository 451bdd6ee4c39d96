"""What the experiments write: progress to stderr, results to files."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import click

from prefillwatch.errors import ConfigError, PrefillwatchError


class OutputError(PrefillwatchError):
    """A result could not be written."""


def say(text: str, *, end: str = "\n") -> None:
    """A line of progress. An experiment goes on when its terminal is gone."""
    with contextlib.suppress(OSError):
        click.echo(text + end, nl=False, err=True)


def check_writable(**files: Path | None) -> None:
    """Checks files, by the names of their options, before anything is measured. Raises ConfigError."""
    for option, file in files.items():
        if file is not None and not _is_writable(file):
            raise ConfigError(
                f"--{option} {file} cannot be written; choose a file in a folder that exists and may be written to"
            )


def _is_writable(file: Path) -> bool:
    if file.exists():
        return not file.is_dir() and os.access(file, os.W_OK)
    return file.parent.is_dir() and os.access(file.parent, os.W_OK)


def write(file: Path, data: str | bytes) -> None:
    """Raises OutputError."""
    try:
        file.write_bytes(data if isinstance(data, bytes) else data.encode())
    except OSError as error:
        raise OutputError(f"{file} could not be written ({error.strerror or error})") from None
