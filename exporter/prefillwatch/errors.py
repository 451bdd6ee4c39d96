"""Errors that end a command with one clear message instead of a traceback."""

from __future__ import annotations


class PrefillwatchError(Exception):
    """Base of our own errors. The message names what was wrong and what to do; it holds no secret."""

    exit_code = 1


class ConfigError(PrefillwatchError):
    """The input cannot be used: a bad flag, environment variable, configuration file or command line."""

    exit_code = 2


class ListenError(PrefillwatchError):
    """An address could not be listened on."""


class StartError(PrefillwatchError):
    """A process of ours could not be started, or would not stay up."""
