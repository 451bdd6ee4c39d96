"""The trace again, with what was found in it as tracks of their own, for Perfetto and chrome://tracing.

The trace's own events stay as they are, byte for byte; ours are appended.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from prefillwatch.lab.trace.errors import TraceError
from prefillwatch.lab.trace.findings import Findings, TickFigures
from prefillwatch.lab.trace.reading import pieces_of
from prefillwatch.report import duration

#: A process id that no trace has: larger than Linux gives out.
PROCESS: Final = 4_200_001
_TRACKS: Final = {1: "engine steps", 2: "prefill", 3: "widest gap between decode kernels"}
_GZIP_LEVEL: Final = 5


def annotate(source: Path, target: Path, findings: Findings, events_end: int) -> int:
    """Write `source` with our tracks to `target` (compressed if its name ends in .gz); how many events were added.

    `events_end` is the offset behind the last event of the decompressed trace. Raises TraceError when a file cannot be
    read or written; then there is no half-written target.
    """
    if target.exists() and target.samefile(source):
        raise TraceError(f"{target}: this is the trace itself; give the annotated one another name")
    ours = list(_events(findings))
    added = b"".join(b",\n  " + msgspec.json.encode(event) for event in ours)
    if not findings.events:
        added = added[1:]
    unfinished = target.with_name(f".{target.name}.unfinished")
    try:
        with unfinished.open("wb") as file:
            _copy(source, file, compressed=target.suffix == ".gz", at=events_end, added=added)
        unfinished.replace(target)
    except OSError as error:
        raise TraceError(f"{target}: cannot be written ({error.strerror or error})") from None
    finally:
        unfinished.unlink(missing_ok=True)
    return len(ours)


def _copy(source: Path, file: IO[bytes], *, compressed: bool, at: int, added: bytes) -> None:
    packer = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, 16 + zlib.MAX_WBITS) if compressed else None
    for piece in _with_added(pieces_of(source), at, added):
        file.write(packer.compress(piece) if packer else piece)
    if packer:
        file.write(packer.flush())


def _with_added(pieces: Iterator[bytes], at: int, added: bytes) -> Iterator[bytes]:
    offset = 0
    try:
        for piece in pieces:
            if offset <= at < offset + len(piece):
                yield piece[: at - offset]
                yield added
                yield piece[at - offset :]
            else:
                yield piece
            offset += len(piece)
        if at == offset:
            yield added
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise TraceError(f"the trace changed while it was read ({error})") from None


def _events(findings: Findings) -> Iterator[dict[str, Any]]:
    start_us = findings.start_microseconds
    yield _named("process_name", 0, {"name": "prefillwatch"})
    yield _named("process_sort_index", 0, {"sort_index": -1})
    for track, name in _TRACKS.items():
        yield _named("thread_name", track, {"name": name})
        yield _named("thread_sort_index", track, {"sort_index": track})
    for number, step in enumerate(findings.steps):
        if step.interval_seconds is not None:
            yield _span(1, _step_name(step), step.start_seconds, step.interval_seconds, start_us, _told(number, step))
    for prefill in findings.prefills:
        length = prefill.end_seconds - prefill.start_seconds
        tokens = f" of {prefill.prompt_tokens} tokens" if prefill.prompt_tokens else ""
        several = "s" if (prefill.most_prompts or 1) > 1 else ""
        yield _span(2, f"prompt{several}{tokens}", prefill.start_seconds, length, start_us, {"steps": prefill.steps})
    if gaps := findings.decode_gaps:
        told = {"busy_ratio": round(gaps.widest_busy_ratio, 4), "kernel": gaps.kernel}
        name = f"widest gap, device at work {gaps.widest_busy_ratio:.0%}"
        yield _span(3, name, gaps.widest_start_seconds, gaps.max_seconds, start_us, told)


def _step_name(step: TickFigures) -> str:
    kind = "kernels tried out" if step.tuning else "with a prompt" if step.prefill else "decode"
    return f"{kind}, {duration(step.interval_seconds)}"


def _told(number: int, step: TickFigures) -> dict[str, Any]:
    told = {"step": number, "busy_ratio": round(step.busy_ratio, 4)}
    if step.prompt_tokens is not None:
        told |= {"prompt_tokens": step.prompt_tokens, "answers": step.answers or 0}
    return told


def _named(what: str, track: int, args: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": PROCESS, "tid": track, "ts": 0, "args": args}


def _span(
    track: int, name: str, start_seconds: float, seconds: float, start_us: float, args: dict[str, Any]
) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": "prefillwatch",
        "name": name,
        "pid": PROCESS,
        "tid": track,
        "ts": round(start_us + start_seconds * 1e6, 3),
        "dur": round(seconds * 1e6, 3),
        "args": args,
    }
