"""The file of a recording.

    8 bytes     b"PFWREC\\r\\n"
    u16         version of the format
    u32         length of the header
    header      JSON, see `Header`
    chunks      u32 length, then a zstd frame (with checksum) that holds a chunk, see `chunks`

Little endian. A file that breaks off, because the process died or the disk was full, is good up to the last whole
chunk; one is written every two seconds.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, BinaryIO, Final

import msgspec
import zstandard

from prefillwatch.analysis.settings import AnalysisSettings
from prefillwatch.errors import PrefillwatchError
from prefillwatch.recorder.chunks import ChunkError, Entry, read_chunk

MAGIC: Final = b"PFWREC\r\n"
#: 2: a flight recording has what was learned before it. 3: the header's settings have the names of the configuration,
#: and what was learned has another layout.
VERSION: Final = 3
_READABLE: Final = (1, 2, VERSION)
#: Names of settings in the header before version 3, and what they are now.
_RENAMED: Final = {
    "prompt_edges": "prompt_buckets",
    "windows_s": "windows",
    "min_seconds": "min",
    "always_seconds": "always",
    "ttft_seconds": "ttft",
    "tpot_seconds": "tpot",
    "itl_seconds": "itl",
}

_VERSION: Final = struct.Struct("<H")
_LENGTH: Final = struct.Struct("<I")
_LARGEST_HEADER: Final = 1 << 20
_LARGEST_FRAME: Final = 64 << 20
_LARGEST_CHUNK: Final = 256 << 20
#: A chunk is compressed to a tenth of its size, or to a thirtieth where all streams look alike. A chunk that unpacks to
#: more than this many times its bytes was made to do harm.
_LARGEST_RATIO: Final = 256
_SMALL_CHUNK: Final = 16 << 20
_LEVEL: Final = 3


class RecordingError(PrefillwatchError):
    """A file that is no recording, or is damaged."""


#: Within the years that a calendar has.
_UnixTime = Annotated[float, msgspec.Meta(gt=-1e10, lt=1e11)]


class Header(msgspec.Struct, kw_only=True):
    """What must be known to play a recording. Times in seconds."""

    program: str  # version of prefillwatch that wrote it
    started_at: _UnixTime
    wall_offset: _UnixTime  # less the monotonic clock of the entries
    incident_prefix: str
    texts: bool = False  # prompts and answers are in it
    flight: bool = False  # what a flight recorder kept: begins in the middle
    plugin: bool = False  # the plugin inside the engine was listened to
    analysis: AnalysisSettings = AnalysisSettings()


def opening(header: Header) -> bytes:
    """What a file begins with."""
    document = msgspec.json.encode(header)
    return b"".join((MAGIC, _VERSION.pack(VERSION), _LENGTH.pack(len(document)), document))


_compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)


def frame(chunk: bytes) -> bytes:
    """A chunk as it stands in the file."""
    packed = _compressor.compress(chunk)
    return _LENGTH.pack(len(packed)) + packed


def _largest_chunk(packed_bytes: int) -> int:
    return min(_SMALL_CHUNK + _LARGEST_RATIO * packed_bytes, _LARGEST_CHUNK)


class RecordingFile:
    """A recording that is read from the start to its end, or to where it was cut (``cut_at``: bytes that are good)."""

    def __init__(self, path: Path) -> None:
        """Raises RecordingError."""
        self.path = path
        self.cut_at: int | None = None
        try:
            self._file: BinaryIO = path.open("rb")
            self.size = path.stat().st_size
        except OSError as error:
            raise RecordingError(f"cannot read {path}: {error.strerror}; give a file that 'record' wrote") from None
        try:
            self.header = self._read_header()
        except RecordingError:
            self.close()
            raise

    def __enter__(self) -> RecordingFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    def entries(self) -> Iterator[Entry]:
        """Raises RecordingError where it is damaged."""
        decompressor = zstandard.ZstdDecompressor()
        while True:
            at = self._file.tell()
            packed = self._next_frame()
            if packed is None:
                self.cut_at = at if at != self.size else None
                return
            try:
                if zstandard.frame_content_size(packed) > _largest_chunk(len(packed)):
                    raise ChunkError("too large")
                chunk = decompressor.decompress(packed, allow_extra_data=False)
                yield from read_chunk(chunk)
            except (zstandard.ZstdError, ChunkError):
                raise self._damaged(at) from None

    def _read_header(self) -> Header:
        if not self.size:
            raise RecordingError(f"{self.path} is empty: nothing was recorded to it")
        start = self._file.read(len(MAGIC) + _VERSION.size + _LENGTH.size)
        if start[: len(MAGIC)] != MAGIC or len(start) < len(MAGIC) + _VERSION.size + _LENGTH.size:
            raise RecordingError(f"{self.path} is no recording of prefillwatch; give a file that 'record' wrote")
        (version,) = _VERSION.unpack_from(start, len(MAGIC))
        if version not in _READABLE:
            raise RecordingError(
                f"{self.path} has version {version} of the format, and this knows versions up to {VERSION}; "
                "play it with the release of prefillwatch that wrote it"
            )
        (length,) = _LENGTH.unpack_from(start, len(MAGIC) + _VERSION.size)
        document = self._file.read(min(length, _LARGEST_HEADER))
        try:
            if version < VERSION:
                return msgspec.convert(_renamed(msgspec.json.decode(document)), Header)
            return msgspec.json.decode(document, type=Header)
        except msgspec.DecodeError:
            raise RecordingError(
                f"{self.path} is damaged at byte {len(start)} of {self.size}, in its header: nothing can be played"
            ) from None

    def _next_frame(self) -> bytes | None:
        """None at the end, or where the rest is not there."""
        start = self._file.read(_LENGTH.size)
        if len(start) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack(start)
        if length > _LARGEST_FRAME:
            raise self._damaged(self._file.tell() - _LENGTH.size)
        packed = self._file.read(length)
        return packed if len(packed) == length else None

    def _damaged(self, at: int) -> RecordingError:
        return RecordingError(
            f"{self.path} is damaged at byte {at} of {self.size}; "
            f"what comes before can be played when it is cut there: head -c {at} {self.path} > good.pfw"
        )


def _renamed(document: object) -> object:
    """A header of an older version with today's names of settings."""
    if not isinstance(document, dict) or not isinstance(document.get("analysis"), dict):
        return document
    analysis = {_RENAMED.get(name, name): value for name, value in document["analysis"].items()}
    for section, values in analysis.items():
        if isinstance(values, dict):
            analysis[section] = {_RENAMED.get(name, name): value for name, value in values.items()}
    if isinstance(analysis.get("stall"), dict) and "min" in analysis["stall"]:
        analysis["stall"]["min_gap"] = analysis["stall"].pop("min")
    return document | {"analysis": analysis}
