"""What can go wrong when upstream is asked about itself: one tree of errors, one word for each reason."""

from __future__ import annotations

import enum


class FetchReason(str, enum.Enum):
    """Why nothing usable came. Members are their words, which are label values in metrics: a word keeps its meaning."""

    HTTP_STATUS = "http_status"
    TIMEOUT = "timeout"
    CONNECT = "connect"
    PARSE = "parse"  # not HTTP, or no page of metrics
    TOO_BIG = "too_big"
    EMPTY = "empty"

    def __str__(self) -> str:
        return self.value


class UpstreamError(Exception):
    """Nothing usable came from upstream."""

    def __init__(self, reason: FetchReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class FetchError(UpstreamError):
    """No usable answer. ``status`` is the HTTP status where one came."""

    def __init__(self, reason: FetchReason, message: str, status: int = 0) -> None:
        super().__init__(reason, message)
        self.status = status


class PageError(UpstreamError):
    """An answer that is no page of metrics, or an empty one."""
