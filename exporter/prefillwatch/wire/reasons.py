"""One word for each thing that did not go well. They are label values in metrics, so a word keeps its meaning."""

from __future__ import annotations

import enum


class RelayReason(str, enum.Enum):
    """Why a relay refused a request, left a client, or did not pass an answer on to its end. Members are their words.

    They stand in END records and in the ``code`` of our own error answers, too. What ends well, and a client that just
    leaves, has no reason.
    """

    # The request is not one that we pass on.
    REQUEST_LINE = "request_line"
    VERSION = "version"
    TARGET = "target"
    HOST = "host"
    HEADER_LINE = "header_line"
    LINE_END = "line_end"
    HEAD_TOO_LARGE = "head_too_large"
    FRAMING = "framing"  # two servers could take its end for two different places
    TRAILER = "trailer"
    EXPECT = "expect"
    UPGRADE = "upgrade"
    CONNECT_METHOD = "connect_method"
    BODY_TOO_LARGE = "body_too_large"
    REQUEST_TIMEOUT = "request_timeout"
    LOOP = "loop"  # it has been here before
    # There is no room for it.
    BODIES_FULL = "bodies_full"
    UPLOAD_TOO_SLOW = "upload_too_slow"
    CLIENTS_FULL = "clients_full"
    NO_DESCRIPTORS = "no_descriptors"
    # The client takes no bytes.
    WRITE_TIMEOUT = "write_timeout"
    # There is no connection to upstream.
    CONNECT = "connect"
    TIMEOUT = "timeout"
    TLS = "tls"
    # Upstream's answer.
    CLOSED = "closed"  # its connection ended before the answer did
    RESET = "reset"  # its connection broke
    MALFORMED = "malformed"  # it is not HTTP/1.1
    STATUS_LINE = "status_line"
    IDLE_LIMIT = "idle_limit"  # it was silent for longer than is allowed
    # Ourselves.
    DRAIN = "drain"  # the time for draining was over
    INTERNAL = "internal"  # a fault of ours

    def __str__(self) -> str:
        return self.value


class UnparsedReason(str, enum.Enum):
    """Why an event or a body of an answer was passed on without being counted. Members are their words."""

    UTF8 = "utf8"  # it is not even text
    JSON = "json"
    TOO_LONG = "too_long"  # it was not tried, or was left out for being too much
    HOLE = "hole"  # bytes of it were lost
    ENCODING = "encoding"  # it cannot be inflated
    NO_EVENTS = "no_events"  # a stream without an event
    INTERNAL = "internal"  # a fault of ours

    def __str__(self) -> str:
        return self.value
