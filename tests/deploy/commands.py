"""Our commands, looked up as the command line does it."""

from __future__ import annotations

from collections.abc import Sequence

import click

from prefillwatch.cli import main


def accept(command: str, arguments: Sequence[str] = ()) -> None:
    """Raises click.UsageError when there is no such command, or it has no such options."""
    context = click.Context(main)
    found = main.get_command(context, command)
    if found is None:
        raise click.UsageError(f"there is no command {command!r}")
    found.make_context(command, list(arguments), parent=context)
