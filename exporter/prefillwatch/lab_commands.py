"""``prefillwatch sim`` and ``demo``: the simulated server, alone or with the sidecar and traffic."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from prefillwatch.addresses import ListenAddress, parse_listen
from prefillwatch.errors import ConfigError
from prefillwatch.lab.simulator.presets import PRESETS
from prefillwatch.lab.simulator.server import serve
from prefillwatch.lab.simulator.settings import SimSettings

_PRESET_HELP = "; ".join(f"{preset.name}: {preset.help}" for preset in PRESETS.values())


@click.command()
@click.option("--listen", default="127.0.0.1:8000", show_default=True, metavar="HOST:PORT", help="Where it answers.")
@click.option("--preset", type=click.Choice(list(PRESETS)), default="article", show_default=True, help=_PRESET_HELP)
@click.option("--served-model-name", metavar="NAME", help="Name of the model. [the preset's]")
@click.option(
    "--enable-chunked-prefill/--no-enable-chunked-prefill",
    default=True,
    help="Let prompts ride along with decoding in chunks, or take each in whole in a step of its own. [on]",
)
@click.option("--max-num-batched-tokens", type=click.IntRange(1), metavar="N", help="Token budget of a step.")
@click.option("--max-num-seqs", type=click.IntRange(1), metavar="N", help="Most requests in a step.")
@click.option("--max-model-len", type=click.IntRange(1), metavar="N", help="Most tokens of prompt and answer.")
@click.option(
    "--long-prefill-token-threshold",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="Most prompt tokens of one request in a step; 0: only the budget limits them. [0]",
)
@click.option("--enable-prefix-caching/--no-enable-prefix-caching", default=True, help="Keep and reuse prefixes. [on]")
@click.option("--block-size", type=click.IntRange(1), default=16, metavar="N", help="Tokens per KV cache block. [16]")
@click.option("--num-gpu-blocks-override", type=click.IntRange(1), metavar="N", help="Blocks of the KV cache.")
@click.option(
    "--enable-prompt-tokens-details/--no-enable-prompt-tokens-details",
    default=True,
    help="Tell cached prompt tokens in usage. [on]",
)
def sim(listen: str, **flags: Any) -> None:
    """A simulated vLLM server: an engine that steps, vLLM's endpoints and metrics, no model and no GPU.

    Options that vLLM has too carry its names. What is not given comes from the preset.
    """
    address = _address(listen)
    asyncio.run(serve(SimSettings(**flags), address.host, address.port))


def _address(text: str) -> ListenAddress:
    try:
        return parse_listen(text)
    except ValueError as error:
        raise ConfigError(f"--listen: {error}") from None
