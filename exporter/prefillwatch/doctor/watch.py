"""Reads a server's metrics page for a while: the first and the last page whole, the gauges of those in between."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, urlsplit

import httpx

from prefillwatch.doctor.figures import Moment
from prefillwatch.doctor.look import Look, read_advice, read_incidents, read_time
from prefillwatch.doctor.page import OURS, Page
from prefillwatch.doctor.readers import moment_of
from prefillwatch.engine.errors import FetchError, PageError
from prefillwatch.engine.fetch import Fetcher
from prefillwatch.engine.poller import LARGEST_PAGE
from prefillwatch.errors import PrefillwatchError
from prefillwatch.settings.addresses import UNIX, parse_upstream

EVERY_S: Final = 1.0
_MOST_JSON: Final = 16 << 20
_MOST_INCIDENTS: Final = 1000


class DoctorError(PrefillwatchError):
    """The server cannot be read."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Access:
    """Credentials and trust; empty: none, and the system's."""

    bearer_token: str = ""
    basic_auth: str = ""  # USER:PASSWORD
    ca_file: str = ""
    insecure: bool = False

    def __repr__(self) -> str:
        return "Access(…)"  # never a secret in a traceback


@dataclass(frozen=True, slots=True)
class Address:
    """``login`` is USER:PASSWORD where the address carried one; ``shown`` is without. ``api`` is what `/api/…` comes
    after."""

    origin: str
    path: str
    shown: str
    login: str = ""

    def __repr__(self) -> str:
        return f"Address({self.shown})"

    @property
    def api(self) -> str:
        return self.path.partition("?")[0].removesuffix("/metrics")


def address_of(url: str) -> Address:
    """Where the metrics page is. Raises DoctorError for what is no HTTP address."""
    text = url.strip()
    if text.startswith(UNIX):
        return _socket_address(text)
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise DoctorError(_no_address(text)) from None
    if parts.scheme not in ("http", "https") or not host:
        raise DoctorError(_no_address(text))
    path = parts.path if parts.path not in ("", "/") else "/metrics"
    path += f"?{parts.query}" if parts.query else ""
    login, _, place = parts.netloc.rpartition("@")
    origin = f"{parts.scheme}://{place}"
    return Address(origin, path, origin + path, unquote(login))


def _socket_address(text: str) -> Address:
    try:
        origin = parse_upstream(text)
    except ValueError as error:
        raise DoctorError(str(error)) from None
    return Address(origin, "/metrics", origin)


def _no_address(text: str) -> str:
    return (
        f"{_without_login(text)!r} is no address of a server; write for example http://127.0.0.1:9843 "
        "(prefillwatch's admin address) or http://127.0.0.1:8000 (vLLM)"
    )


def _without_login(text: str) -> str:
    scheme, _, rest = text.rpartition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}" if scheme else rest.rpartition("@")[2]


class Watcher:
    """Asks one server. Times are those of the monotonic clock."""

    def __init__(self, address: Address, access: Access, timeout_s: float = 10.0, every_s: float = EVERY_S) -> None:
        self._address = address
        self._every_s = every_s
        self._moments: list[Moment] = []
        try:
            self._fetcher = Fetcher(
                address.origin,
                timeout_s=timeout_s,
                api_key=access.bearer_token,
                basic_auth=access.basic_auth or address.login,
                ca_file=access.ca_file,
                insecure=access.insecure,
            )
        except httpx.InvalidURL as error:
            raise DoctorError(f"{address.shown!r} is no address of a server: {error}") from None
        except OSError as error:  # ssl.SSLError is one
            raise DoctorError(
                f"cannot use {access.ca_file!r} as a CA: {error}; it must hold certificates (PEM)"
            ) from None

    async def watch(
        self, seconds: float, enough: asyncio.Event, progress: Callable[[float], None] | None = None
    ) -> Look:
        """Read until the time is up or ``enough`` is set. Raises DoctorError when nothing can be read."""
        try:
            return await self._watch(seconds, enough, progress)
        finally:
            await self._fetcher.close()

    async def _watch(self, seconds: float, enough: asyncio.Event, progress: Callable[[float], None] | None) -> Look:
        first, started = await self._page(), time.monotonic()
        since = read_time(await self._json("/api/state")) if first.namespace == OURS else None
        self._moments.append(moment_of(first))
        last, lost, until = first, "", started
        while not lost and until - started < seconds and not enough.is_set():
            await _pause(min(self._every_s, seconds - (until - started)), enough)
            try:
                last = await self._page()
            except DoctorError as error:
                lost = str(error)
            else:
                self._moments.append(moment_of(last))
                until = time.monotonic()
            if progress is not None:
                progress(max(seconds - (time.monotonic() - started), 0.0))
        if progress is not None:
            progress(0.0)
        watched, state, incidents = last is not first, b"", b""
        if last.namespace == OURS and not lost:
            state = await self._json("/api/state")
            incidents = await self._json(f"/api/incidents?limit={_MOST_INCIDENTS}")
            # Once more, so that it counts every stall of an incident that is over.
            try:
                last, until = await self._page(), time.monotonic()
            except DoctorError as error:
                lost = str(error)
        return Look(
            last,
            first if watched else None,
            until - started if watched else 0.0,
            tuple(self._moments),
            read_incidents(incidents, since if watched else None),
            read_advice(state),
            lost,
        )

    async def _page(self) -> Page:
        shown = self._address.shown
        try:
            answer = await self._fetcher.get(self._address.path, limit=LARGEST_PAGE)
        except FetchError as error:
            raise DoctorError(f"no answer from {shown} ({error}); is the server up, and there?") from None
        if answer.status in (401, 403):
            raise DoctorError(
                f"{shown} wants credentials ({answer.status}); give --bearer-token-file or --basic-auth-file"
            )
        if answer.status != 200:
            raise DoctorError(f"{shown} answers {answer.status}; {_WHERE}")
        try:
            return await asyncio.to_thread(Page, answer.body)
        except PageError as error:
            raise DoctorError(f"{shown}: {error}{_beginning(answer.body)}; {_WHERE}") from None

    async def _json(self, path: str) -> bytes:
        """Empty where it cannot be fetched: the metrics page alone is enough for most findings."""
        with contextlib.suppress(FetchError):
            answer = await self._fetcher.get(self._address.api + path, limit=_MOST_JSON)
            if answer.status == 200:
                return answer.body
        return b""


_WHERE: Final = (
    "name prefillwatch's admin address, or the server's own; SGLang has metrics with --enable-metrics, llama.cpp "
    "with --metrics"
)


def _beginning(body: bytes) -> str:
    """The beginning of a page, so that the user sees what it is."""
    text = " ".join(body[:200].decode(errors="replace").split())[:40]
    return f" (it begins with {text!r})" if text and not text.startswith("#") else ""


async def _pause(seconds: float, enough: asyncio.Event) -> None:
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(enough.wait(), seconds)
