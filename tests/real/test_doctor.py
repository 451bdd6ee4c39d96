"""What doctor says of a real vLLM, from its own page alone."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from typing import Any

from tests.real.client import ask
from tests.real.engine import ROOT, Engine
from tests.real.four_endpoints import PATHS, request
from tests.real.tee import Tee

CHAT = PATHS["chat_completions"]
#: Nobody waits so long: the command is told when there is enough to see.
WATCH = "10m"
LIMIT_S = 300.0


async def read_on(engine: Engine, text: str, leave: asyncio.Event) -> None:
    """One answer after another, so that readers are there however long the rest takes."""
    body = request("chat_completions", stream=True, text=text, tokens=3000)
    while not leave.is_set():
        await ask(engine.port, CHAT, body, leave=leave)


async def look_at(tee: Tee) -> asyncio.subprocess.Process:
    """The command, as soon as it watches: a busy machine starts it in one second or in ten."""
    words = [sys.executable, "-m", "prefillwatch", "doctor", tee.url, "--json", "-", "--watch", WATCH]
    process = await asyncio.create_subprocess_exec(*words, stdout=subprocess.PIPE, cwd=ROOT)
    await next_page(tee)
    return process


async def next_page(tee: Tee) -> None:
    """Until a page that was asked for from now on has been read by the command: it asks again when it has."""
    pages = tee.requests(b"GET /metrics ")
    while tee.requests(b"GET /metrics ") < pages + 2:
        await asyncio.sleep(0.05)


async def report_of(process: asyncio.subprocess.Process) -> dict[str, Any]:
    process.send_signal(signal.SIGINT)
    try:
        out, _ = await process.communicate()
    except asyncio.CancelledError:
        process.kill()
        raise
    document: dict[str, Any] = json.loads(out)
    assert process.returncode == document["exit_code"]
    return document


def test_prompts_that_freeze_readers_are_seen_on_the_servers_own_page(engine: Engine, tee: Tee) -> None:
    async def freeze() -> dict[str, Any]:
        leave = asyncio.Event()
        readers = [asyncio.create_task(read_on(engine, f"{i} begin", leave)) for i in range(4)]
        looking = await look_at(tee)
        long = [request("chat_completions", stream=True, text=f"{i} " + "import " * 2500, tokens=1) for i in range(3)]
        await asyncio.gather(*(ask(engine.port, CHAT, body) for body in long))
        await next_page(tee)
        report = await report_of(looking)
        leave.set()
        await asyncio.gather(*readers)
        return report

    report = asyncio.run(asyncio.wait_for(freeze(), LIMIT_S))
    found = {finding["symptom"]: finding for finding in report["findings"]}
    assert report["server"] == "vllm"
    pauses = found["streams_pause"]
    assert pauses["seen"] == "yes", pauses
    assert pauses["numbers"]["pauses"] >= 4
    assert pauses["numbers"]["engine_steps_with_prompts"] > 0
    assert pauses["cannot_be_known"]
    assert found["single_user"]["seen"] == "no"
    assert found["kv_nearly_full"]["seen"] == "no"
    measured = {each["name"]: each["numbers"] for each in report["measurements"]}
    assert measured["prompt lengths"]["longest_tokens"] >= 2000
    assert measured["KV cache"]["kv_capacity_tokens"] > 50_000
