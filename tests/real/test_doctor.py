"""What doctor says of a real vLLM, from its own page alone."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Any

from tests.real.client import ask
from tests.real.engine import ROOT, Engine
from tests.real.four_endpoints import PATHS, request

CHAT = PATHS["chat_completions"]
WATCH = "8s"


async def doctor(url: str) -> dict[str, Any]:
    words = [sys.executable, "-m", "prefillwatch", "doctor", url, "--json", "-", "--watch", WATCH]
    process = await asyncio.create_subprocess_exec(*words, stdout=subprocess.PIPE, cwd=ROOT)
    out, _ = await process.communicate()
    document: dict[str, Any] = json.loads(out)
    assert process.returncode == document["exit_code"]
    return document


def test_prompts_that_freeze_readers_are_seen_on_the_servers_own_page(engine: Engine) -> None:
    async def freeze() -> dict[str, Any]:
        leave = asyncio.Event()
        bodies = [request("chat_completions", stream=True, text=f"{i} begin", tokens=3000) for i in range(4)]
        tasks = [asyncio.create_task(ask(engine.port, CHAT, body, leave=leave)) for body in bodies]
        await asyncio.sleep(1)
        looking = asyncio.create_task(doctor(engine.url))
        await asyncio.sleep(3)  # the command is watching by now
        long = [request("chat_completions", stream=True, text=f"{i} " + "import " * 2500, tokens=1) for i in range(3)]
        await asyncio.gather(*(ask(engine.port, CHAT, body) for body in long))
        report = await looking
        leave.set()
        await asyncio.gather(*tasks)
        return report

    report = asyncio.run(freeze())
    found = {finding["symptom"]: finding for finding in report["findings"]}
    assert report["server"] == "vllm"
    pauses = found["streams_pause"]
    assert pauses["seen"] == "yes"
    assert pauses["numbers"]["pauses"] >= 4
    assert pauses["numbers"]["engine_steps_with_prompts"] > 0
    assert pauses["cannot_be_known"]
    assert found["single_user"]["seen"] == "no"
    assert found["kv_nearly_full"]["seen"] == "no"
    measured = {each["name"]: each["numbers"] for each in report["measurements"]}
    assert measured["prompt lengths"]["longest_tokens"] >= 2000
    assert measured["KV cache"]["kv_capacity_tokens"] > 100_000
