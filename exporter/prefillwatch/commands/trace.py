"""``prefillwatch trace``: a torch profiler trace read as engine steps, or captured from a server and then read."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from prefillwatch.commands._options import (
    FILE,
    FOLDER,
    duration,
    file,
    key_of,
    number,
    with_key,
    with_model,
    with_trust,
)
from prefillwatch.commands._output import check_writable, say, write
from prefillwatch.commands._stopping import stop_on_signals
from prefillwatch.errors import ConfigError
from prefillwatch.lab.charts.drawing import require_charts
from prefillwatch.lab.target import reach
from prefillwatch.lab.trace.analyse import read_file
from prefillwatch.lab.trace.annotate import annotate
from prefillwatch.lab.trace.capture import CaptureSettings, capture
from prefillwatch.lab.trace.errors import CaptureInterrupted, TraceError
from prefillwatch.lab.trace.findings import ClientSide
from prefillwatch.lab.trace.picture import draw
from prefillwatch.lab.trace.terminal import client_side, report
from prefillwatch.lab.trace.trace_files import TraceFolder

#: How long the server may take to have its trace on disk after it said so.
_PATIENCE_S: Final = 60.0


@click.command()
@click.argument("file", required=False, type=FILE)
@file("--json", "Write all figures.")
@file("--svg", "Draw the heartbeat.")
@file("--png", "Draw the heartbeat, 1200 × 400.")
@click.option(
    "--annotate",
    "annotated_file",
    type=FILE,
    metavar="FILE",
    help="Write the trace again with steps, prefill and widest gap as tracks, for ui.perfetto.dev (.json or .json.gz).",
)
@click.option("--capture", "url", metavar="URL", help="Make a trace first: arm the profiler of the vLLM server there.")
@click.option(
    "--trace-dir",
    type=FOLDER,
    metavar="DIR",
    help="Where that server writes its traces (its torch_profiler_dir), seen from here.",
)
@with_model
@number("--victims", 4, "Answers that stream.", most=256)
@number("--prompt-tokens", 6000, "The prompt sent in.", least=16)
@number("--steps-before", 10, "Steps before the prompt.", most=200)
@number("--steps-after", 20, "Steps after its first token.", most=200)
@click.option(
    "--warm/--no-warm", default=True, help="Send a prompt of that size once before, so that kernels are tuned."
)
@number("--victim-tokens", 2048, "Most tokens of a stream.", least=128)
@duration("--max-time", "2m", "End the capture then.")
@with_key
@with_trust
def trace(
    file: Path | None,
    url: str | None,
    json_file: Path | None,
    svg_file: Path | None,
    png_file: Path | None,
    annotated_file: Path | None,
    **options: Any,
) -> None:
    """Read a torch profiler trace of vLLM: kernels, engine steps, and what a prompt did to them.

    \b
    A trace that is there:      prefillwatch trace rank0.pt.trace.json.gz --png heartbeat.png
    A trace made for it:        prefillwatch trace --capture http://127.0.0.1:8000 --trace-dir /traces
    """
    if (file is None) == (url is None):
        raise ConfigError("give a trace FILE, or --capture URL to make one")
    check_writable(json=json_file, svg=svg_file, png=png_file, annotate=annotated_file)
    if svg_file or png_file:
        require_charts()
    seen: ClientSide | None = None
    if url is not None:
        file, seen = _captured(url, options)
    if file is not None:
        _read(file, seen, json_file, [picture for picture in (svg_file, png_file) if picture], annotated_file)
    elif seen is not None:
        click.echo(client_side(seen))
    if seen is not None and seen.problem:
        raise (CaptureInterrupted if seen.interrupted else TraceError)(f"the capture ended early: {seen.problem}")


def _read(
    file: Path, seen: ClientSide | None, json_file: Path | None, pictures: list[Path], annotated_file: Path | None
) -> None:
    """Prints the report and writes what was asked for. Raises TraceError at the end where the trace was not read to its
    end."""
    findings, reader = read_file(file)
    click.echo(report(findings) + (f"\n\n{client_side(seen)}" if seen else ""))
    if json_file:
        plain = msgspec.to_builtins(findings) | ({"clients": msgspec.to_builtins(seen)} if seen else {})
        write(json_file, msgspec.json.format(msgspec.json.encode(plain), indent=1) + b"\n")
    for picture in pictures:
        draw(findings, picture)
    if reader.problem:
        raise TraceError(f"{file}: {reader.problem}")
    if annotated_file and reader.events_end is not None:
        annotate(file, annotated_file, findings, reader.events_end)
        click.echo(f"\nAnnotated trace, for https://ui.perfetto.dev: {annotated_file}")


def _captured(url: str, options: dict[str, Any]) -> tuple[Path | None, ClientSide]:
    """The new trace, or None where its folder cannot be seen from here; and what clients saw meanwhile."""
    settings = CaptureSettings(
        victims=options["victims"],
        prompt_tokens=options["prompt_tokens"],
        tokens_before=options["steps_before"],
        tokens_after=options["steps_after"],
        victim_tokens=options["victim_tokens"],
        max_seconds=options["max_time"],
        warm=options["warm"],
    )
    folder = TraceFolder(options["trace_dir"]) if options["trace_dir"] else None
    return asyncio.run(_capture(url, settings, folder, options))


async def _capture(
    url: str, settings: CaptureSettings, folder: TraceFolder | None, options: dict[str, Any]
) -> tuple[Path | None, ClientSide]:
    key = key_of(options["api_key_file"], options["api_key"])
    target = await reach(
        url, api_key=key, model=options["model"], ca_file=options["ca_file"], insecure=options["insecure"]
    )
    say(f"{target.model} at {target.url}: at most {settings.most_tokens:,} tokens and {settings.max_seconds:g} s")
    seen = await capture(target, settings, say, stop_on_signals())
    if folder is None:
        say("the trace is where the server writes it, its torch_profiler_dir; then: prefillwatch trace FILE")
        return None, seen
    traces = await folder.new_traces(_PATIENCE_S)
    for other in traces[1:]:
        say(f"there is one more, of another worker: {other}")
    say(f"reading {traces[0]}")
    return traces[0], seen
