"""``prefillwatch record``: the sidecar, and everything that it sees in a file."""

from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import replace
from pathlib import Path

import click

from prefillwatch.commands._options import FILE
from prefillwatch.commands._settings import settings_options
from prefillwatch.commands.serve import launch_of, supervise
from prefillwatch.errors import ConfigError
from prefillwatch.settings.declared import Settings
from prefillwatch.settings.processes import RecordSettings
from prefillwatch.supervision import Launch


@click.command()
@click.argument("file", type=FILE)
@settings_options()
@click.option("--with-texts", is_flag=True, help="Keep prompts and answers in the file. Without it there are none.")
@click.option("--with-tenants", is_flag=True, help="Keep names of tenants (as tenant_names says) and priorities.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND…]")
def record(settings: Settings, file: Path, with_texts: bool, with_tenants: bool, command: tuple[str, ...]) -> None:
    """Do what 'serve' does, or 'run' with a COMMAND, and record to FILE what is seen.

    The file holds times, counts, token numbers, names of models and request ids, and no text of a prompt or an answer,
    and no key. 'prefillwatch replay FILE' gives the same metrics and incidents from it. It ends with the sidecar; one
    that breaks off is good up to two seconds before.
    """
    launch = launch_of(settings, command) if command else Launch(settings, settings.required_upstream())
    claim(file)
    try:
        code = supervise(replace(launch, record=RecordSettings(str(file.absolute()), with_texts, with_tenants)))
    finally:
        release(file)
    sys.exit(code)


def claim(file: Path) -> None:
    """Creates the file now, so that a file that cannot be made is an error at the start. Raises ConfigError."""
    try:
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        raise ConfigError(f"{file} exists already; choose another name, or delete it") from None
    except OSError as error:
        raise ConfigError(f"cannot write {file}: {error.strerror}; choose one that you can write") from None


def release(file: Path) -> None:
    """Called when nothing was recorded, such as when a port was taken: removes the file, so that the next try can make
    it."""
    with contextlib.suppress(OSError):
        if not file.stat().st_size:
            file.unlink()
