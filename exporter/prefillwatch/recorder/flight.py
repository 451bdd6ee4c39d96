"""The flight recorder: when the last minutes are written out, and where. One file for incidents that come together."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Final

from prefillwatch.core.view import IncidentHead
from prefillwatch.export.flight_request import FlightError, FlightFile, TooSoonError
from prefillwatch.units import NS

SUFFIX: Final = ".pfw"
#: Wait after an incident, so that its aftermath is in the file.
_SETTLE_NS: Final = 2 * NS
#: An incident that lasts longer than this is not waited for.
_PATIENCE_NS: Final = 60 * NS
#: Least time between two files.
_APART_NS: Final = 60 * NS
#: Least time between two files that a user asks for.
_ASKED_APART_NS: Final = 10 * NS
#: The reason in the file's name when a user asked for it.
ASKED: Final = "asked"

log = logging.getLogger(__name__)


class FlightTrigger:
    """Says when a file is due. Incidents that close while none may be written are in the next one. Pure."""

    def __init__(self) -> None:
        self._due_ns: int | None = None
        self._why = ""
        self._next_ns = 0
        self._reported: set[int] = set()
        self._asked_ns: int | None = None

    @property
    def pending(self) -> str | None:
        """The newest event that is in no file yet, in two words."""
        return self._why if self._due_ns is not None else None

    def asked(self, now_ns: int) -> None:
        """A user asks for a file. Raises TooSoonError."""
        left_ns = self._asked_ns + _ASKED_APART_NS - now_ns if self._asked_ns is not None else 0
        if left_ns > 0:
            raise TooSoonError(-(-left_ns // NS))
        self._asked_ns = now_ns

    def closed(self, incident: IncidentHead, now_ns: int) -> None:
        """An incident is over."""
        if self._due_ns is None:
            self._due_ns, self._why = now_ns + _SETTLE_NS, incident.name

    def due(self, now_ns: int, ongoing: Iterable[IncidentHead]) -> str | None:
        """What happened, in two words, when a file is due now."""
        for incident in ongoing:
            if now_ns - incident.started_ns > _PATIENCE_NS and incident.number not in self._reported:
                self._reported.add(incident.number)
                if self._due_ns is None:
                    self._due_ns, self._why = now_ns, incident.name
        if self._due_ns is None or now_ns < max(self._due_ns, self._next_ns):
            return None
        self._due_ns, self._next_ns = None, now_ns + _APART_NS
        return self._why


class FlightFolder:
    """The folder of flight recordings: at most so many bytes, of which the oldest make room."""

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self._folder = folder
        self._most_bytes = most_bytes
        self._writing: threading.Thread | None = None

    def write(self, why: str, parts: Sequence[bytes]) -> Future[FlightFile]:
        """Writes in a thread of its own, one file at a time. The outcome is logged, and is the future's result. Never
        waits."""
        name = f"flight-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{why.replace('_', '-')}{SUFFIX}"
        written: Future[FlightFile] = Future()
        if self._writing is not None and self._writing.is_alive():
            log.warning("flight recorder: no %s: the file before it is still being written", name)
            written.set_exception(FlightError("a flight recording is being written already; ask again in a moment"))
            return written
        self._writing = threading.Thread(
            target=self._write, args=(name, parts, written), name="flight recorder", daemon=True
        )
        self._writing.start()
        return written

    def wait(self, seconds: float = 5.0) -> None:
        """Waits for the file that is being written."""
        if self._writing is not None:
            self._writing.join(seconds)

    def _write(self, name: str, parts: Sequence[bytes], written: Future[FlightFile]) -> None:
        size = sum(map(len, parts))
        path = _free(self._folder / name)
        try:
            if size > self._most_bytes:
                raise OSError(errno.EFBIG, f"it has {size} bytes, and flight_recorder_disk allows {self._most_bytes}")
            self._make_room(size, asked=name.endswith(f"-{ASKED}{SUFFIX}"))
            write_whole(path, parts)
        except OSError as error:
            log.error("flight recorder: cannot write %s: %s", path, error.strerror)
            written.set_exception(FlightError(f"cannot write {path}: {error.strerror}"))
        else:
            log.info("flight recorder: %s (%d KiB); play it with 'prefillwatch replay'", path, size >> 10)
            written.set_result(FlightFile(str(path), size))

    def _make_room(self, size: int, *, asked: bool) -> None:
        """Raises OSError where a file that is asked for would take the place of those of incidents."""
        # With those that a process which died left unfinished.
        files = [*self._folder.glob(f"flight-*{SUFFIX}"), *self._folder.glob(f".flight-*{SUFFIX}.*")]
        files.sort(key=lambda path: path.name.lstrip("."))
        sizes = {path: path.stat().st_size for path in files if path.is_file()}
        over = sum(sizes.values()) + size - self._most_bytes
        if asked:
            sizes = {path: its_size for path, its_size in sizes.items() if _gives_way(path)}
            if over > sum(sizes.values()):
                raise OSError(errno.ENOSPC, "flight_recorder_disk is full of recordings of incidents")
        for path, its_size in sizes.items():
            if over <= 0:
                return
            path.unlink(missing_ok=True)
            over -= its_size


def _gives_way(path: Path) -> bool:
    """Room for a file that a user asks for: an earlier one of its kind, or one that was left unfinished."""
    return f"-{ASKED}" in path.name or path.name.startswith(".")


def _free(path: Path) -> Path:
    """The path, or one like it, if another sidecar with the same folder had the same idea in the same second."""
    stem, number = path.stem, 1
    while path.exists():
        number += 1
        path = path.with_name(f"{stem}-{number}{SUFFIX}")
    return path


def write_whole(path: Path, parts: Iterable[bytes]) -> None:
    """A file that is there as a whole or not at all, for its owner's eyes. Raises OSError."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(unfinished, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.writelines(parts)
        unfinished.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise
