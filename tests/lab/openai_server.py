"""A server that speaks as much of OpenAI's interface as a test wants it to, and says what it was asked."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MODELS = {"data": [{"id": "m", "max_model_len": 4096}]}


@dataclass
class Asked:
    method: str
    path: str
    headers: dict[str, str]
    body: Any


@dataclass
class OpenAIServer:
    """`async with OpenAIServer() as server`. Strict: a field that is not in `known` is refused with 400.

    Every word of a prompt is two tokens, and the chat template adds ten. Answers end after `answer_tokens`, however
    many were asked for, unless `ignore_eos` is known and asked for.
    """

    models: Any = field(default_factory=lambda: MODELS)
    models_status: int = 200
    chat_status: int = 200
    #: Or text completions instead.
    chat: bool = True
    known: tuple[str, ...] = ("max_tokens", "stream_options")
    answer_tokens: int = 5
    step_seconds: float = 0.002
    tells_usage: bool = True
    #: Close a stream after so many tokens, without its end.
    cut_after: int | None = None
    tls: ssl.SSLContext | None = None
    #: A socket there instead of a port.
    unix: Path | None = None
    asked: list[Asked] = field(default_factory=list)
    #: Takes a request over: status, body, content type.
    answer: Callable[[Asked], tuple[int, bytes, str] | None] = lambda _: None

    async def __aenter__(self) -> OpenAIServer:
        self._tasks: set[asyncio.Task[None]] = set()
        if self.unix:
            self._server = await asyncio.start_unix_server(self._serve, self.unix)
            self.url = f"unix:{self.unix}"
            return self
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self.tls)
        scheme = "https" if self.tls else "http"
        self.url = f"{scheme}://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def chats(self) -> list[Any]:
        return [each.body for each in self.asked if each.path.endswith("/chat/completions")]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await self._respond(await _read(reader), writer)
        finally:
            writer.transport.abort()
            self._tasks.discard(task)

    async def _respond(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        self.asked.append(asked)
        taken = self.answer(asked)
        if taken is not None:
            await _whole(writer, *taken)
        elif asked.path == "/v1/models":
            await _whole(writer, self.models_status, json.dumps(self.models).encode())
        elif asked.path == ("/v1/chat/completions" if self.chat else "/v1/completions"):
            await self._chat(asked.body, writer)
        else:
            await _whole(writer, 404, b'{"detail":"Not Found"}')

    async def _chat(self, body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        unknown = sorted(set(body) - {"model", "messages" if self.chat else "prompt", "stream"} - set(self.known))
        if self.chat_status != 200 or unknown:
            error = {"error": {"message": f"Unrecognized request argument: {', '.join(unknown)}"}}
            return await _whole(writer, 400 if unknown else self.chat_status, json.dumps(error).encode())
        limit = body.get("max_tokens", body.get("max_completion_tokens", 1000))
        tokens = limit if body.get("ignore_eos") else min(limit, self.answer_tokens)
        words = len((body["messages"][0]["content"] if self.chat else body["prompt"]).split())
        usage = {"usage": {"prompt_tokens": 10 + 2 * words, "completion_tokens": tokens}} if self.tells_usage else {}
        if not body.get("stream"):
            return await _whole(writer, 200, json.dumps({"choices": [], **usage}).encode())
        return await self._stream(writer, tokens, usage)

    async def _stream(self, writer: asyncio.StreamWriter, tokens: int, usage: dict[str, Any]) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        for number in range(tokens):
            if number == self.cut_after:
                return
            await asyncio.sleep(self.step_seconds)
            delta = {"delta": {"content": "word "}} if self.chat else {"text": "word "}
            writer.write(_event({"choices": [{"index": 0, **delta}]}))
            await writer.drain()
        if usage:
            writer.write(_event({"choices": [], **usage}))
        writer.write(b"data: [DONE]\n\n")
        await writer.drain()
        writer.close()
        await writer.wait_closed()


def run_with(server: OpenAIServer, scenario: Callable[[OpenAIServer], Awaitable[None]]) -> None:
    """Runs the scenario while the server is there."""

    async def main() -> None:
        async with server:
            await asyncio.wait_for(scenario(server), 30)

    asyncio.run(main())


async def _read(reader: asyncio.StreamReader) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    first, *lines = head.split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Asked(method, path, headers, json.loads(body) if body else None)


async def _whole(writer: asyncio.StreamWriter, status: int, body: bytes, kind: str = "application/json") -> None:
    head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()
    writer.close()
    await writer.wait_closed()


def _event(fields: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(fields).encode() + b"\n\n"
