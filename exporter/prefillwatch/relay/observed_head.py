"""What the observer may know of a request and of a response head: no query, no credentials, nothing long."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Final

from prefillwatch.relay.http_head import Message, Request, Response
from prefillwatch.relay.settings import RelaySettings
from prefillwatch.wire.routes import endpoint_of, path_of
from prefillwatch.wire.sender import PRIORITY_HEADER, TenantIds, by_credential, priority_of
from prefillwatch.wire.tap import RequestHead, ResponseHead

_MAX_TEXT: Final = 128
_MAX_PATH: Final = 512

#: Tells of a request who sent it, under a name that may be shown, and its priority by header.
Sender = Callable[[Request], tuple[str, int | None]]


def sender_by(settings: RelaySettings) -> Sender | None:
    """As the settings ask for it; None: they do not, and nothing is looked for."""
    ids = TenantIds(settings.tenant_key or secrets.token_hex(), plain=settings.tenant_names == "plain")
    header = (settings.tenant_header or "").lower().encode()
    by_key = settings.tenant_from == "api_key_id"
    if not header and not by_key and not settings.priorities:
        return None

    def sender(request: Request) -> tuple[str, int | None]:
        name = ids(request.header(header)) if header else by_credential(request.header, ids) if by_key else ""
        return name, priority_of(request.header(PRIORITY_HEADER)) if settings.priorities else None

    return sender


def observed_request(request: Request, body_limit: int, sender: Sender | None = None) -> RequestHead:
    """``body_limit``: see RequestHead."""
    tenant, priority = sender(request) if sender is not None else ("", None)
    return RequestHead(
        method=request.method.decode("latin-1"),
        path=_path(request),
        content_type=_text(request, b"content-type"),
        content_encoding=_text(request, b"content-encoding"),
        content_length=request.content_length,
        request_id=_text(request, b"x-request-id"),
        slo_ttft_ms=_milliseconds(request.header(b"x-slo-ttft-ms")),
        slo_tpot_ms=_milliseconds(request.header(b"x-slo-tpot-ms")),
        body_limit=body_limit,
        traceparent=_only(request, b"traceparent"),
        tenant=tenant,
        priority=priority,
    )


def observed_response(response: Response, *, observed: bool, injected: bool) -> ResponseHead:
    return ResponseHead(
        status=response.status,
        content_type=_text(response, b"content-type"),
        content_encoding=_text(response, b"content-encoding"),
        observed=observed,
        injected=injected,
    )


def _path(request: Request) -> str:
    """The path, or of one that is too long another one to the same endpoint."""
    path = request.path
    return path if len(path) <= _MAX_PATH else path_of(endpoint_of(path))


def _text(message: Message, name: bytes) -> str:
    return message.header(name)[:_MAX_TEXT].decode("latin-1")


def _only(message: Message, name: bytes) -> str:
    """A header that is not to be believed when it is sent twice."""
    found = [value for _, header, value in message.headers if header == name]
    return found[0][:_MAX_TEXT].decode("latin-1") if len(found) == 1 else ""


def _milliseconds(value: bytes) -> float:
    """A header's positive number; 0 for anything else."""
    try:
        number = float(value)
    except ValueError:
        return 0.0
    return number if 0 < number < 1e9 else 0.0
