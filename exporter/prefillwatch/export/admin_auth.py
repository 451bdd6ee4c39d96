"""Who may look at the admin listener: those with the token or the password, or anybody where none is set."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

#: Probes of Kubernetes and load balancers carry no secret, and these paths reveal none.
OPEN_PATHS: Final = frozenset({"/healthz", "/readyz"})


class Credentials(msgspec.Struct, frozen=True):
    """What is asked for; empty: nothing. Where both are set, either will do."""

    bearer_token: str = ""
    basic_auth: str = ""  # USER:PASSWORD

    def __repr__(self) -> str:
        return "Credentials(…)"  # never a secret in a log


ANYBODY: Final = Credentials()


class Authorization:
    """Lets requests through that carry the credentials; others get 401 and learn nothing else."""

    def __init__(self, app: ASGIApp, credentials: Credentials) -> None:
        self._app = app
        # Digests all have one length, so that comparing them takes the same time whatever was sent.
        self._expected = [(scheme, _digest(value)) for scheme, value in _headers(credentials)]
        self._challenges = [
            b'Basic realm="prefillwatch", charset="UTF-8"' if scheme == b"basic" else b'Bearer realm="prefillwatch"'
            for scheme, _ in self._expected
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS or self._admits(scope["headers"]):
            await self._app(scope, receive, send)
            return
        body = msgspec.json.encode(
            {"error": "credentials are needed: the token or the user and password of this listener"}
        )
        response = Response(body, 401, media_type="application/json")
        response.raw_headers += [(b"www-authenticate", challenge) for challenge in self._challenges]
        await response(scope, receive, send)

    def _admits(self, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        if not self._expected:
            return True
        given = [value for name, value in headers if name == b"authorization"]
        return len(given) == 1 and self._fits(given[0])

    def _fits(self, given: bytes) -> bool:
        scheme, _, value = given.partition(b" ")
        digest = _digest(value.strip())
        fitting = [
            hmac.compare_digest(digest, expected) and scheme.lower() == name for name, expected in self._expected
        ]
        return any(fitting)


def _headers(credentials: Credentials) -> Sequence[tuple[bytes, bytes]]:
    """(scheme, value) of every Authorization header that fits."""
    headers = []
    if credentials.bearer_token:
        headers.append((b"bearer", credentials.bearer_token.encode()))
    if credentials.basic_auth:
        headers.append((b"basic", base64.b64encode(credentials.basic_auth.encode())))
    return headers


def _digest(value: bytes) -> bytes:
    return hashlib.sha256(value).digest()
