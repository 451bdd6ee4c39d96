"""One GET to the upstream server, with a limit on its size and on its whole time, and one word for what went wrong."""

from __future__ import annotations

import asyncio
import base64
import logging
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import httpx

from prefillwatch import __version__
from prefillwatch.engine.errors import FetchError, FetchReason
from prefillwatch.settings.addresses import UNIX, page_place

_MOST_REDIRECTS: Final = 3
_KEPT: Final = ("Accept", "Authorization")  # within the same server
#: Below the 5 s after which uvicorn closes an idle connection, so that we do not write into a closing one.
_KEEP_IDLE_S: Final = 3.0


@dataclass(frozen=True, slots=True)
class Answer:
    """``framed``: HTTP said where the body ends. If not, it may have been cut off anywhere."""

    status: int
    body: bytes
    framed: bool


class Fetcher:
    """Asks one upstream, ``http[s]://HOST[:PORT]`` or ``unix:/PATH``. Use it in one event loop and close it there."""

    def __init__(
        self,
        upstream: str,
        *,
        timeout_s: float = 5.0,
        api_key: str | None = None,
        basic_auth: str = "",
        ca_file: str | None = None,
        insecure: bool = False,
    ) -> None:
        """``api_key`` is sent as a bearer token; ``basic_auth`` is USER:PASSWORD, for where no key is asked for."""
        self._timeout_s = timeout_s
        self._timeouts = {"timeout": httpx.Timeout(timeout_s).as_dict()}
        basic = base64.b64encode(basic_auth.encode()).decode()
        authorization = f"Bearer {api_key}" if api_key else f"Basic {basic}" if basic else ""
        self._credentials = {"Authorization": authorization} if authorization else {}
        unix_path = upstream.removeprefix(UNIX) if upstream.startswith(UNIX) else None
        self._base = httpx.URL(upstream if unix_path is None else "http://localhost")
        self._requests: dict[tuple[str, str, bool], httpx.Request] = {}
        # No client around it: cookies, proxies of the environment and hooks would only cost time, every second.
        self._transport = httpx.AsyncHTTPTransport(
            uds=unix_path,
            verify=_tls(ca_file, insecure),
            limits=httpx.Limits(max_connections=8, keepalive_expiry=_KEEP_IDLE_S),
        )
        # Lines about each request, several times a second, would bury everything else.
        for library in ("httpx", "httpcore"):
            logging.getLogger(library).setLevel(logging.WARNING)

    @classmethod
    def of_page(
        cls, upstream: str, page_address: str | None, *, api_key: str | None, ca_file: str | None, insecure: bool
    ) -> tuple[Fetcher, str]:
        """One for upstream's metrics page, and the path to ask for. The key is upstream's and goes nowhere else."""
        server, path = page_place(upstream, page_address)
        return cls(server, api_key=api_key if server == upstream else None, ca_file=ca_file, insecure=insecure), path

    async def close(self) -> None:
        await self._transport.aclose()

    async def get(self, path: str, *, limit: int, accept: str = "*/*", credentials: bool = True) -> Answer:
        """The answer, whatever its status. Raises FetchError when none came whole in time, or one above ``limit``
        bytes. Redirects are followed within the same server only."""
        request = self._requests.get((path, accept, credentials))
        if request is None:
            headers = {"Accept": accept, **(self._credentials if credentials else {})}
            request = self._requests[path, accept, credentials] = self._request(self._base.join(path), headers)
        try:
            return await asyncio.wait_for(self._follow(request, limit), self._timeout_s)
        except (asyncio.TimeoutError, httpx.TimeoutException):
            raise FetchError(FetchReason.TIMEOUT, f"no whole answer to {path} within {self._timeout_s:g} s") from None
        except httpx.TransportError as error:
            detail = ": ".join(filter(None, (path, type(error).__name__, str(error))))
            raise FetchError(FetchReason.CONNECT, detail) from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise FetchError(FetchReason.PARSE, f"{path}: {type(error).__name__}") from None

    def _request(self, url: httpx.URL, headers: Mapping[str, str]) -> httpx.Request:
        # Compressed answers could unfold to anything; the limit is meant for what arrives.
        own = {"Accept-Encoding": "identity", "User-Agent": f"prefillwatch/{__version__}"}
        return httpx.Request("GET", url, headers={**headers, **own}, extensions=self._timeouts)

    async def _follow(self, request: httpx.Request, limit: int) -> Answer:
        for _ in range(_MOST_REDIRECTS + 1):
            response = await self._send(request)
            try:
                if not response.has_redirect_location:
                    return await _read(response, limit)
            finally:
                await response.aclose()
            onward = request.url.join(response.headers["location"])
            if _origin(onward) != _origin(request.url):
                raise FetchError(FetchReason.HTTP_STATUS, "redirected to another server", response.status_code)
            request = self._request(onward, {name: request.headers[name] for name in _KEPT if name in request.headers})
        raise FetchError(FetchReason.HTTP_STATUS, f"redirected more than {_MOST_REDIRECTS} times", response.status_code)

    async def _send(self, request: httpx.Request) -> httpx.Response:
        try:
            return await self._transport.handle_async_request(request)
        except (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError):
            # Most likely a kept connection that the server closed meanwhile: a GET may be sent again.
            return await self._transport.handle_async_request(request)


async def _read(response: httpx.Response, limit: int) -> Answer:
    status, announced = response.status_code, response.headers.get("content-length", "")
    if announced.isdigit() and int(announced[:18]) > limit:
        text = f"the answer has {announced[:18]} bytes, more than {limit}"
        raise FetchError(FetchReason.TOO_BIG, text, status)
    if response.headers.get("content-encoding", "identity") != "identity":
        raise FetchError(FetchReason.PARSE, "the answer is compressed although we asked for none of that", status)
    body = bytearray()
    async for piece in response.aiter_raw():
        body += piece
        if len(body) > limit:
            raise FetchError(FetchReason.TOO_BIG, f"the answer goes on beyond {limit} bytes", status)
    framed = bool(announced) or "transfer-encoding" in response.headers
    return Answer(status, bytes(body), framed)


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


def _tls(ca_file: str | None, insecure: bool) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=ca_file)
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
