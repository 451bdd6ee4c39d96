"""A scripted upstream over real sockets: a step every 25 ms gives every stream a token, unless the script differs.

The body of a request tells what it does to the engine: ``prefill_seconds`` that the step with its prompt takes,
``wait_seconds`` before it gets there, ``prompt_tokens`` that usage tells. The test writes the page of metrics, and may
hold all tokens back or leave a stream out of the batch.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from dataclasses import dataclass
from typing import Any

from tests.core.script import DONE, chunk, usage

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nConnection: close\r\n\r\n"
MODELS = json.dumps({"object": "list", "data": [{"id": "m", "object": "model"}]}).encode()


def metrics(running: int = 0, waiting: int = 0, kv_usage: float = 0.1, preemptions: int = 0) -> str:
    """A page as vLLM writes it."""
    labels = '{engine="0",model_name="m"}'
    return (
        f"vllm:num_requests_running{labels} {running}\n"
        f"vllm:num_requests_waiting{labels} {waiting}\n"
        f"vllm:kv_cache_usage_perc{labels} {kv_usage}\n"
        f"vllm:num_preemptions_total{labels} {preemptions}\n"
    )


STEP_S = 0.025


@dataclass(eq=False)
class Stream:
    name: str
    writer: asyncio.StreamWriter
    tokens: int  # still to come
    due: int = 0  # made and not written yet
    made: int = 0
    left_out_until: float = 0.0


class Upstream:
    """Serves in a thread of its own until it is closed."""

    def __init__(self) -> None:
        self.page = metrics()
        self._streams: list[Stream] = []
        self._prompts: list[tuple[float, Stream]] = []
        self._held_until = 0.0
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._ready.wait()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def hold(self, seconds: float) -> None:
        """The engine goes on, but nothing is written for so long."""
        self._loop.call_soon_threadsafe(lambda: setattr(self, "_held_until", self._loop.time() + seconds))

    def leave_out(self, name: str, seconds: float) -> None:
        """A stream is not in the batch for so long."""

        def leave() -> None:
            for stream in self._streams:
                if stream.name == name:
                    stream.left_out_until = self._loop.time() + seconds

        self._loop.call_soon_threadsafe(leave)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._ready.set()
        self._steps = asyncio.create_task(self._work())
        await self._stop.wait()
        server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            path = head.split()[1]
            if path == "/metrics":
                writer.write(HEAD % b"text/plain; version=0.0.4" + self.page.encode())
            elif path.endswith("/completions"):
                length = next(
                    int(line[15:]) for line in head.split("\r\n") if line.lower().startswith("content-length")
                )
                await self._stream(writer, json.loads(await reader.readexactly(length)))
            else:
                writer.write(HEAD % b"application/json" + (MODELS if path == "/v1/models" else b"{}"))
            await writer.drain()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    async def _stream(self, writer: asyncio.StreamWriter, body: dict[str, Any]) -> None:
        writer.write(HEAD % b"text/event-stream")
        stream = Stream(body["name"], writer, body["tokens"])
        await asyncio.sleep(body.get("wait_seconds", 0.0))
        self._prompts.append((body.get("prefill_seconds", 0.0), stream))
        while stream.tokens or stream.due:
            await asyncio.sleep(STEP_S)
        self._streams.remove(stream)
        writer.write(usage(body["prompt_tokens"], stream.made) + DONE)

    async def _work(self) -> None:
        while True:
            prompts, self._prompts = self._prompts, []
            await asyncio.sleep(STEP_S + sum(seconds for seconds, _ in prompts))
            self._streams += [stream for _, stream in prompts]
            now = self._loop.time()
            for stream in self._streams:
                if stream.tokens and now >= stream.left_out_until:
                    stream.tokens -= 1
                    stream.due += 1
                if now >= self._held_until and stream.due and not stream.writer.is_closing():
                    stream.writer.write(chunk() * stream.due)
                    stream.made += stream.due
                    stream.due = 0


def content_length(head: str) -> int:
    return next(int(line[15:]) for line in head.split("\r\n") if line.lower().startswith("content-length:"))
