"""``prefillwatch sim`` and ``demo``: the simulated server, alone or with the sidecar and traffic."""

from __future__ import annotations

import asyncio
from typing import Any

import click
import uvloop

from prefillwatch.commands._options import ADDRESS, DURATION, number, switch
from prefillwatch.lab.simulator.presets import PRESETS
from prefillwatch.lab.simulator.server import serve
from prefillwatch.lab.simulator.settings import SimSettings
from prefillwatch.settings.addresses import ListenAddress

_with_preset = click.option(
    "--preset",
    type=click.Choice(list(PRESETS)),
    default="article",
    show_default=True,
    help="; ".join(f"{preset.name}: {preset.help}" for preset in PRESETS.values()) + ".",
)


@click.command()
@click.option("--listen", type=ADDRESS, default="127.0.0.1:8000", show_default=True, help="Where it answers.")
@_with_preset
@click.option("--served-model-name", metavar="NAME", help="Name of the model. [default: the preset's]")
@switch(
    "--enable-chunked-prefill",
    "Let prompts ride along with decoding in chunks, or take each in whole in a step of its own.",
)
@number("--max-num-batched-tokens", None, "Token budget of a step. [default: the preset's]")
@number("--max-num-seqs", None, "Most requests in a step. [default: the preset's]")
@number("--max-model-len", None, "Most tokens of prompt and answer. [default: the preset's]")
@number(
    "--long-prefill-token-threshold",
    0,
    "Most prompt tokens of one request in a step; 0: only the budget limits them.",
    least=0,
)
@switch("--enable-prefix-caching", "Keep and reuse prefixes.")
@number("--block-size", 16, "Tokens per KV cache block.")
@number(
    "--num-gpu-blocks-override",
    None,
    "Blocks of the KV cache. [default: the preset's]",
    most=10_000_000,  # each is an entry of a list
)
@switch("--enable-prompt-tokens-details", "Report cached prompt tokens in usage.")
def sim(listen: ListenAddress, **flags: Any) -> None:
    """A simulated vLLM server: an engine that steps, vLLM's endpoints and metrics, no model and no GPU.

    Options that vLLM has too carry its names. What is not given comes from the preset.
    """
    uvloop.run(serve(SimSettings(**flags), listen.host, listen.port))


@click.command()
@click.option("--listen", type=ADDRESS, help="Where clients connect. [default: 127.0.0.1:8080, or a free port]")
@click.option("--admin", type=ADDRESS, help="Where the live page is. [default: 127.0.0.1:9843, or a free port]")
@click.option(
    "--simulator", type=ADDRESS, help="Where the simulated vLLM is. [default: 127.0.0.1:8000, or a free port]"
)
@_with_preset
@switch("--enable-chunked-prefill", "With and without it: compare the gaps that a prefill overlapped.")
@number("--victims", 6, "Answers that always stream.", most=64)
@click.option(
    "--duration", "duration_seconds", type=DURATION, help="End by itself after this long. [default: until Ctrl-C]"
)
@click.option("--seed", type=int, metavar="N", default=1, show_default=True, help="Another seed, other traffic.")
@click.option("--tenants", is_flag=True, help="Tell readers, chats, questions and documents apart, as tenants.")
def demo(**options: Any) -> None:
    """A simulated vLLM, prefillwatch in front of it, and traffic in which long prompts freeze others. No GPU needed."""
    from prefillwatch.lab.demo import DemoSettings
    from prefillwatch.lab.demo import demo as play

    asyncio.run(play(DemoSettings(**options)))
