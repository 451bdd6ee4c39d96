"""``prefillwatch probe``: long prompts into steady streams, and what the streams make of it."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import click

from prefillwatch.commands._arrivals import arrivals_of, question, with_arrivals
from prefillwatch.commands._options import (
    duration,
    file,
    key_of,
    number,
    with_bounds,
    with_key,
    with_model,
    with_streams,
    with_trust,
)
from prefillwatch.commands._output import check_writable, say, write
from prefillwatch.commands._stopping import stop_on_signals
from prefillwatch.lab.charts.drawing import require_charts
from prefillwatch.lab.probe.experiment import Progress, run_probe
from prefillwatch.lab.probe.page import to_html
from prefillwatch.lab.probe.result import ProbeResult
from prefillwatch.lab.probe.saved import read_side
from prefillwatch.lab.probe.settings import ProbeSettings, fitted, plan
from prefillwatch.lab.probe.terminal import report
from prefillwatch.lab.stopping import INTERRUPTED
from prefillwatch.lab.target import Target, reach


def _sizes(ctx: click.Context, option: click.Parameter, text: str) -> tuple[int, ...]:  # noqa: ARG001
    try:
        return tuple(dict.fromkeys(int(part.replace("_", "")) for part in text.split(",")))
    except ValueError:
        raise click.BadParameter(f"{text!r} is no list of token counts; write 6000 or 500,1000,2000") from None


def _header(ctx: click.Context, option: click.Parameter, lines: tuple[str, ...]) -> dict[str, str]:  # noqa: ARG001
    pairs = [line.partition(":") for line in lines]
    if any(not name.strip() or not colon for name, colon, _ in pairs):
        raise click.BadParameter("write 'NAME: VALUE'")
    return {name.strip(): value.strip() for name, _, value in pairs}


@click.command()
@click.option(
    "--url",
    required=True,
    metavar="URL",
    help="Any server that speaks OpenAI's chat completions, or a prefillwatch; http[s]://… or unix:/PATH.",
)
@with_model
@with_streams(recovery="5s")
@number(
    "--inject",
    None,
    "Long prompts sent at once. [default: 12; 1 where several sizes are compared]",
    most=512,
    metavar="M",
)
@click.option(
    "--prompt-tokens",
    default="6000",
    show_default=True,
    callback=_sizes,
    metavar="K[,K…]",
    help="Their length; several sizes give the dose–response curve.",
)
@number(
    "--repeats",
    None,
    "Do it all so many times over. [default: 1; 3 where several sizes are compared]",
    most=100,
    metavar="R",
)
@with_arrivals(instead_of="prompts at once")
@duration("--arrivals-for", "1m", "Play only so much of them.")
@number("--answer-tokens", 16, "Answer of a long prompt.")
@number("--victim-tokens", 8192, "Most tokens of one victim in one run, prompts and answers.", least=512)
@with_bounds
@click.option("--label", default="", metavar="TEXT", help="Name of the setting under test, for the report.")
@file("--json", "Figures.")
@file("--html", "A page with charts.")
@file("--compare", "Compare with an earlier probe, by its --json file.", exists=True)
@with_key
@click.option("--header", "headers", multiple=True, callback=_header, metavar="'NAME: VALUE'", help="Sent along.")
@with_trust
@click.option("--seed", default="", metavar="TEXT", help="The same prompts each time, which a server may have cached.")
def probe(
    url: str,
    model: str | None,
    json_file: Path | None,
    html_file: Path | None,
    compare_file: Path | None,
    arrivals_for: float,
    arrivals_anyway: bool,
    api_key_file: Path | None,
    api_key: str | None,
    headers: dict[str, str],
    ca_file: Path | None,
    insecure: bool,
    **options: Any,
) -> None:
    """Freeze a server on purpose: steady streams, then long prompts at once, then recovery.

    \b
    Twelve prompts at once:     prefillwatch probe --url http://127.0.0.1:8000
    Dose and response:          prefillwatch probe --url … --prompt-tokens 500,1000,2000,4000,8000 --html report.html

    What it may send at most is said first. Ctrl-C ends it early and reports what was measured until then.
    """
    arrivals = arrivals_of(options)
    settings = _settings(options)
    if arrivals:
        arrivals = arrivals.limited(seconds=arrivals_for)
        question(arrivals, arrivals_anyway)
        settings = settings.of_arrivals(arrivals)
    plan(settings)
    before = read_side(compare_file) if compare_file else None
    check_writable(json=json_file, html=html_file)
    if html_file:
        require_charts()
    key = key_of(api_key_file, api_key)
    reaching = reach(url, api_key=key, model=model, headers=headers, ca_file=ca_file, insecure=insecure)
    result = asyncio.run(_probe(reaching, settings))
    try:  # if writing one of them fails, the others are not lost
        if json_file:
            write(json_file, json.dumps(result.to_json(), indent=1) + "\n")
        if html_file:
            write(html_file, to_html(result, before))
    finally:
        click.echo("\n".join(report(result, before)))
    sys.exit(0 if not result.problem else INTERRUPTED if result.interrupted else 1)


def _settings(options: dict[str, Any]) -> ProbeSettings:
    several = len(options["prompt_tokens"]) > 1
    return ProbeSettings(
        victims=options["victims"],
        inject=options["inject"] or (1 if several else 12),
        prompt_tokens=options["prompt_tokens"],
        repeats=options["repeats"] or (3 if several else 1),
        warmup_seconds=options["warmup"],
        recovery_seconds=options["recovery"],
        answer_tokens=options["answer_tokens"],
        victim_tokens=options["victim_tokens"],
        injection_seconds=options["injection_limit"],
        max_tokens=options["max_tokens"],
        max_seconds=options["max_time"],
        label=options["label"],
        seed=options["seed"],
    )


async def _probe(reaching: Any, settings: ProbeSettings) -> ProbeResult:
    target: Target = await reaching
    settings = fitted(settings, target.max_model_len)
    screen = _Screen()
    screen.line(f"{target.model} at {target.url}; Ctrl-C ends it early")
    screen.line(plan(settings).sentence())
    try:
        return await run_probe(target, settings, screen.show, stop=stop_on_signals())
    finally:
        screen.clear()


class _Screen:
    """Progress on stderr: whole lines, and on a terminal one line that is overwritten."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()

    def show(self, progress: Progress) -> None:
        text = progress.text
        if progress.run:
            text = f"[{progress.run}/{progress.runs}] {progress.prompt_tokens:,} tokens: {text}"
        if not progress.passing:
            self.line(text)
        elif self._is_terminal:
            width = shutil.get_terminal_size().columns - 1
            say(f"\r\x1b[K{text[:width]}", end="")

    def line(self, text: str) -> None:
        self.clear()
        say(text)

    def clear(self) -> None:
        if self._is_terminal:
            say("\r\x1b[K", end="")
