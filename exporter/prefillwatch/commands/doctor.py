"""``prefillwatch doctor``: which symptoms of prefill interference does a running server show?"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Final

import click
import msgspec

from prefillwatch.commands._options import Value
from prefillwatch.commands._output import check_writable, write
from prefillwatch.doctor.examine import Report, examine
from prefillwatch.doctor.look import Look
from prefillwatch.doctor.render import render
from prefillwatch.doctor.watch import Access, Watcher, address_of
from prefillwatch.settings.kinds import LOGIN_FILE, SECRET_FILE, Kind, duration
from prefillwatch.settings.quantities import parse_duration

LONGEST_WATCH_S: Final = 3600.0
_WIDEST: Final = 120


def _watch_time(value: str) -> float:
    seconds = parse_duration(value)
    if seconds > LONGEST_WATCH_S:
        raise ValueError(f"{value} is long; use an hour or less, and alert rules for what takes longer")
    return seconds


def _of(kind: Kind) -> Value:
    return Value(kind.read, kind.metavar)


@click.command(no_args_is_help=True)
@click.argument("url")
@click.option(
    "--watch",
    "watch_s",
    type=Value(_watch_time, "DURATION"),
    default="10s",
    show_default=True,
    help="Watch so long. 0: look once, at totals since the server's start.",
)
@click.option(
    "--json",
    "json_file",
    metavar="FILE",
    help="Write the findings as JSON to this file as well; - for standard output.",
)
@click.option("--bearer-token-file", "token", type=_of(SECRET_FILE), help="Send the token in this file.")
@click.option("--basic-auth-file", "login", type=_of(LOGIN_FILE), help="Send the USER:PASSWORD in this file.")
@click.option(
    "--timeout",
    "timeout_s",
    type=_of(duration(0.05)),
    default="10s",
    show_default=True,
    help="Give up on an answer after so long.",
)
@click.option("--ca", type=click.Path(exists=True, dir_okay=False), metavar="FILE", help="Trust this CA (PEM).")
@click.option("--insecure", is_flag=True, help="Do not verify the server's certificate.")
def doctor(
    url: str,
    watch_s: float,
    json_file: str | None,
    token: str | None,
    login: str | None,
    timeout_s: float,
    ca: str | None,
    insecure: bool,
) -> None:
    """Look at a running prefillwatch, or at a bare vLLM, SGLang or llama.cpp, and say which symptoms of prefill
    interference it shows, with the numbers behind each, and what cannot be known from there.

    URL is prefillwatch's admin address, or the server's own; without a path, /metrics is read.

    The exit code is 0 when nothing is seen (or nothing can be known), 1 when a symptom or a fault of the measurement is
    seen, and 2 when the server cannot be read.
    """
    access = Access(token or "", login or "", ca or "", insecure)
    address = address_of(url)
    file = Path(json_file).expanduser() if json_file and json_file != "-" else None
    check_writable(json=file)
    report = examine(asyncio.run(_watch(Watcher(address, access, timeout_s), watch_s)))
    document = msgspec.json.format(msgspec.json.encode({"url": address.shown, **report.document()})) + b"\n"
    if json_file == "-":
        click.echo(document, nl=False)
    else:
        _show(report, address.shown)
    if file:
        write(file, document)
    sys.exit(report.exit_code)


async def _watch(watcher: Watcher, seconds: float) -> Look:
    """Ctrl-C ends the watch early; what was seen so far is still reported."""
    enough = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, enough.set)
    return await watcher.watch(seconds, enough, _show_progress if sys.stderr.isatty() else None)


def _show_progress(left_s: float) -> None:
    text = f"watching, {left_s:.0f} s left (Ctrl-C: report at once)" if left_s > 0 else ""
    click.echo(f"\r{text:<60}" + ("" if text else "\r"), nl=False, err=True)


def _show(report: Report, url: str) -> None:
    coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    width = min(shutil.get_terminal_size((100, 24)).columns, _WIDEST)

    def paint(text: str, colour: str) -> str:
        if not coloured:
            return text
        return click.style(text, bold=True) if colour == "bold" else click.style(text, fg=colour, bold=True)

    for line in render(report, url, paint, width):
        click.echo(line)
