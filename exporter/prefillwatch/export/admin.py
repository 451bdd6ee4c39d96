"""What the admin listener answers: metrics, health, the page and the JSON API. For the operator, never for clients."""

from __future__ import annotations

import asyncio
import gzip
from typing import Any, Final, Protocol

import msgspec
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from prefillwatch.door.headers import GUARDS
from prefillwatch.export.admin_auth import ANYBODY, Authorization, Credentials
from prefillwatch.export.exposition import render
from prefillwatch.export.flight_request import FlightError, FlightFile, NoFlightRecorderError, TooSoonError
from prefillwatch.export.live_response import EVENT_STREAM, LiveResponse
from prefillwatch.export.page_files import PAGE_FILES, read_page_file
from prefillwatch.export.prediction_request import MOST_PROMPT_TOKENS, UnknownModelError
from prefillwatch.export.registry import Snapshot
from prefillwatch.export.viewers import MOST_VIEWERS, Viewers
from prefillwatch.story import Account, UnknownIncidentError, find, html, tell, title

DEFAULT_INCIDENTS: Final = 100
MOST_INCIDENTS: Final = 1000


class AdminView(Protocol):
    """What the admin server shows. All of it is called in the event loop and should be quick."""

    def snapshot(self) -> Snapshot:
        """The metrics as of now."""

    def state(self) -> dict[str, Any]:
        """Streams, prefills and processes now, ready for JSON; times in Unix seconds."""

    def predict(self, prompt_tokens: int, cached_tokens: int, model: str | None) -> dict[str, Any]:
        """What a prompt would do that came now, ready for JSON. Raises UnknownModelError."""

    def incidents(self, limit: int) -> list[dict[str, Any]]:
        """At most so many incidents, newest first, ready for JSON."""

    def tenants(self) -> dict[str, Any]:
        """Figures by tenant and by priority, ready for JSON; empty where nobody asked for them."""

    def accounts(self) -> list[Account]:
        """What is kept of incidents to tell their stories, the newest first."""

    def ready(self) -> tuple[bool, str]:
        """Whether requests would be served now, and if not, why."""

    async def write_flight_now(self) -> FlightFile:
        """Write what was seen last to a file. Raises FlightError."""

    def page(self) -> bytes:
        """The page for people, in HTML."""

    @property
    def viewers(self) -> Viewers:
        """Those who watch it live."""


def create_app(view: AdminView, credentials: Credentials = ANYBODY) -> Starlette:
    admin = _Admin(view)
    app = Starlette(
        routes=[
            Route("/metrics", admin.metrics),
            Route("/metrics/", admin.metrics),
            Route("/healthz", admin.healthz),
            Route("/readyz", admin.readyz),
            Route("/api/state", admin.state),
            Route("/api/predict", admin.predict),
            Route("/api/incidents", admin.incidents),
            Route("/api/tenants", admin.tenants),
            Route("/api/explain", admin.account),
            Route("/api/live", admin.live),
            Route("/api/flight", admin.flight, methods=["POST"]),
            Route("/explain", admin.explain),
            Route("/", admin.page),
            Route("/page/{name}", admin.page_file),
        ],
        middleware=[Middleware(_SecurityHeaders), Middleware(Authorization, credentials=credentials)],
        exception_handlers={HTTPException: _http_error, Exception: _internal_error},
    )
    app.router.redirect_slashes = False
    app.state.viewers = view.viewers
    return app


class _Admin:
    def __init__(self, view: AdminView) -> None:
        self._view = view
        self._rendering = asyncio.Lock()

    async def metrics(self, request: Request) -> Response:
        """In a thread, since a page takes some 10 µs per series. One at a time: many scrapers at once must not make
        threads that starve the event loop of the interpreter."""
        async with self._rendering:
            accept = request.headers.get("accept", "")
            body, content_type = await asyncio.to_thread(render, self._view.snapshot(), accept)
            headers = {"Content-Type": content_type, "Vary": "Accept, Accept-Encoding"}
            if accepts_gzip(request.headers.get("accept-encoding", "")):
                body = await asyncio.to_thread(gzip.compress, body, 1)
                headers["Content-Encoding"] = "gzip"
        return Response(body, headers=headers)

    async def healthz(self, _: Request) -> Response:
        return _json({"status": "ok"})

    async def readyz(self, _: Request) -> Response:
        ready, reason = self._view.ready()
        return _json({"ready": True}) if ready else _json({"ready": False, "reason": reason}, 503)

    async def state(self, _: Request) -> Response:
        return _json(self._view.state())

    async def predict(self, request: Request) -> Response:
        prompt_tokens = _whole(request, "prompt_tokens", 1, MOST_PROMPT_TOKENS)
        cached_tokens = _whole(request, "cached", 0, prompt_tokens, "0")
        try:
            return _json(self._view.predict(prompt_tokens, cached_tokens, request.query_params.get("model")))
        except UnknownModelError as error:
            raise HTTPException(400, str(error)) from None

    async def incidents(self, request: Request) -> Response:
        return _json(self._view.incidents(_whole(request, "limit", 1, MOST_INCIDENTS, str(DEFAULT_INCIDENTS))))

    async def tenants(self, _: Request) -> Response:
        return _json(self._view.tenants())

    def _account(self, request: Request) -> Account:
        try:
            return find(self._view.accounts(), request.query_params.get("id", ""))
        except UnknownIncidentError as error:
            raise HTTPException(404, str(error)) from None

    async def account(self, request: Request) -> Response:
        return _json(self._account(request))

    async def explain(self, request: Request) -> Response:
        account = self._account(request)
        return HTMLResponse(html(tell(account), title(account)))

    async def live(self, request: Request) -> Response:
        if request.method == "HEAD":
            return Response(media_type=EVENT_STREAM)
        viewer = self._view.viewers.join()
        if viewer is None:
            raise HTTPException(503, f"{MOST_VIEWERS} watch already: close a page elsewhere", {"Retry-After": "10"})
        return LiveResponse(viewer, self._view.viewers)

    async def flight(self, request: Request) -> Response:
        if "origin" in request.headers:  # a page of another site could make a visitor's browser ask
            raise HTTPException(403, "this is for programs such as curl, not for pages in a browser")
        try:
            return _json(await self._view.write_flight_now(), 201)
        except NoFlightRecorderError as error:
            raise HTTPException(409, str(error)) from None
        except TooSoonError as error:
            raise HTTPException(429, str(error), {"Retry-After": str(error.seconds)}) from None
        except FlightError as error:
            raise HTTPException(503, str(error)) from None

    async def page(self, _: Request) -> Response:
        return HTMLResponse(self._view.page())

    async def page_file(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in PAGE_FILES:
            raise HTTPException(404)
        return Response(read_page_file(name), media_type=PAGE_FILES[name])


def _whole(request: Request, name: str, least: int, most: int, default: str | None = None) -> int:
    """A whole number of the query. HTTPException where there is none, or it is out of bounds."""
    text = request.query_params.get(name, default)
    if text is None:
        raise HTTPException(400, f"{name} is missing: a whole number from {least} to {most}")
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1
    if not least <= number <= most:
        raise HTTPException(400, f"{name} must be a whole number from {least} to {most}, not {text[:40]!r}")
    return number


def accepts_gzip(accept_encoding: str) -> bool:
    """Whether the header names gzip with a weight above 0."""
    for entry in accept_encoding.lower().split(","):
        coding, *parameters = (part.strip() for part in entry.split(";"))
        if coding == "gzip":
            weights = [parameter[2:] for parameter in parameters if parameter.startswith("q=")]
            try:
                return not weights or float(weights[0]) > 0.0
            except ValueError:
                return False
    return False


def _json(content: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(content), status, media_type="application/json")


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    nowhere = error.status_code == 404 and error.detail == "Not Found"
    message = f"nothing is served at {request.url.path[:200]}" if nowhere else error.detail
    response = _json({"error": message}, error.status_code)
    response.headers.update(error.headers or {})
    return response


async def _internal_error(_: Request, __: Exception) -> Response:
    """The details go to the log, where the server writes them, and not into the answer."""
    response = _json({"error": "internal error, see the log of prefillwatch"}, 500)
    response.headers.update(GUARDS)  # this answer is made outside of the middleware
    return response


class _SecurityHeaders:
    """Headers for every answer. No CORS ones among them: no other site has business here."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(GUARDS)
            await send(message)

        await self._app(scope, receive, send_with_headers)
