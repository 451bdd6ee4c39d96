"""``prefillwatch sweep``: the same measurement on one server started with several settings, and what each costs."""

from __future__ import annotations

import asyncio
import hashlib
import sys
import time
from pathlib import Path
from typing import Any

import click

from prefillwatch.commands._arrivals import arrivals_of, question, with_arrivals
from prefillwatch.commands._options import (
    FILE,
    FOLDER,
    duration,
    file,
    key_of,
    number,
    with_bounds,
    with_model,
    with_streams,
)
from prefillwatch.commands._output import check_writable, say, write
from prefillwatch.commands._stopping import stop_on_signals
from prefillwatch.errors import ConfigError, PrefillwatchError
from prefillwatch.lab.arrivals import Schedule
from prefillwatch.lab.charts.drawing import require_charts
from prefillwatch.lab.probe.settings import ProbeSettings
from prefillwatch.lab.stopping import INTERRUPTED
from prefillwatch.lab.sweep.choice import Slo
from prefillwatch.lab.sweep.figures import MixFigures, ProbeFigures
from prefillwatch.lab.sweep.grid import grid
from prefillwatch.lab.sweep.measure import Measurement, Say, bound, measure
from prefillwatch.lab.sweep.mix import MixSettings
from prefillwatch.lab.sweep.page import page
from prefillwatch.lab.sweep.plan import plan_lines
from prefillwatch.lab.sweep.redaction import without_secrets
from prefillwatch.lab.sweep.store import Results, Store, open_store
from prefillwatch.lab.sweep.sweep import Sweep, SweepSettings, row_label
from prefillwatch.lab.sweep.terminal import report
from prefillwatch.lab.target import Target


def _counts(ctx: click.Context, option: click.Parameter, text: str) -> tuple[int, ...]:  # noqa: ARG001
    try:
        counts = tuple(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError:
        counts = (-1,)
    if min(counts) < 0 or (0 in counts and len(counts) > 1) or max(counts) > 512:
        raise click.BadParameter(f"{text!r} is no list of numbers of prompts; write 12 or 3,12, or 0 for no probe")
    return () if counts == (0,) else counts


@click.command(context_settings={"allow_interspersed_args": False})  # the command's options are its own
@click.option(
    "--vary",
    multiple=True,
    metavar="FLAG=V[,V…]",
    help="A flag of the server and its values; on and off for a switch, default to leave it out. Several are combined.",
)
@click.option("--setting", "whole", multiple=True, metavar="'FLAGS'", help="One more setting, as flags of the server.")
@with_streams(recovery="4s")
@click.option(
    "--inject",
    "injects",
    default="12",
    show_default=True,
    callback=_counts,
    metavar="M[,M…]",
    help="The probe's long prompts at once; a probe for each number; 0: no probe.",
)
@number("--prompt-tokens", 6000, "Their length.")
@number("--repeats", 1, "So many runs of each probe.", most=100)
@duration("--mix", "60s", "Length of the mix; 0: none.")
@number("--readers", 4, "The mix's steady streams.", most=256)
@click.option(
    "--mix-rate",
    type=click.FloatRange(0.01, 1000),
    default=1.0,
    show_default=True,
    metavar="X",
    help="So many times 30 chats, 6 questions and 6 documents a minute; arrivals of a file, so many times as fast.",
)
@with_arrivals(instead_of="that mix")
@duration("--slo-itl-p99", None, "Promised gap between tokens: name the setting for it.")
@duration("--slo-ttft", None, "Promised first token, as p99 of the mix.")
@click.option(
    "--slo-over",
    type=click.Choice(["window", "overall", "mix"]),
    default="window",
    show_default=True,
    help="Whose gaps were promised: the probe's injection window, all of the probe, or the mix.",
)
@file(
    "--json",
    "Results, written after every setting; the same command goes on where it ended.",
    default="sweep.json",
)
@click.option("--overwrite", is_flag=True, help="Begin anew although there are results.")
@file("--html", "A page with charts.")
@click.option("--plan", "only_plan", is_flag=True, help="Say what would be done and what it may cost, and end.")
@duration("--start-limit", "15m", "To be up.")
@duration("--stop-limit", "30s", "To be gone.")
@click.option("--server-logs", type=FOLDER, metavar="DIR", help="Keep the servers' output.")
@click.option("--upstream", metavar="URL", help="Where the command's server answers, if that cannot be told from it.")
@with_model
@click.option("--api-key-file", type=FILE, metavar="FILE", help="The server's key, if not in the command.")
@click.option(
    "--api-key",
    envvar=["PREFILLWATCH_API_KEY", "VLLM_API_KEY"],
    show_envvar=True,
    metavar="KEY",
    help="The key itself.",
)
@with_bounds
@click.option("--seed", type=int, metavar="N", default=1, show_default=True, help="Another seed, another mix.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND…", required=True)
def sweep(
    command: tuple[str, ...],
    json_file: Path,
    html_file: Path | None,
    overwrite: bool,
    only_plan: bool,
    **options: Any,
) -> None:
    """Start a server once with each setting, measure it, and map what smooth streams cost.

    \b
    The usual settings:   prefillwatch sweep --html sweep.html -- vllm serve MODEL
    Some of your own:     prefillwatch sweep --vary max-num-batched-tokens=512,2048 \\
                            --setting=--no-enable-chunked-prefill -- vllm serve MODEL
    For a promise:        prefillwatch sweep --slo-itl-p99 200ms -- vllm serve MODEL

    Each server gets a free loopback port and the flags of its setting at the end of the command; where they belong
    elsewhere, write {port} and {flags}. On each: long prompts into steady streams as in probe, then a mix of chats,
    questions and documents. Ctrl-C stops the server at hand and reports what was measured before.
    """
    settings = _settings(command, options)
    measurement = _measurement(options)
    each = bound(measurement)
    slo = Slo(options["slo_itl_p99"], options["slo_ttft"], options["slo_over"])
    for setting in settings.settings:
        settings.prepared(setting)
    check_writable(json=json_file, html=html_file)
    if html_file:
        require_charts()
    labels = [row_label(setting) for setting in settings.settings]
    shown = without_secrets(command)
    made = measurement.made_with()
    store = open_store(json_file, shown, made, labels, now=time.time(), overwrite=overwrite)
    say("\n".join(plan_lines(settings, measurement, each, store.resumed)))
    if only_plan:
        return
    if settings.logs is not None:
        _make_folder(settings.logs)
    try:
        complete = asyncio.run(_sweep(settings, measurement, store))
    except PrefillwatchError:
        if store.results.settings:
            click.echo(report(store.results, slo))
        raise
    _report(store.results, slo, json_file, html_file)
    worked = any(row.failure is None for row in store.results.settings)
    sys.exit(INTERRUPTED if not complete else 0 if worked else 1)


def _make_folder(logs: Path) -> None:
    try:
        logs.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--server-logs {logs}: the folder cannot be made ({error.strerror}); name another") from None


def _settings(command: tuple[str, ...], options: dict[str, Any]) -> SweepSettings:
    return SweepSettings(
        command=command,
        settings=grid(options["vary"], options["whole"]),
        upstream=options["upstream"],
        model=options["model"],
        api_key=key_of(options["api_key_file"], options["api_key"]),
        start_limit_seconds=options["start_limit"],
        stop_limit_seconds=options["stop_limit"],
        logs=options["server_logs"],
    )


def _measurement(options: dict[str, Any]) -> Measurement:
    arrivals = arrivals_of(options)
    probe = ProbeSettings(
        victims=options["victims"],
        inject=max(options["injects"], default=1),
        prompt_tokens=(options["prompt_tokens"],),
        repeats=options["repeats"],
        warmup_seconds=options["warmup"],
        recovery_seconds=options["recovery"],
        injection_seconds=options["injection_limit"],
        max_tokens=options["max_tokens"],
        max_seconds=options["max_time"],
    )
    mix = MixSettings(
        seconds=options["mix"], readers=options["readers"], rate=options["mix_rate"], seed=options["seed"]
    )
    measurement = Measurement(
        probe=probe,
        injects=options["injects"],
        mix=mix,
        arrivals=arrivals,
        arrivals_digest=_digest(arrivals) if arrivals else "",
    )
    if arrivals:
        question(measurement.schedule(), options["arrivals_anyway"])
    return measurement


def _digest(arrivals: Schedule) -> str:
    """Of the requests as they were read: the same file read with another unit is another load."""
    whole = hashlib.sha256()
    for each in arrivals.arrivals:
        whole.update(repr(each).encode())
    return whole.hexdigest()[:16]


async def _sweep(settings: SweepSettings, measurement: Measurement, store: Store) -> bool:
    """Returns whether the sweep was completed."""

    async def on_server(target: Target, say: Say) -> tuple[tuple[ProbeFigures, ...], MixFigures | None]:
        return await measure(target, measurement, say)

    stop = stop_on_signals(lambda: say("stopping the server; once more kills it"))
    return await Sweep(settings, on_server, bound(measurement), store, say, stop).run()


def _report(results: Results, slo: Slo, json_file: Path, html_file: Path | None) -> None:
    say("")
    click.echo(report(results, slo))
    if not results.settings:
        return
    if html_file:
        write(html_file, page(results, slo))
    say(f"\nwritten: {', '.join(str(file) for file in (json_file, html_file) if file)}")
