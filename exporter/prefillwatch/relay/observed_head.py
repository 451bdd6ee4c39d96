"""What the observer may know of a request and of a response head: no query, no credentials, nothing long."""

from __future__ import annotations

from typing import Final

from prefillwatch.relay.http_head import Message, Request, Response
from prefillwatch.wire.routes import endpoint_of, path_of
from prefillwatch.wire.tap import RequestHead, ResponseHead

_MAX_TEXT: Final = 128
_MAX_PATH: Final = 512


def observed_request(request: Request, body_limit: int) -> RequestHead:
    """``body_limit``: see RequestHead."""
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
