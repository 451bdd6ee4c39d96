"""The command-line options of the settings: one for every key of `Settings`, made from its kind and description."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from prefillwatch.settings.declared import Settings, kind_of, shown_default
from prefillwatch.settings.sources import flag_name, load

Command = TypeVar("Command", bound=Callable[..., Any])


def settings_options(*keys: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command settings as options: those named, or all. It is called with the validated ``settings`` instead.

    Values stay text here, so that one place validates them whichever source they come from.
    """
    shown = keys or tuple(Settings.model_fields)

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def with_settings(*args: Any, config_file: Path | None, **kwargs: Any) -> Any:
            flags = {key: kwargs.pop(key) for key in shown}
            given = {key: value for key, value in flags.items() if value is not None}
            return command(*args, settings=load(given, os.environ, config_file), **kwargs)

        decorated: Callable[..., Any] = with_settings
        for key in reversed(shown):
            decorated = _option(key)(decorated)
        return _config_option(decorated)

    return decorate


def _config_option(command: Command) -> Command:
    return click.option(
        "--config",
        "config_file",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="Read settings from this YAML file; flags and PREFILLWATCH_* variables win over it.",
    )(command)


def _option(key: str) -> Callable[[Command], Command]:
    name, kind = flag_name(key), kind_of(key)
    description = Settings.model_fields[key].description or ""
    default = shown_default(key)
    text = f"{description[0].upper()}{description[1:]}." + (f" [default: {default}]" if default else "")
    if not kind.metavar:
        return click.option(f"{name}/--no-{name.removeprefix('--')}", key, default=None, help=text)
    return click.option(name, key, default=None, metavar=kind.metavar, help=text)
