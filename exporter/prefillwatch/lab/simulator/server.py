"""The simulated vLLM server: its routes, its start and its end."""

from __future__ import annotations

import asyncio
import signal
import time
import uuid
from typing import TYPE_CHECKING, Any

import click

from prefillwatch.errors import ListenError
from prefillwatch.lab.simulator.engine import Engine
from prefillwatch.lab.simulator.generation import Generation
from prefillwatch.lab.simulator.http import Exchange, HttpConnection
from prefillwatch.lab.simulator.metrics import EngineMetrics
from prefillwatch.lab.simulator.requests import (
    CHAT,
    COMPLETIONS,
    MESSAGES,
    RESPONSES,
    BadRequestError,
    GenerationRequest,
    check_model,
    decode_object,
    parse_request,
    prompt_to_count,
    token_ids,
)
from prefillwatch.lab.simulator.runner import EngineLoop
from prefillwatch.lab.simulator.shapes.base import Header, Shape, compact
from prefillwatch.lab.simulator.shapes.chat import ChatShape
from prefillwatch.lab.simulator.shapes.completions import CompletionShape
from prefillwatch.lab.simulator.shapes.messages import MessagesShape
from prefillwatch.lab.simulator.shapes.responses import ResponsesShape

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from prefillwatch.lab.simulator.settings import SimSettings

VERSION = "0.33.0"
ID_PREFIXES = {CHAT: "chatcmpl-", COMPLETIONS: "cmpl-", RESPONSES: "resp_", MESSAGES: "chatcmpl-"}
# An idle connection lives as long as under uvicorn: a proxy that keeps its own for longer must cope with that.
KEEP_ALIVE_SECONDS = 5.0
METRICS_TYPE = "text/plain; version=1.0.0; charset=utf-8"


class SimServer:
    """A simulated vLLM on a socket: `async with SimServer(settings) as server: ... server.url ...`.

    Raises ConfigError for flags that contradict each other and ListenError where the address cannot be had.
    """

    def __init__(
        self,
        settings: SimSettings,
        host: str = "127.0.0.1",
        port: int = 0,
        keep_alive_seconds: float = KEEP_ALIVE_SECONDS,
    ) -> None:
        self._settings = settings
        self._host = host
        self._port = port
        self._keep_alive_seconds = keep_alive_seconds
        self._config = settings.engine_config()
        self._metrics = EngineMetrics(settings.model, self._config)
        self.engine = Engine(self._config)
        self._engine_loop = EngineLoop(self.engine, self._metrics)
        self._connections: set[HttpConnection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Server | None = None
        self._started_at = int(time.time())
        self._routes: dict[tuple[str, str], Callable[[Exchange], None]] = {
            ("GET", "/health"): lambda exchange: exchange.respond(200, b""),
            ("GET", "/ping"): lambda exchange: exchange.respond(200, b""),
            ("GET", "/version"): lambda exchange: exchange.respond(200, compact({"version": VERSION})),
            ("GET", "/v1/models"): lambda exchange: exchange.respond(200, compact(self._models())),
            ("GET", "/metrics"): self._serve_metrics,
            ("POST", "/tokenize"): self._tokenize,
            **{("POST", path): self._generate for path in ID_PREFIXES},
        }

    @property
    def url(self) -> str:
        assert self._listener is not None
        host, port = self._listener.sockets[0].getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    async def __aenter__(self) -> SimServer:
        loop = asyncio.get_running_loop()
        try:
            self._listener = await loop.create_server(self._connection, self._host, self._port, backlog=2048)
        except OSError as error:
            raise ListenError(f"cannot listen on {self._host}:{self._port}: {error.strerror or error}") from None
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stops at once, as vLLM does by default: running requests are cut, not finished."""
        assert self._listener is not None
        self._listener.close()
        self._engine_loop.close()
        for connection in list(self._connections):
            connection.abort()
        for task in self._tasks:
            task.cancel()
        await asyncio.sleep(0)

    def _connection(self) -> HttpConnection:
        return HttpConnection(self._handle, self._connections, self._keep_alive_seconds)

    def _handle(self, exchange: Exchange) -> None:
        route = self._routes.get((exchange.method, exchange.path))
        if route is not None:
            try:
                route(exchange)
            except BadRequestError as error:
                exchange.respond(error.status, compact(_error_body(exchange.path, error)))
            return
        allowed = [method for method, path in self._routes if path == exchange.path]
        if allowed:
            exchange.respond(405, compact({"detail": "Method Not Allowed"}), allow=", ".join(allowed))
        else:
            exchange.respond(404, compact({"detail": "Not Found"}))

    def _generate(self, exchange: Exchange) -> None:
        config = self._config
        request = parse_request(exchange.path, exchange.body, self._settings.model, config.max_model_len)
        prefix = ID_PREFIXES[exchange.path]
        request_id = prefix + (exchange.headers.get("x-request-id") or uuid.uuid4().hex[:16])
        header = Header(request_id, int(time.time()), self._settings.model)
        shape = _shape_for(exchange.path, header, request)
        generation = Generation(
            exchange, shape, request, self._engine_loop, tell_cached=self._settings.enable_prompt_tokens_details
        )
        # Clients may use an id twice; the engine may not.
        generation.start(f"{request_id}-{uuid.uuid4().hex[:8]}", config.max_model_len, config.block_size)

    def _tokenize(self, exchange: Exchange) -> None:
        fields = decode_object(exchange.body)
        check_model(fields, self._settings.model)
        tokens = prompt_to_count(fields)
        answer = {"count": len(tokens), "max_model_len": self._config.max_model_len}
        exchange.respond(200, compact({**answer, "tokens": token_ids(tokens), "token_strs": None}))

    def _serve_metrics(self, exchange: Exchange) -> None:
        """In a thread, so that a scrape does not keep the engine from stepping."""

        async def render() -> None:
            page = await asyncio.to_thread(self._metrics.render)
            exchange.respond(200, page, METRICS_TYPE)

        task = asyncio.get_running_loop().create_task(render())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _models(self) -> dict[str, Any]:
        card = {
            "id": self._settings.model,
            "object": "model",
            "created": self._started_at,
            "owned_by": "vllm",
            "root": self._settings.model,
            "parent": None,
            "max_model_len": self._config.max_model_len,
            "permission": [],
        }
        return {"object": "list", "data": [card]}


def _shape_for(path: str, header: Header, request: GenerationRequest) -> Shape:
    if path == CHAT:
        return ChatShape(header, include_usage=request.include_usage, continuous_usage=request.continuous_usage)
    if path == COMPLETIONS:
        return CompletionShape(header, include_usage=request.include_usage)
    if path == RESPONSES:
        return ResponsesShape(header, request.max_tokens)
    return MessagesShape(header)


def _error_body(path: str, error: BadRequestError) -> dict[str, Any]:
    if path == MESSAGES:
        return {"type": "error", "error": {"type": error.kind, "message": error.message}}
    return {"error": {"message": error.message, "type": error.kind, "param": error.param, "code": error.status}}


async def serve(settings: SimSettings, host: str, port: int) -> None:
    """Serves until SIGTERM or SIGINT; prints one line with the URL when ready."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    async with SimServer(settings, host, port) as server:
        click.echo(f"simulated vLLM ({settings.preset}) serves {settings.model} at {server.url}")
        await stopped.wait()
