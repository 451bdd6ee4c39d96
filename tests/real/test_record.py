"""What a real vLLM's traffic was worth can be played again: the same figures, and none of its text in the file."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import zstandard
from tests.real.client import Answer, ask
from tests.real.engine import Engine
from tests.real.four_endpoints import ENDPOINTS, PATHS, request
from tests.real.sidecar import Metrics, Sidecar

SECRET = "Geheimnis"
#: Counted from requests and their tokens, and still once they are over.
FAMILIES = (
    "inter_token_latency_seconds",
    "time_to_first_token_seconds",
    "time_per_output_token_seconds",
    "queue_seconds",
    "prefill_seconds",
    "step_seconds",
    "prompt_length_tokens",
    "tokens_per_event",
    *("prompt_tokens_total", "cached_prompt_tokens_total", "generated_tokens_total", "coalesced_tokens_total"),
    *("requests_total", "stalls_total", "stall_seconds_total", "freezes_total", "waits_total"),
    *("token_deadlines_total", "token_deadline_misses_total", "requests_within_slo_total", "unparsed_events_total"),
)


def test_a_recording_gives_the_same_figures_and_holds_no_text(engine: Engine, tmp_path: Path) -> None:
    recording, page = tmp_path / "run.pfw", tmp_path / "metrics.txt"
    with Sidecar(tmp_path / "record.log", ("record", str(recording), f"--upstream={engine.url}")) as sidecar:
        answers = asyncio.run(traffic(sidecar.port))
        assert {answer.status for answer in answers} == {200, 404}
        sidecar.wait_until(lambda: counted(sidecar.metrics()) == len(answers), 30, "done counting")
        settled: list[dict[Any, float]] = [{}]
        sidecar.wait_until(lambda: is_settled(sidecar, settled), 30, "settled")
        assert sidecar.stop() == 0
    command = [sys.executable, "-m", "prefillwatch", "replay", str(recording), "--metrics", str(page)]
    subprocess.run(command, check=True, capture_output=True)
    assert figures(Metrics.parse(page.read_text())) == settled[0]
    text = unpacked(recording)
    assert not [word for word in (SECRET, "größer", "listdir") if word.encode() in text]
    generated = answers[1].json()["choices"][0]["message"]["content"]
    assert len(generated) > 12
    assert generated[:12].encode() not in text


async def traffic(port: int) -> list[Answer]:
    """All endpoints, streamed and whole; a long prompt among them; and one that is refused."""
    calls = [
        (PATHS[endpoint], request(endpoint, stream=stream, text=f"{SECRET} {number} import os.listdir # größer"))
        for number, (endpoint, stream) in enumerate((each, stream) for each in ENDPOINTS for stream in (True, False))
    ]
    calls.append((PATHS["chat_completions"], request("chat_completions", stream=True, text=f"{SECRET} word " * 600)))
    calls.append((PATHS["chat_completions"], request("chat_completions", stream=True, text=SECRET) | {"model": "none"}))
    return list(await asyncio.gather(*(ask(port, path, body) for path, body in calls)))


def counted(metrics: Metrics) -> float:
    return metrics.total("prefillwatch_requests_total")


def is_settled(sidecar: Sidecar, before: list[dict[Any, float]]) -> bool:
    """Whether the figures are as they were at the last look, so that all verdicts are final."""
    now = figures(sidecar.metrics())
    same, before[0] = now == before[0], now
    return same


def figures(metrics: Metrics) -> dict[Any, float]:
    names = tuple(f"prefillwatch_{family}" for family in FAMILIES)
    return {key: value for key, value in metrics.samples.items() if key[0].startswith(names)}


def unpacked(path: Path) -> bytes:
    data, pieces = path.read_bytes(), []
    position = 14 + int.from_bytes(data[10:14], "little")
    while position < len(data):
        length = int.from_bytes(data[position : position + 4], "little")
        pieces.append(zstandard.decompress(data[position + 4 : position + 4 + length]))
        position += 4 + length
    return b"".join(pieces)
