"""``prefillwatch replay``: metrics, incidents and the page from a recording."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import Final

import click

from prefillwatch.commands._options import ADDRESS, FILE
from prefillwatch.commands._output import check_writable, write
from prefillwatch.errors import ConfigError
from prefillwatch.export.exposition import render
from prefillwatch.listening import bind_listeners, port_of, reachable_here
from prefillwatch.recorder.file import RecordingFile
from prefillwatch.recorder.player import Player
from prefillwatch.recorder.summary import Played, summary
from prefillwatch.settings.addresses import ListenAddress

_MOST_INCIDENTS: Final = 1000


@click.command()
@click.argument("file", type=FILE)
@click.option("--speed", default="max", show_default=True, metavar="X|max", help="Times as fast as it was.")
@click.option("--admin", "address", type=ADDRESS, help="Show the page, /metrics and /api/… there, until Ctrl-C.")
@click.option("--with-tenants", is_flag=True, help="Tell tenants and priorities apart, where the file has them.")
@click.option("--metrics", type=FILE, help="Write the metrics at its end here.")
@click.option("--incidents", type=FILE, help="Write the incidents here, as JSON.")
def replay(
    file: Path,
    speed: str,
    address: ListenAddress | None,
    with_tenants: bool,
    metrics: Path | None,
    incidents: Path | None,
) -> None:
    """Play what 'record' or the flight recorder wrote, and say what is in it.

    The same code works on it as then, so metrics, incidents and page are the same, whenever it is played. To watch it
    as it happened: --speed 1 --admin :9843
    """
    pace = _pace(speed)
    check_writable(metrics=metrics, incidents=incidents)
    recording = RecordingFile(file)
    try:
        listeners = _listen(address) if address else []
        player = Player(recording, pace, listeners, senders=with_tenants)
        asyncio.run(_play(player, bool(listeners), metrics, incidents))
    finally:
        recording.close()


async def _play(player: Player, shown: bool, metrics: Path | None, incidents: Path | None) -> None:
    async with player.running():
        _report(player, await player.play(), metrics, incidents)
        if shown and not player.stop.is_set():
            click.echo("It is still shown; Ctrl-C ends it.")
            await player.stop.wait()


def _report(player: Player, played: Played, metrics: Path | None, incidents: Path | None) -> None:
    replay = player.replay
    snapshot, found = replay.observation.snapshot(), replay.observation.incidents(_MOST_INCIDENTS)
    for line in summary(played, snapshot, replay.gap_totals, found):
        click.echo(line)
    if metrics is not None:
        write(metrics, render(snapshot)[0])
    if incidents is not None:
        write(incidents, json.dumps(found, indent=2) + "\n")


def _pace(speed: str) -> float | None:
    if speed == "max":
        return None
    try:
        pace = float(speed)
    except ValueError:
        pace = 0.0
    if not 0 < pace < float("inf"):
        raise ConfigError(f"--speed: {speed!r} is no speed; write max, or a number above 0 such as 1 or 10")
    return pace


def _listen(address: ListenAddress) -> list[socket.socket]:
    """Raises ListenError."""
    (listeners,) = bind_listeners(address, 1, "admin")
    shown = reachable_here(ListenAddress(address.host, port_of(listeners)))
    click.echo(f"metrics: http://{shown}/metrics  live page: http://{shown}/")
    return listeners
