"""One GET /health to upstream, over a connection of its own: that it can be made is half of the answer."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from pathlib import Path
from typing import Any, Final

import h11

from prefillwatch import __version__
from prefillwatch.relay.settings import Upstream, parse_upstream
from prefillwatch.supervision.upstream_health import Check, Outcome

CHECK_LIMIT_S: Final = 5.0
_MOST_HEAD_BYTES: Final = 64 << 10
_READ_BYTES: Final = 16 << 10
#: Errors that mean no listener: a port without one, a socket whose path is gone.
_NOBODY: Final = (ConnectionRefusedError, FileNotFoundError)


class HealthCheck:
    """Asks one upstream, ``http[s]://HOST[:PORT]`` or ``unix:/PATH``, again and again."""

    def __init__(
        self, upstream: str, *, ca_file: Path | None = None, insecure: bool = False, limit_s: float = CHECK_LIMIT_S
    ) -> None:
        """Raises OSError for a file of authorities that cannot be used."""
        self._upstream = parse_upstream(upstream)
        self._limit_s = limit_s
        self._tls = _trust(ca_file, insecure) if self._upstream.tls else None

    async def ask(self) -> Check:
        """The outcome of one check; never raises for what upstream does."""
        begin = time.monotonic()
        outcome, detail = await self._outcome()
        return Check(outcome, time.monotonic() - begin, detail)

    async def _outcome(self) -> tuple[Outcome, str]:
        try:
            status = await asyncio.wait_for(self._status(), self._limit_s)
        except asyncio.TimeoutError:
            return Outcome.LATE, f"no answer within {self._limit_s:g} s"
        except _NOBODY:
            return Outcome.REFUSED, "connection refused"
        except Exception as error:
            # Also errors of names and certificates, and faults of ours: the next check is in a second.
            return Outcome.LOST, getattr(error, "strerror", None) or type(error).__name__
        return (Outcome.ILL if status >= 500 else Outcome.ANSWERED), f"it says {status}"

    async def _status(self) -> int:
        opened = await _connect(self._upstream)
        host = (self._upstream.host or "localhost") if self._tls else None
        reader, writer = await asyncio.open_connection(sock=opened, ssl=self._tls, server_hostname=host)
        try:
            http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MOST_HEAD_BYTES)
            writer.write(http.send(self._request()) or b"")
            while True:
                event = http.next_event()
                if event is h11.NEED_DATA:
                    http.receive_data(await reader.read(_READ_BYTES))
                elif isinstance(event, h11.Response):
                    return event.status_code
                elif isinstance(event, h11.ConnectionClosed):
                    raise EOFError
        finally:
            writer.transport.abort()

    def _request(self) -> h11.Request:
        headers = [
            ("Host", self._upstream.authority),
            ("Accept", "*/*"),
            ("User-Agent", f"prefillwatch/{__version__}"),
            ("Connection", "close"),
        ]
        return h11.Request(method="GET", target="/health", headers=headers)


async def _connect(upstream: Upstream) -> socket.socket:
    """A connection to the first address that answers. Raises OSError; ConnectionRefusedError when all refused."""
    error: OSError | None = None
    for family, address in await _addresses(upstream):
        opened = socket.socket(family, socket.SOCK_STREAM)
        opened.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(opened, address)
        except OSError as found:
            opened.close()
            if error is None or isinstance(error, _NOBODY):
                error = found
        except BaseException:
            opened.close()
            raise
        else:
            return opened
    raise error or OSError("the name has no address")


async def _addresses(upstream: Upstream) -> list[tuple[int, Any]]:
    if upstream.unix_path:
        return [(socket.AF_UNIX, upstream.unix_path)]
    loop = asyncio.get_running_loop()
    infos = await loop.getaddrinfo(upstream.host, upstream.port, type=socket.SOCK_STREAM)
    return [(family, target) for family, _, _, _, target in infos]


def _trust(ca_file: Path | None, insecure: bool) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=ca_file)
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
