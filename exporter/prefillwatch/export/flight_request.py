"""Asking the flight recorder for a file now, beside those that it writes by itself."""

from __future__ import annotations

import msgspec


class FlightFile(msgspec.Struct, frozen=True):
    """What was written: where on our machine, and its size in bytes."""

    file: str
    bytes: int


class FlightError(Exception):
    """There is no file, and why."""


class TooSoonError(FlightError):
    """The last one was written a moment ago."""

    def __init__(self, seconds: int) -> None:
        """``seconds`` until it may be asked for again."""
        super().__init__(f"a file was asked for a moment ago: ask again in {seconds} s")
        self.seconds = seconds


class NoFlightRecorderError(FlightError):
    """Nothing is kept that could be written."""

    def __init__(self) -> None:
        super().__init__("no flight recorder is running: set flight_recorder_dir to a folder for its files")
