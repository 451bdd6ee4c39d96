"""Errors that end a command with one clear message instead of a traceback."""

from __future__ import annotations

from typing import Final

#: What every line of an error begins with on the terminal.
ERROR_PREFIX: Final = "prefillwatch: error: "


class PrefillwatchError(Exception):
    """Base of our own errors. The message names what was wrong and what to do; it holds no secret."""

    exit_code = 1


class ConfigError(PrefillwatchError):
    """The input cannot be used: a bad flag, environment variable, configuration file or command line."""

    exit_code = 2


class ListenError(PrefillwatchError):
    """An address could not be listened on."""


class AddressInUseError(ListenError):
    """Another process listens there."""


class StartError(PrefillwatchError):
    """A process could not be started, or would not stay up."""


class CommandError(StartError):
    """The command of ``run`` could not be started; the codes are those of a shell."""

    def __init__(self, message: str, found: bool) -> None:
        super().__init__(message)
        self.exit_code = 126 if found else 127
