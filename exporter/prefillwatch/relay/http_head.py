"""Heads of HTTP/1 messages, read strictly: what two servers could read in two ways is refused.

Lines are kept as bytes, so that what is passed on is what came. No sockets here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

MAX_REQUEST_HEAD: Final = 64 * 1024
MAX_RESPONSE_HEAD: Final = 256 * 1024
#: Reading a head must not hold up the streams; a head of many thousand tiny lines, or options of Connection, would.
MAX_HEADERS: Final = 256
MAX_OPTIONS: Final = 64

_TOKEN: Final = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_VALUE: Final = rb"[^\x00-\x08\x0a-\x1f\x7f]*"
# Nothing here may have two neighbours that both take blanks: a line that does not match would then cost its square.
_HEADER: Final = re.compile(rb"(%b):(%b)" % (_TOKEN, _VALUE))
_REQUEST_LINE: Final = re.compile(rb"(%b) ([\x21-\x7e\x80-\xff]+) HTTP/([0-9])\.([0-9])" % _TOKEN)
_STATUS_LINE: Final = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9][0-9])(?: (%b))?" % _VALUE)
_CR: Final = ord("\r")
_LENGTH: Final = re.compile(rb"[0-9]{1,18}")
_NO_BODY: Final = frozenset((204, 304))


class HeadError(ValueError):
    """A head that is refused. ``status`` is the answer a client gets for it, ``reason`` one fixed word."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


class Header(NamedTuple):
    line: bytes  # as it came, without the line end
    name: bytes  # lower case
    value: bytes


@dataclass(slots=True, kw_only=True)
class Message:
    """What requests and responses have in common."""

    minor: int  # HTTP/1.minor
    headers: list[Header]
    content_length: int = -1  # -1: none announced
    chunked: bool = False
    keep_alive: bool = True
    connection: frozenset[bytes] = frozenset()  # lower-case options of Connection

    def header(self, name: bytes) -> bytes:
        """The first value of a header, or nothing."""
        return next((header.value for header in self.headers if header.name == name), b"")


@dataclass(slots=True, kw_only=True)
class Request(Message):
    method: bytes
    target: bytes
    expect_continue: bool = False

    @property
    def path(self) -> str:
        """The path without query; for a target in absolute form also without the authority."""
        target = self.target
        if not target.startswith(b"/") and b"://" in target:
            rest = target.partition(b"://")[2]
            target = rest[rest.find(b"/") :] if b"/" in rest else b"/"
        return target.partition(b"?")[0].decode("utf-8", "replace")


@dataclass(slots=True, kw_only=True)
class Response(Message):
    status: int
    phrase: bytes


def end_of_head(buffer: bytearray, searched: int) -> int:
    """Where the head in ``buffer`` ends (behind its empty line), or -1. The first ``searched`` bytes held no end.

    Raises HeadError at once for a line end that is not CRLF, rather than waiting for a proper one.
    """
    end = buffer.find(b"\r\n\r\n", max(0, searched - 3))
    if _has_bare_line_end(buffer, searched, end):
        raise HeadError(400, "line_end", "Lines of a head end with CR LF.")
    return end + 4 if end >= 0 else -1


def _has_bare_line_end(buffer: bytearray, searched: int, end: int) -> bool:
    """Whether a CR or an LF stands alone. The last byte may be a CR whose LF is still to come."""
    start = searched - 1 if searched and buffer[searched - 1] == _CR else searched
    stop = len(buffer) - buffer.endswith(b"\r") if end < 0 else end
    pairs = buffer.count(b"\r\n", start, stop)
    return buffer.count(b"\n", start, stop) != pairs or buffer.count(b"\r", start, stop) != pairs


def parse_request(head: bytes) -> Request:
    """Read a request head (with its empty line). Raises HeadError."""
    first, headers = _split(head, 431)
    match = _REQUEST_LINE.fullmatch(first)
    if match is None:
        raise HeadError(400, "request_line", "The request line is not one of HTTP/1.1.")
    method, target, major, minor = match.groups()
    if major != b"1" or minor not in b"01":
        raise HeadError(505, "version", "Only HTTP/1.1 and HTTP/1.0 are spoken here.")
    request = Request(method=method, target=target, minor=int(minor), headers=headers)
    _read_request_headers(request)
    return request


def parse_response(head: bytes) -> Response:
    """Read a response head (with its empty line). Raises HeadError."""
    first, headers = _split(head, 502)
    match = _STATUS_LINE.fullmatch(first)
    if match is None:
        raise HeadError(502, "status_line", "Upstream's status line is not one of HTTP/1.1.")
    response = Response(status=int(match[2]), minor=int(match[1]), phrase=match[3] or b"", headers=headers)
    _read_framing(response, 502)
    if response.chunked:
        response.content_length = -1
    return response


def has_body(method: bytes, response: Response) -> bool:
    """Whether a body can follow this response head at all."""
    return method != b"HEAD" and response.status >= 200 and response.status not in _NO_BODY


def parse_trailer(line: bytes) -> Header:
    """Read a trailer line. Raises HeadError, also for fields that would change the framing."""
    header = _parse_line(line, 400)
    if header.name in (b"content-length", b"transfer-encoding", b"host"):
        raise HeadError(400, "trailer", "A trailer must not carry framing fields.")
    return header


def _split(head: bytes, too_many: int) -> tuple[bytes, list[Header]]:
    first, *lines = head[:-4].split(b"\r\n")
    if len(lines) > MAX_HEADERS:
        raise HeadError(too_many, "head_too_large", f"A head has at most {MAX_HEADERS} header lines.")
    status = 502 if too_many == 502 else 400
    return first, [_parse_line(line, status) for line in lines]


def _parse_line(line: bytes, status: int) -> Header:
    match = _HEADER.fullmatch(line)
    if match is None:
        raise HeadError(status, "header_line", "A header line is malformed.")
    return Header(line, match[1].lower(), match[2].strip(b" \t"))


def _read_request_headers(request: Request) -> None:
    _read_framing(request, 400)
    if request.chunked and request.content_length >= 0:
        raise HeadError(400, "framing", "Content-Length and Transfer-Encoding contradict each other.")
    if request.chunked and request.minor == 0:
        raise HeadError(400, "framing", "HTTP/1.0 has no Transfer-Encoding.")
    hosts = sum(header.name == b"host" for header in request.headers)
    if hosts > 1 or (hosts == 0 and request.minor == 1):
        raise HeadError(400, "host", "A request has exactly one Host header.")
    expect = request.header(b"expect").lower()
    if expect not in (b"", b"100-continue"):
        raise HeadError(417, "expect", "Only 100-continue can be expected.")
    request.expect_continue = bool(expect) and request.minor == 1


def _read_framing(message: Message, status: int) -> None:
    """Set what decides where the message and the connection end."""
    options: set[bytes] = set()
    for _, name, value in message.headers:
        if name == b"content-length":
            if message.content_length >= 0 or not _LENGTH.fullmatch(value):
                raise HeadError(status, "framing", "Content-Length is given twice or is no plain number.")
            message.content_length = int(value)
        elif name == b"transfer-encoding":
            if message.chunked or value.lower() != b"chunked":
                raise HeadError(status, "framing", "The only Transfer-Encoding understood is a single 'chunked'.")
            message.chunked = True
        elif name == b"connection":
            named = value.split(b",", MAX_OPTIONS)
            if len(options) + len(named) > MAX_OPTIONS:
                raise HeadError(status, "header_line", f"Connection has at most {MAX_OPTIONS} options.")
            options.update(option.strip(b" \t").lower() for option in named)
    message.connection = frozenset(options)
    message.keep_alive = b"close" not in options and (message.minor == 1 or b"keep-alive" in options)
