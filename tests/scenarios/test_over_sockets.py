"""Some scenes once more through everything: a scripted upstream, `prefillwatch serve`, real clients, the admin API."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from tests.e2e.processes import CHAT, Sidecar, calm_sidecar
from tests.kit.eventually import eventually
from tests.scenarios.playbook import text_of
from tests.scenarios.upstream import Upstream, metrics

SECRET = "nobody may read this in a log"


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    server = Upstream()
    yield server
    server.close()


@pytest.fixture
def sidecar(upstream: Upstream) -> Iterator[Sidecar]:
    with calm_sidecar("--upstream", upstream.url, "--log-format", "json") as command:
        yield command


async def request(sidecar: Sidecar, name: str, prompt_tokens: int, tokens: int, **script: float) -> None:
    message = {"role": "user", "content": text_of(f"{name} {SECRET}", 4 * prompt_tokens)}
    told = {"name": name, "prompt_tokens": prompt_tokens, "tokens": tokens, **script}
    body = {"model": "m", "stream": True, "messages": [message], **told}
    async with (
        httpx.AsyncClient(timeout=60, trust_env=False) as client,
        client.stream("POST", sidecar.url + CHAT, json=body, headers={"X-Request-Id": name}) as answer,
    ):
        async for _ in answer.aiter_raw():
            pass


async def decoding(sidecar: Sidecar, streams: int) -> None:
    """Wait until so many streams have decoded for two seconds."""
    while await asyncio.to_thread(sidecar.value, "decoding_streams") != streams:
        await asyncio.sleep(0.1)
    await asyncio.sleep(2)


def incidents(sidecar: Sidecar, kind: str = "freeze") -> list[dict[str, Any]]:
    found = httpx.get(f"{sidecar.admin}/api/incidents?limit=100", timeout=30, trust_env=False).json()
    return [each for each in found if each["kind"] == kind]


async def seen(sidecar: Sidecar, fits: Callable[[dict[str, Any]], bool], kind: str = "freeze") -> dict[str, Any]:
    """Wait until the API shows an incident that fits."""
    while True:
        for incident in await asyncio.to_thread(incidents, sidecar, kind):
            if fits(incident):
                return incident
        await asyncio.sleep(0.1)


def test_a_prompt_freezes_others_and_is_named(sidecar: Sidecar) -> None:
    async def play() -> dict[str, Any]:
        victims = asyncio.gather(*(request(sidecar, f"victim-{n}", 16, 300) for n in range(3)))
        await decoding(sidecar, 3)
        culprit = asyncio.create_task(request(sidecar, "culprit", 9000, 3, prefill_seconds=3.0))
        ongoing = await asyncio.wait_for(seen(sidecar, lambda each: each["ongoing"] and each["victims"] == 3), 30)
        await culprit
        await victims
        return ongoing

    ongoing = asyncio.run(play())
    assert ongoing["cause"] == "prefill"
    eventually(lambda: sidecar.value("stalls_total", cause="prefill") == 3)
    incident = next(each for each in incidents(sidecar) if each["id"] == ongoing["id"])
    assert [each["request_id"] for each in incident["culprits"]] == ["culprit"]
    assert incident["worst_gap_seconds"] > 2.5
    eventually(lambda: sidecar.value("freezes_total", cause="prefill") == 1)
    assert (sidecar.value("prefill_blame_seconds_total", prompt_bucket="8k-32k") or 0) > 7
    logged = [json.loads(line)["message"] for line in sidecar.output.splitlines() if '"incident ' in line]
    assert "prefill" in {json.loads(line.removeprefix("incident "))["cause"] for line in logged}
    assert SECRET not in sidecar.output


def test_tokens_that_come_in_a_bunch_were_held_back(upstream: Upstream, sidecar: Sidecar) -> None:
    async def play() -> None:
        victims = asyncio.gather(*(request(sidecar, f"victim-{n}", 16, 300) for n in range(3)))
        await decoding(sidecar, 3)
        upstream.hold(2.0)
        await victims

    asyncio.run(play())
    eventually(lambda: sidecar.value("stalls_total", cause="frontend") == 3)


def test_one_left_out_while_the_cache_overflows(upstream: Upstream, sidecar: Sidecar) -> None:
    upstream.page = metrics(running=4, waiting=0, kv_usage=0.97)

    async def play() -> None:
        streams = asyncio.gather(*(request(sidecar, f"stream-{n}", 16, 300) for n in range(4)))
        await decoding(sidecar, 4)
        upstream.page = metrics(running=3, waiting=1, kv_usage=1.0, preemptions=1)
        upstream.leave_out("stream-2", 3.0)
        await streams

    asyncio.run(play())
    eventually(lambda: sidecar.value("stalls_total", cause="preemption") == 1)
    assert sidecar.value("stalls_total", cause="prefill") == 0


def test_requests_that_the_engine_does_not_know_of(upstream: Upstream, sidecar: Sidecar) -> None:
    upstream.page = metrics(running=0, waiting=0)

    async def play() -> dict[str, Any]:
        requests = asyncio.gather(*(request(sidecar, f"early-{n}", 50, 1, wait_seconds=6.0) for n in range(4)))
        waiting = await asyncio.wait_for(seen(sidecar, lambda each: each["cause"] == "before_engine", "wait"), 30)
        await requests
        return waiting

    waiting = asyncio.run(play())
    assert (waiting["victims"], waiting["ongoing"]) == (4, True)
    eventually(lambda: sidecar.value("waits_total", cause="before_engine") == 1)
