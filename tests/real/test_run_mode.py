"""`prefillwatch run` with vLLM as its child, our plugin in it: one process to start, and nothing of vLLM hidden."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest
from tests.kit.processes import is_alive
from tests.real.client import Answer, Exchange, ask
from tests.real.engine import BASE_FLAGS, ENVIRONMENT, START_LIMIT_SECONDS, VENV
from tests.real.four_endpoints import PATHS, request
from tests.real.sidecar import Sidecar
from tests.real.test_plugin import site

CHAT = PATHS["chat_completions"]
COMMAND = [str(VENV / "bin" / "python"), "-m", "vllm.entrypoints.openai.api_server", *BASE_FLAGS]


def vllm_pid(sidecar: Sidecar) -> int:
    return next(int(each["pid"]) for each in sidecar.state()["processes"] if each["role"] == "upstream")


def steps_told(sidecar: Sidecar) -> float:
    return sidecar.metrics().total("prefillwatch_engine_link_steps_total")


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    """A vLLM that cannot start. It takes its time to say so, in which the other starts."""
    command = [*COMMAND, "--max-model-len=not-a-number"]
    with Sidecar(tmp_path_factory.mktemp("bad") / "run.log", ("run",), command, ENVIRONMENT, wait=False) as sidecar:
        yield sidecar


@pytest.fixture(scope="module")
def running(refused: Sidecar, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    """vLLM under `run`, not waited for."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "site").mkdir()
    environment = ENVIRONMENT | {"PYTHONPATH": str(site(folder / "site"))}
    with Sidecar(folder / "run.log", ("run", "--drain-timeout=60s"), COMMAND, environment, wait=False) as sidecar:
        yield sidecar


def test_one_life_from_start_to_drained_end(running: Sidecar) -> None:
    """In order, on one process, because each start of vLLM takes most of a minute."""
    running.wait_until(lambda: running.status("/healthz") == 200, 60, "answering for itself")
    assert running.status("/readyz") == 503, "vLLM is not up yet"
    running.wait_until(running.is_ready, START_LIMIT_SECONDS, "ready")
    assert "Application startup complete" in running.log_text(), "vLLM's own output is passed through"

    answer = asyncio.run(ask(running.port, CHAT, request("chat_completions", stream=True)))
    assert (answer.status, answer.complete) == (200, True)

    child = vllm_pid(running)
    drained = asyncio.run(stream_over_sigterm(running))
    assert drained.complete
    assert sum(bool(event["choices"][0]["delta"].get("content")) for event in drained.events()) > 100
    assert running.process.wait(60) == 0
    assert not is_alive(child)


async def stream_over_sigterm(sidecar: Sidecar) -> Answer:
    """A stream that is in the middle when SIGTERM comes; readiness must go, the stream must not."""
    body, exchange = request("chat_completions", stream=True, tokens=1500), Exchange()
    stream = asyncio.create_task(ask(sidecar.port, CHAT, body, exchange=exchange))
    while len(exchange.reads) < 10:
        await asyncio.sleep(0.05)
    # The plugin was told where we listen; it looks there now and then while there are steps.
    await asyncio.to_thread(sidecar.wait_until, lambda: steps_told(sidecar) > 0, 30, "told of steps by the plugin")
    os.kill(sidecar.process.pid, signal.SIGTERM)
    await asyncio.to_thread(sidecar.wait_until, lambda: sidecar.status("/readyz") == 503, 30, "draining")
    assert not stream.done()
    with pytest.raises(ConnectionError):
        await ask(sidecar.port, "/v1/models")
    return await stream


def test_the_exit_code_of_a_vllm_that_cannot_start(refused: Sidecar) -> None:
    assert refused.process.wait(START_LIMIT_SECONDS) == 2
    assert "not-a-number" in refused.log_text()
