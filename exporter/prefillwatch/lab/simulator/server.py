"""The simulated vLLM server: its routes, its start and its end."""

from __future__ import annotations

import asyncio
import signal
import time
import uuid
from typing import TYPE_CHECKING, Any, Final

import click
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from prefillwatch.errors import ListenError
from prefillwatch.lab.simulator.answer import Answer
from prefillwatch.lab.simulator.engine import Engine
from prefillwatch.lab.simulator.generation import Generation
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
    from types import TracebackType

    from prefillwatch.lab.simulator.settings import SimSettings

VERSION: Final = "0.33.0"
ID_PREFIXES: Final = {CHAT: "chatcmpl-", COMPLETIONS: "cmpl-", RESPONSES: "resp_", MESSAGES: "chatcmpl-"}
METRICS_TYPE: Final = "text/plain; version=1.0.0; charset=utf-8"


class SimServer:
    """A simulated vLLM on a socket: `async with SimServer(settings) as server: ... server.url ...`.

    Raises ConfigError for flags that contradict each other and ListenError where the address cannot be had.
    """

    def __init__(self, settings: SimSettings, host: str = "127.0.0.1", port: int = 0) -> None:
        self._settings = settings
        self._host = host
        self._port = port
        self._config = settings.engine_config()
        self._metrics = EngineMetrics(settings.model, self._config)
        self.engine = Engine(self._config)
        self._engine_loop = EngineLoop(self.engine, self._metrics)
        self._listener: asyncio.Server | None = None
        self._ticking: asyncio.Task[None] | None = None
        self._started_at = int(time.time())
        config = uvicorn.Config(
            self.app(), http="httptools", ws="none", lifespan="off", log_config=None, access_log=False
        )
        config.load()
        self._uvicorn = uvicorn.Server(config)

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/health", self._health),
                Route("/ping", self._health),
                Route("/version", self._version),
                Route("/v1/models", self._models),
                Route("/metrics", self._serve_metrics),
                Route("/tokenize", self._tokenize, methods=["POST"]),
                *(Route(path, self._generate, methods=["POST"]) for path in ID_PREFIXES),
            ],
            exception_handlers={HTTPException: _http_error, BadRequestError: _bad_request},
        )

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
        self._ticking = loop.create_task(self._tick())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stops at once, as vLLM does by default: running requests are cut, not finished."""
        assert self._listener is not None
        assert self._ticking is not None
        self._listener.close()
        self._engine_loop.close()
        self._ticking.cancel()
        for connection in list(self._uvicorn.server_state.connections):
            connection.transport.abort()
        if tasks := list(self._uvicorn.server_state.tasks):
            await asyncio.wait(tasks)

    def _connection(self) -> asyncio.Protocol:
        """uvicorn's, and not a whole server of its own, since that would take the signals of the process."""
        config, state = self._uvicorn.config, self._uvicorn.server_state
        return config.http_protocol_class(config=config, server_state=state, app_state={})  # type: ignore[call-arg]

    async def _tick(self) -> None:
        """Renews the date in the headers."""
        while True:
            await self._uvicorn.on_tick(0)
            await asyncio.sleep(1)

    async def _generate(self, request: Request) -> Response:
        path, config = request.url.path, self._config
        asked = parse_request(path, await request.body(), self._settings.model, config.max_model_len)
        request_id = ID_PREFIXES[path] + (request.headers.get("x-request-id") or uuid.uuid4().hex[:16])
        shape = _shape_for(path, Header(request_id, int(time.time()), self._settings.model), asked)
        answer = Answer()
        generation = Generation(
            answer, shape, asked, self._engine_loop, tell_cached=self._settings.enable_prompt_tokens_details
        )
        # Clients may use an id twice; the engine may not.
        generation.start(f"{request_id}-{uuid.uuid4().hex[:8]}", config.max_model_len, config.block_size)
        return answer

    async def _tokenize(self, request: Request) -> Response:
        fields = decode_object(await request.body())
        check_model(fields, self._settings.model)
        tokens = prompt_to_count(fields)
        answer = {"count": len(tokens), "max_model_len": self._config.max_model_len}
        return _json({**answer, "tokens": token_ids(tokens), "token_strs": None})

    async def _serve_metrics(self, _: Request) -> Response:
        """In a thread, so that a scrape does not keep the engine from stepping."""
        page = await asyncio.to_thread(self._metrics.render)
        return Response(page, headers={"content-type": METRICS_TYPE})

    async def _health(self, _: Request) -> Response:
        return Response()

    async def _version(self, _: Request) -> Response:
        return _json({"version": VERSION})

    async def _models(self, _: Request) -> Response:
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
        return _json({"object": "list", "data": [card]})


def _json(content: Any, status: int = 200) -> Response:
    return Response(compact(content), status, media_type="application/json")


async def _http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    response = _json({"detail": error.detail}, error.status_code)
    response.headers.update(error.headers or {})
    return response


async def _bad_request(request: Request, error: Exception) -> Response:
    assert isinstance(error, BadRequestError)
    if request.url.path == MESSAGES:
        return _json({"type": "error", "error": {"type": error.kind, "message": error.message}}, error.status)
    told = {"message": error.message, "type": error.kind, "param": error.param, "code": error.status}
    return _json({"error": told}, error.status)


def _shape_for(path: str, header: Header, request: GenerationRequest) -> Shape:
    if path == CHAT:
        return ChatShape(header, include_usage=request.include_usage, continuous_usage=request.continuous_usage)
    if path == COMPLETIONS:
        return CompletionShape(header, include_usage=request.include_usage)
    if path == RESPONSES:
        return ResponsesShape(header, request.max_tokens)
    return MessagesShape(header)


async def serve(settings: SimSettings, host: str, port: int) -> None:
    """Serves until SIGTERM or SIGINT; prints one line with the URL when ready."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    async with SimServer(settings, host, port) as server:
        click.echo(f"simulated vLLM ({settings.preset}) serves {settings.model} at {server.url}")
        await stopped.wait()
