"""``prefillwatch sim`` and ``demo``: the simulated server, alone or with the sidecar and traffic."""

from __future__ import annotations

import asyncio
from typing import Any

import click
import uvloop

from prefillwatch.errors import ConfigError
from prefillwatch.lab.simulator.presets import PRESETS
from prefillwatch.lab.simulator.server import serve
from prefillwatch.lab.simulator.settings import SimSettings
from prefillwatch.settings.addresses import ListenAddress, parse_listen
from prefillwatch.settings.quantities import parse_duration

_PRESET_HELP = "; ".join(f"{preset.name}: {preset.help}" for preset in PRESETS.values()) + "."


@click.command()
@click.option("--listen", default="127.0.0.1:8000", show_default=True, metavar="HOST:PORT", help="Where it answers.")
@click.option("--preset", type=click.Choice(list(PRESETS)), default="article", show_default=True, help=_PRESET_HELP)
@click.option("--served-model-name", metavar="NAME", help="Name of the model. [default: the preset's]")
@click.option(
    "--enable-chunked-prefill/--no-enable-chunked-prefill",
    default=True,
    help="Let prompts ride along with decoding in chunks, or take each in whole in a step of its own. [default: on]",
)
@click.option(
    "--max-num-batched-tokens",
    type=click.IntRange(1),
    metavar="N",
    help="Token budget of a step. [default: the preset's]",
)
@click.option(
    "--max-num-seqs", type=click.IntRange(1), metavar="N", help="Most requests in a step. [default: the preset's]"
)
@click.option(
    "--max-model-len",
    type=click.IntRange(1),
    metavar="N",
    help="Most tokens of prompt and answer. [default: the preset's]",
)
@click.option(
    "--long-prefill-token-threshold",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="Most prompt tokens of one request in a step; 0: only the budget limits them. [default: 0]",
)
@click.option(
    "--enable-prefix-caching/--no-enable-prefix-caching", default=True, help="Keep and reuse prefixes. [default: on]"
)
@click.option(
    "--block-size", type=click.IntRange(1), default=16, metavar="N", help="Tokens per KV cache block. [default: 16]"
)
@click.option(
    "--num-gpu-blocks-override",
    type=click.IntRange(1, 10_000_000),  # each is an entry of a list
    metavar="N",
    help="Blocks of the KV cache. [default: the preset's]",
)
@click.option(
    "--enable-prompt-tokens-details/--no-enable-prompt-tokens-details",
    default=True,
    help="Tell cached prompt tokens in usage. [default: on]",
)
def sim(listen: str, **flags: Any) -> None:
    """A simulated vLLM server: an engine that steps, vLLM's endpoints and metrics, no model and no GPU.

    Options that vLLM has too carry its names. What is not given comes from the preset.
    """
    address = _address(listen, "--listen")
    uvloop.run(serve(SimSettings(**flags), address.host, address.port))


@click.command()
@click.option("--listen", metavar="HOST:PORT", help="Where clients connect. [default: 127.0.0.1:8080, or a free port]")
@click.option("--admin", metavar="HOST:PORT", help="Where the live page is. [default: 127.0.0.1:9843, or a free port]")
@click.option(
    "--simulator", metavar="HOST:PORT", help="Where the simulated vLLM is. [default: 127.0.0.1:8000, or a free port]"
)
@click.option("--preset", type=click.Choice(list(PRESETS)), default="article", show_default=True, help=_PRESET_HELP)
@click.option(
    "--enable-chunked-prefill/--no-enable-chunked-prefill",
    default=True,
    help="With and without it: compare the gaps that a prefill overlapped. [default: on]",
)
@click.option(
    "--victims",
    type=click.IntRange(1, 64),
    metavar="N",
    default=6,
    show_default=True,
    help="Answers that always stream.",
)
@click.option("--duration", metavar="DURATION", help="End by itself after this long. [default: until Ctrl-C]")
@click.option("--seed", type=int, metavar="N", default=1, show_default=True, help="Another seed, other traffic.")
def demo(listen: str | None, admin: str | None, simulator: str | None, duration: str | None, **options: Any) -> None:
    """A simulated vLLM, prefillwatch in front of it, and traffic in which long prompts freeze others. No GPU needed."""
    from prefillwatch.lab.demo import DemoSettings
    from prefillwatch.lab.demo import demo as play

    settings = DemoSettings(
        listen=_address(listen, "--listen") if listen else None,
        admin=_address(admin, "--admin") if admin else None,
        simulator=_address(simulator, "--simulator") if simulator else None,
        duration_seconds=_seconds(duration) if duration else None,
        **options,
    )
    asyncio.run(play(settings))


def _address(text: str, option: str) -> ListenAddress:
    try:
        return parse_listen(text)
    except ValueError as error:
        raise ConfigError(f"{option}: {error}") from None


def _seconds(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise ConfigError(f"--duration: {error}") from None
