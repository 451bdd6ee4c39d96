"""The bytes of a trace file, decompressed piece by piece, and the events in them."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterable, Iterator
from io import BufferedReader
from pathlib import Path
from typing import Any, Final

import msgspec

from prefillwatch.lab.trace.errors import TraceError
from prefillwatch.lab.trace.splitter import EventSplitter

PIECE: Final = 1 << 20
_LARGEST: Final = 1 << 62
_GZIP: Final = b"\x1f\x8b"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
#: A call of a Python function. These are by far the most events that vLLM's profiler writes, and nothing here needs
#: them.
_PYTHON: Final = b'"python_function"'
_VLLM_VERSION: Final = re.compile(rb'"vllm_version":\s*"([0-9A-Za-z.+_-]{1,60})"')


class Arguments(msgspec.Struct, gc=False):
    """What a trace event has as arguments, as far as it is used here."""

    #: Equal on a GPU event and on the call of the runtime that launched it.
    correlation: Any = None


class Event(msgspec.Struct, gc=False):
    """The fields of a trace event that are used here. Times are microseconds on the trace's own clock."""

    #: Phase: X is a span with a duration.
    ph: str = ""
    #: kernel, gpu_memcpy, gpu_memset, cpu_op, user_annotation, gpu_user_annotation, python_function, …
    cat: str = ""
    name: str = ""
    ts: float | None = None
    dur: float | None = None
    #: On a GPU event the device.
    pid: int | str = 0
    #: On a GPU event the stream, on others the thread.
    tid: int | str = 0
    args: Arguments | list[Any] | str | float | bool | None = None

    @property
    def correlation(self) -> int:
        """Of the launch; 0 where there is none."""
        found = self.args.correlation if isinstance(self.args, Arguments) else None
        return found if isinstance(found, int) and 0 < found < _LARGEST else 0


class TraceReader:
    """Goes once through a trace: `for event in TraceReader(pieces): …`, in bounded memory.

    A trace that ends early or is damaged ends the iteration and leaves the reason in `problem`, so that what was read
    up to there can be used; where not one event was read, TraceError is raised.
    """

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self.problem = ""
        self.unreadable = 0
        """Events that are no valid JSON, even with some patience."""
        self.bytes_read = 0
        self.vllm_version = ""
        self._pieces = pieces
        self._splitter = EventSplitter()

    @property
    def events(self) -> int:
        return self._splitter.events

    @property
    def events_end(self) -> int | None:
        """Offset just behind the last event, in the decompressed file."""
        return self._splitter.events_end

    def __iter__(self) -> Iterator[Event]:
        decode = msgspec.json.Decoder(Event).decode
        try:
            for raw in self._raw_events():
                if _PYTHON in raw:
                    continue
                try:
                    yield decode(raw)
                except (msgspec.DecodeError, UnicodeDecodeError):
                    patient = _decode_patiently(raw)
                    if patient is None:
                        self.unreadable += 1
                    else:
                        yield patient
        except TraceError as error:
            self._end_early(str(error))
        except EOFError:
            self._end_early("the compressed file ends in the middle; it was cut off")
        except (zlib.error, gzip.BadGzipFile) as error:
            self._end_early(f"the compressed file is damaged ({error})")

    def _raw_events(self) -> Iterator[bytes]:
        for piece in self._pieces:
            if not self.bytes_read and (found := _VLLM_VERSION.search(piece)):
                self.vllm_version = found.group(1).decode()
            self.bytes_read += len(piece)
            yield from self._splitter.feed(piece)
        yield from self._splitter.finish()

    def _end_early(self, reason: str) -> None:
        if not self.events:
            raise TraceError(reason) from None
        self.problem = reason


def _decode_patiently(raw: bytes) -> Event | None:
    """An event with something that the profiler should not write but does: bytes that are not UTF-8, NaN, odd types."""
    try:
        fields = json.loads(raw.decode(errors="replace"), strict=False)
        return msgspec.convert(fields, Event, strict=False)
    except (ValueError, RecursionError, msgspec.ValidationError):
        return None


def pieces_of(path: Path) -> Iterator[bytes]:
    """The file's bytes, decompressed if it is gzip whatever its name. Raises TraceError when it cannot be opened."""
    try:
        with path.open("rb") as file:
            yield from _pieces(file)
    except OSError as error:
        if isinstance(error, gzip.BadGzipFile):
            raise
        raise TraceError(f"it cannot be read ({error.strerror or error})") from None


def _pieces(file: BufferedReader) -> Iterator[bytes]:
    start = file.peek(4)[:4]
    if start == _ZSTD:
        raise TraceError("it is compressed with zstd; decompress it first: unzstd FILE")
    source = gzip.GzipFile(fileobj=file) if start[:2] == _GZIP else file
    # Not read(): at the end of a file that was cut off, it would not return what it has already decompressed.
    while piece := source.read1(PIECE):
        yield piece
