"""Answers of our own, in the form OpenAI's API gives its errors. They name the fault and never repeat what was sent."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Final

import msgspec

from prefillwatch.wire.reasons import RelayReason

_PHRASES: Final = {
    400: "Bad Request",
    408: "Request Timeout",
    413: "Content Too Large",
    417: "Expectation Failed",
    431: "Request Header Fields Too Large",
    501: "Not Implemented",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
    505: "HTTP Version Not Supported",
    508: "Loop Detected",
}
#: What is short here is so for a moment.
_RETRY_AFTER_S: Final = 1


_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def http_date(unix_s: float) -> str:
    """As a Date header has it, whatever the locale."""
    when = datetime.fromtimestamp(unix_s, timezone.utc)
    return f"{_DAYS[when.weekday()]}, {when:%d} {_MONTHS[when.month - 1]} {when:%Y %H:%M:%S} GMT"


def error_answer(status: int, message: str, code: RelayReason, unix_s: float, *, head_only: bool = False) -> bytes:
    """A whole response, after which the connection closes. ``unix_s`` is the time at which it is given."""
    kind = "invalid_request_error" if status < 500 else "upstream_error" if status in (502, 504) else "server_error"
    error = {"message": message, "type": kind, "param": None, "code": code}
    body = msgspec.json.encode({"error": error})
    retry = f"Retry-After: {_RETRY_AFTER_S}\r\n" if status == 503 else ""
    head = (
        f"HTTP/1.1 {status} {_PHRASES[status]}\r\n"
        "Content-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n"
        f"Date: {http_date(unix_s)}\r\n"
        f"{retry}Connection: close\r\n\r\n"
    ).encode()
    return head if head_only else head + body
