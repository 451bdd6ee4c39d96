"""What is counted of a real llama.cpp server: streams one at a time, sizes, its own endpoint, restarts."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from tests.kit.eventually import eventually
from tests.real.client import Answer, ask
from tests.real.llamacpp.server import LlamaServer
from tests.real.served import CHAT, NATIVE
from tests.real.sidecar import Metrics, Sidecar

ANSWERS, TOKENS = 40, 20
GENERATED = "prefillwatch_generated_tokens_total"


def asked(sidecar: Sidecar, path: str, bodies: list[dict[str, Any]]) -> tuple[list[Answer], Metrics]:
    """Answers to requests one after the other, and what was counted of them."""

    async def one_by_one() -> list[Answer]:
        return [await ask(sidecar.port, path, body) for body in bodies]

    before = sidecar.metrics()
    answers = asyncio.run(one_by_one())
    failed = {(number, each.status, each.body) for number, each in enumerate(answers) if each.status != 200}
    assert not failed
    assert all(answer.complete for answer in answers)
    requests = "prefillwatch_requests_total"
    eventually(lambda: sidecar.metrics().since(before).total(requests) == len(bodies), "not all answers are counted")
    return answers, sidecar.metrics().since(before)


def chat(text: str, tokens: int, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    return {"messages": messages, "max_tokens": tokens, "ignore_eos": True, "stream": True, "model": "tiny"} | more


def test_quick_answers_one_after_the_other_are_one_stream_at_a_time(llama_sidecar: Sidecar) -> None:
    bodies = [chat(f"{number} self", TOKENS) for number in range(ANSWERS)]
    _, gained = asked(llama_sidecar, CHAT, bodies)
    counted = {level: gained.total("prefillwatch_concurrency_tokens_total", concurrency=level) for level in ("0", "1")}
    assert counted == {"0": 0, "1": ANSWERS * TOKENS}
    assert gained.total("prefillwatch_concurrency_tokens_total") == ANSWERS * TOKENS


def test_sizes_are_exact_without_usage(llama_sidecar: Sidecar) -> None:
    """The last chunk has them, whether usage was asked for or not."""
    (answer,), gained = asked(llama_sidecar, CHAT, [chat("import self return " * 30, 9)])
    timings = answer.events()[-1]["timings"]
    assert timings["predicted_n"] == 9
    assert gained.total("prefillwatch_prompt_tokens_total") == timings["prompt_n"] + timings["cache_n"] > 90
    assert gained.total("prefillwatch_cached_prompt_tokens_total") == timings["cache_n"]


def test_its_own_endpoint_streamed_and_whole(llama_sidecar: Sidecar) -> None:
    body = {"prompt": " self return" * 20, "n_predict": 12, "ignore_eos": True}
    (stream, _), gained = asked(llama_sidecar, NATIVE, [body | {"stream": True}, body])
    assert gained.total("prefillwatch_requests_total", endpoint="native", outcome="ok") == 2
    assert gained.total(GENERATED, model="tiny.gguf") == 24
    assert gained.total("prefillwatch_time_to_first_token_seconds_count") == 1
    assert gained.total("prefillwatch_prompt_tokens_total") == 2 * stream.events()[-1]["tokens_evaluated"]


def test_a_restart_is_counted(tmp_path: Path) -> None:
    """It tells neither when it started nor preemptions: its counters of tokens fall."""
    restarts, read = "prefillwatch_upstream_restarts_total", "prefillwatch_upstream_scrape_age_seconds"
    with (
        LlamaServer(tmp_path / "first") as first,
        Sidecar(tmp_path / "serve.log", ("serve", f"--upstream={first.url}")) as sidecar,
    ):
        asyncio.run(ask(sidecar.port, CHAT, chat("self " * 200, 20)))
        said = Metrics.read(f"{first.url}/metrics").total("llamacpp:prompt_tokens_total")
        since = time.monotonic()
        eventually(lambda: sidecar.metrics().total(read) < time.monotonic() - since, "the page is not read")
        first.stop()
        with LlamaServer(tmp_path / "second", port=first.port) as second:
            assert Metrics.read(f"{second.url}/metrics").total("llamacpp:prompt_tokens_total") < said
            eventually(lambda: sidecar.metrics().total(restarts) == 1, "the restart is not counted")
