"""Heads for the next hop: hop-by-hop headers go, everything else stays as it came, in order, case and number."""

from __future__ import annotations

from typing import Final

from prefillwatch.relay.hops import Hop
from prefillwatch.relay.http_head import Header, Request, Response

_HOP_BY_HOP: Final = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    )
)
# A Connection header cannot take these away: they say where the message ends and for whom it is.
_KEPT_ANYWAY: Final = frozenset((b"content-length", b"host"))
_UNKNOWN: Final = Hop()
_NO_CONTENT: Final = 204


def request_head(
    request: Request, authority: bytes, *, keep_host: bool, length: int = -1, hop: Hop = _UNKNOWN
) -> bytes:
    """The head to send upstream. ``length`` replaces Content-Length where the body was changed (-1: it was not)."""
    dropped = _HOP_BY_HOP | (request.connection - _KEPT_ANYWAY) | {b"expect"} | hop.dropped
    lines = [b"%b %b HTTP/1.1" % (request.method, request.target)]
    if not any(header.name == b"host" for header in request.headers):
        lines.append(b"Host: " + (request.authority if keep_host and request.authority else authority))
    for line, name, _ in request.headers:
        if name == b"host" and not keep_host:
            lines.append(b"Host: " + authority)
        elif length >= 0 and name in (b"content-length", b"accept-encoding"):
            continue  # what is to be stripped from the answer again must come uncompressed
        elif name not in dropped:
            lines.append(line)
    lines += hop.lines(request, keep_host=keep_host)
    if length >= 0:
        lines.append(b"Content-Length: %d" % length)
    elif request.chunked:
        lines.append(b"Transfer-Encoding: chunked")
    return b"\r\n".join(lines) + b"\r\n\r\n"


def response_head(response: Response, *, chunked: bool, length: bool, connection: bytes) -> bytes:
    """The head to send to the client.

    ``chunked``: the body goes out in chunks. ``length``: Content-Length stays. ``connection``: the Connection header
    for the client's side, empty for none.
    """
    dropped = _HOP_BY_HOP | (response.connection - _KEPT_ANYWAY)
    if not length or response.status == _NO_CONTENT:
        dropped |= {b"content-length"}
    lines = [b"HTTP/1.1 %d %b" % (response.status, response.phrase)]
    for line, name, value in response.headers:
        if name == b"content-length" and value != b"0" and value.startswith(b"0") and name not in dropped:
            lines.append(b"Content-Length: %d" % response.content_length)  # zeros in front are octal to some
        elif name not in dropped:
            lines.append(line)
    if chunked and response.status != _NO_CONTENT:
        lines.append(b"Transfer-Encoding: chunked")
    if connection:
        lines.append(b"Connection: " + connection)
    return b"\r\n".join(lines) + b"\r\n\r\n"


def interim_head(response: Response) -> bytes:
    """A 1xx head to pass on."""
    return response_head(response, chunked=False, length=False, connection=b"")


def forwarded_trailers(trailers: list[Header]) -> bytes:
    """The end of a chunked body: last chunk and trailers, less hop-by-hop ones."""
    return b"0\r\n" + trailer_lines(trailers) + b"\r\n"


def trailer_lines(trailers: list[Header]) -> bytes:
    """Trailers to pass on."""
    return b"".join(header.line + b"\r\n" for header in trailers if header.name not in _HOP_BY_HOP)
