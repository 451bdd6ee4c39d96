"""Errors of reading or capturing a trace."""

from __future__ import annotations

from prefillwatch.errors import PrefillwatchError
from prefillwatch.lab.stopping import INTERRUPTED


class TraceError(PrefillwatchError):
    """The file cannot be read as a trace of the torch profiler, or holds nothing that steps can be found in."""


class CaptureInterrupted(TraceError):  # noqa: N818 (it was wanted)
    """A capture was ended before it was done."""

    exit_code = INTERRUPTED
