"""Heads of HTTP/1 messages, read strictly: what two servers could read in two ways is refused.

Lines are kept as bytes, so that what is passed on is what came. No sockets here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

from prefillwatch.relay.errors import HeadError
from prefillwatch.wire.reasons import RelayReason

MAX_REQUEST_HEAD: Final = 64 * 1024
MAX_RESPONSE_HEAD: Final = 256 * 1024
#: Reading a head must not hold up the streams; a head of many thousand tiny lines, or options of Connection, would.
MAX_HEADERS: Final = 256
MAX_OPTIONS: Final = 64

_TOKEN: Final = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_VALUE: Final = rb"[^\x00-\x08\x0a-\x1f\x7f]*"
# Nothing here may have two neighbours that both take blanks: a line that does not match would then cost its square.
_HEADER: Final = re.compile(rb"(%b):(%b)" % (_TOKEN, _VALUE))
#: All lines of a head at once, which costs half of what matching them one by one does.
_HEADERS: Final = re.compile(rb"^((%b):(%b))\r\n" % (_TOKEN, _VALUE), re.MULTILINE)
# No target has a fragment or a backslash: some servers cut the one off and make a slash of the other.
_REQUEST_LINE: Final = re.compile(rb"(%b) ([\x21\x22\x24-\x5b\x5d-\x7e]+) HTTP/([0-9])\.([0-9])" % _TOKEN)
#: Control bytes in a path that is decoded before it is looked at: an end of it for some, a new header line for others.
_HIDDEN_CONTROL: Final = re.compile(rb"%(?:[01][0-9A-Fa-f]|7[Ff])")
_ABSOLUTE: Final = re.compile(rb"(https?)://([^/?]*)([/?].*)?", re.IGNORECASE)
# RFC 3986 allows commas in names, too; here one is what is left of two Host headers that a proxy joined.
_AUTHORITY: Final = re.compile(
    rb"(?:(?:[A-Za-z0-9._~!$&'()*+;=-]|%[0-9A-Fa-f]{2})+|\[[0-9A-Za-z.:_~%-]+\])(?::[0-9]{0,5})?"
)
_STATUS_LINE: Final = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9][0-9])(?: (%b))?" % _VALUE)
_CR: Final = ord("\r")
_LENGTH: Final = re.compile(rb"[0-9]{1,18}")
_DEFAULT_PORT: Final = {b"http": b":80", b"https": b":443"}
_FRAMING_FIELDS: Final = frozenset((b"content-length", b"transfer-encoding", b"host"))
#: Servers that hand headers on as variables make the same of ``-`` and ``_``.
_MISTAKABLE: Final = frozenset((b"content_length", b"transfer_encoding"))
_NO_BODY: Final = frozenset((204, 304))


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
        for _, found, value in self.headers:  # a third of what next() over a generator costs
            if found == name:
                return value
        return b""


@dataclass(slots=True, kw_only=True)
class Request(Message):
    method: bytes
    target: bytes  # a path and a query; `*` for OPTIONS, the authority for CONNECT
    authority: bytes = b""  # where the target named one, too
    expect_continue: bool = False

    @property
    def path(self) -> str:
        """The path without query."""
        return self.target.partition(b"?")[0].decode("latin-1")


@dataclass(slots=True, kw_only=True)
class Response(Message):
    status: int
    phrase: bytes
    #: Its framing could be read in another way, so what follows on the connection cannot be trusted.
    doubtful: bool = False


def end_of_head(buffer: bytearray, searched: int) -> int:
    """Where the head in ``buffer`` ends (behind its empty line), or -1. The first ``searched`` bytes held no end.

    Raises HeadError at once for a line end that is not CRLF, rather than waiting for a proper one.
    """
    end = buffer.find(b"\r\n\r\n", max(0, searched - 3))
    start = searched - 1 if searched and buffer[searched - 1] == _CR else searched
    stop = len(buffer) - buffer.endswith(b"\r") if end < 0 else end  # the LF of the last CR may be still to come
    pairs = buffer.count(b"\r\n", start, stop)
    if buffer.count(b"\n", start, stop) != pairs or buffer.count(b"\r", start, stop) != pairs:
        raise HeadError(400, RelayReason.LINE_END, "Lines of a head end with CR LF.")
    return end + 4 if end >= 0 else -1


def parse_request(head: bytes) -> Request:
    """Read a request head (with its empty line). Raises HeadError."""
    first, headers = _split(head.removeprefix(b"\r\n"), 431)  # RFC 9112 asks to forgive an empty line before it
    match = _REQUEST_LINE.fullmatch(first)
    if match is None:
        raise HeadError(400, RelayReason.REQUEST_LINE, "The request line is not one of HTTP/1.1.")
    method, target, major, minor = match.groups()
    if major != b"1" or minor not in b"01":
        raise HeadError(505, RelayReason.VERSION, "Only HTTP/1.1 and HTTP/1.0 are spoken here.")
    target, authority = _read_target(method, target)
    if _HIDDEN_CONTROL.search(target.partition(b"?")[0]):
        raise HeadError(400, RelayReason.TARGET, "The request target hides a control byte.")
    request = Request(method=method, target=target, authority=authority, minor=int(minor), headers=headers)
    _read_request_headers(request)
    return request


def parse_response(head: bytes) -> Response:
    """Read a response head (with its empty line). Raises HeadError."""
    first, headers = _split(head, 502)
    match = _STATUS_LINE.fullmatch(first)
    if match is None:
        raise HeadError(502, RelayReason.STATUS_LINE, "Upstream's status line is not one of HTTP/1.1.")
    response = Response(status=int(match[2]), minor=int(match[1]), phrase=match[3] or b"", headers=headers)
    _read_framing(response, 502)
    response.doubtful = (
        response.chunked and (response.minor == 0 or response.content_length >= 0 or response.status in _NO_BODY)
    ) or (response.content_length > 0 and response.status in _NO_BODY)
    if response.chunked:
        response.content_length = -1
    return response


def has_body(method: bytes, response: Response) -> bool:
    """Whether a body can follow this response head at all."""
    return method != b"HEAD" and response.status >= 200 and response.status not in _NO_BODY


def parse_trailer(line: bytes, *, refuse_framing: bool = True) -> Header | None:
    """Read a trailer line; a field that would change the message is refused, or left out. Raises HeadError."""
    match = _HEADER.fullmatch(line)
    if match is None:
        raise HeadError(400, RelayReason.HEADER_LINE, "A header line is malformed.")
    name = match[1].lower()
    if name not in _FRAMING_FIELDS:
        return Header(line, name, match[2].strip(b" \t"))
    if refuse_framing:
        raise HeadError(400, RelayReason.TRAILER, "A trailer must not carry framing fields.")
    return None


def _split(head: bytes, too_many: int) -> tuple[bytes, list[Header]]:
    first, _, rest = head[:-2].partition(b"\r\n")
    if rest.count(b"\r\n") > MAX_HEADERS:
        raise HeadError(too_many, RelayReason.HEAD_TOO_LARGE, f"A head has at most {MAX_HEADERS} header lines.")
    found = _HEADERS.findall(rest)
    if sum([len(line) for line, _, _ in found]) + 2 * len(found) != len(rest):  # one of them was passed over
        raise HeadError(502 if too_many == 502 else 400, RelayReason.HEADER_LINE, "A header line is malformed.")
    return first, [Header(line, name.lower(), value.strip(b" \t")) for line, name, value in found]


def _read_target(method: bytes, target: bytes) -> tuple[bytes, bytes]:
    """The target in the form that servers get, and the authority that it named."""
    if method == b"CONNECT" or target.startswith(b"/") or (target == b"*" and method == b"OPTIONS"):
        return target, b""
    match = _ABSOLUTE.fullmatch(target)
    if match is None or not _AUTHORITY.fullmatch(match[2]):
        raise HeadError(400, RelayReason.TARGET, "The request target is neither a path nor a URL of HTTP.")
    rest = match[3] or (b"*" if method == b"OPTIONS" else b"/")
    return b"/" + rest if rest.startswith(b"?") else rest, _without_default_port(match[2], match[1])


def _without_default_port(authority: bytes, scheme: bytes) -> bytes:
    return authority.lower().removesuffix(_DEFAULT_PORT[scheme.lower()]).removesuffix(b":")


def _check_host(request: Request) -> None:
    hosts = [header.value for header in request.headers if header.name == b"host"]
    if len(hosts) > 1 or (not hosts and request.minor == 1):
        raise HeadError(400, RelayReason.HOST, "A request has exactly one Host header.")
    if hosts and not _AUTHORITY.fullmatch(hosts[0]):
        raise HeadError(400, RelayReason.HOST, "The Host header is no host name.")
    if hosts and request.authority:
        same = (_without_default_port(hosts[0], scheme) for scheme in _DEFAULT_PORT)
        if request.authority not in same:
            raise HeadError(400, RelayReason.HOST, "The Host header contradicts the request target.")


def _read_request_headers(request: Request) -> None:
    _read_framing(request, 400)
    if request.chunked and request.content_length >= 0:
        raise HeadError(400, RelayReason.FRAMING, "Content-Length and Transfer-Encoding contradict each other.")
    if request.chunked and request.minor == 0:
        raise HeadError(400, RelayReason.FRAMING, "HTTP/1.0 has no Transfer-Encoding.")
    for line, name, value in request.headers:
        if name == b"content-length" and not _is_plain_length(line, value):
            raise HeadError(400, RelayReason.FRAMING, "Content-Length is not written plainly.")
        if name in _MISTAKABLE:
            raise HeadError(400, RelayReason.FRAMING, "A header can be mistaken for one of the framing.")
    _check_host(request)
    expected = {header.value.lower() for header in request.headers if header.name == b"expect"} - {b""}
    if expected - {b"100-continue"}:
        raise HeadError(417, RelayReason.EXPECT, "Only 100-continue can be expected.")
    request.expect_continue = bool(expected) and request.minor == 1


def _is_plain_length(line: bytes, number: bytes) -> bool:
    """No zero in front, no more than a blank before it and nothing behind: every server reads the same number."""
    return (number == b"0" or not number.startswith(b"0")) and line.partition(b":")[2].removeprefix(b" ") == number


def _read_framing(message: Message, status: int) -> None:
    """Set what decides where the message and the connection end."""
    options: set[bytes] = set()
    for _, name, value in message.headers:
        if name == b"content-length":
            if message.content_length >= 0 or not _LENGTH.fullmatch(value):
                raise HeadError(status, RelayReason.FRAMING, "Content-Length is given twice or is no plain number.")
            message.content_length = int(value)
        elif name == b"transfer-encoding":
            if message.chunked or value.lower() != b"chunked":
                raise HeadError(
                    status, RelayReason.FRAMING, "The only Transfer-Encoding understood is a single 'chunked'."
                )
            message.chunked = True
        elif name == b"connection":
            named = value.split(b",", MAX_OPTIONS)
            if len(options) + len(named) > MAX_OPTIONS:
                raise HeadError(status, RelayReason.HEADER_LINE, f"Connection has at most {MAX_OPTIONS} options.")
            options.update(option.strip(b" \t").lower() for option in named)
    message.connection = frozenset(options)
    message.keep_alive = b"close" not in options and (message.minor == 1 or b"keep-alive" in options)
