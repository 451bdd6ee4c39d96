"""What can be wrong with a trace."""

from __future__ import annotations

from prefillwatch.errors import PrefillwatchError


class TraceError(PrefillwatchError):
    """The file cannot be read as a trace of the torch profiler, or holds nothing that steps can be found in."""
