"""The file that a recording goes to while it is made. A thread writes, so that a slow disk holds nobody up."""

from __future__ import annotations

import logging
import os
import queue
import threading
from pathlib import Path
from typing import Final

#: Frames that may wait for the disk. At one every two seconds, a disk that leaves so many waiting does not come back.
_MOST_WAITING: Final = 64
_LAST_WAIT_S: Final = 5.0

log = logging.getLogger(__name__)


class FileSink:
    """Writes until something goes wrong; that is logged once, and nothing else suffers from it."""

    def __init__(self, path: Path, opening: bytes) -> None:
        """An existing file that has something in it is left as it is: the next free name ending in a number is taken.

        So is the recording of an observer that died and was started again.
        """
        self.failed = False
        self.path = path
        self._waiting: queue.Queue[bytes | None] = queue.Queue(_MOST_WAITING)
        try:
            self.path, self._descriptor = _create(path)
        except OSError as error:
            self._fail(error)
            return
        log.info("recording to %s", self.path)
        self.put(opening)
        self._thread = threading.Thread(target=self._write, name="recording", daemon=True)
        self._thread.start()

    def put(self, data: bytes) -> None:
        """Never waits."""
        if self.failed:
            return
        try:
            self._waiting.put_nowait(data)
        except queue.Full:
            self._fail(OSError(0, "the disk is too slow"))

    def close(self) -> None:
        """Give waiting frames a moment to be written."""
        if not self.failed:
            self._waiting.put(None)
            self._thread.join(_LAST_WAIT_S)

    def _write(self) -> None:
        try:
            while (data := self._waiting.get()) is not None:
                _write_all(self._descriptor, data)
        except OSError as error:
            self._fail(error)
        finally:
            os.close(self._descriptor)

    def _fail(self, error: OSError) -> None:
        self.failed = True
        log.error("recording to %s ends here: %s; what was written by now can be played", self.path, error.strerror)


def _create(path: Path) -> tuple[Path, int]:
    """Raises OSError."""
    for number in range(1, 1000):
        candidate = path if number == 1 else path.with_name(f"{path.name}.{number}")
        try:
            return candidate, os.open(candidate, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            if not candidate.is_file() or not candidate.stat().st_size:
                return candidate, os.open(candidate, os.O_WRONLY)
    raise OSError(0, "there are a thousand recordings of this name")


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
