"""Which requests may be sent again when a kept connection turns out to have been dead.

A server that closes an idle connection and our next request can meet on the way. RFC 9110 (section 9.2.2) lets a proxy
repeat what is idempotent. Anything else only where upstream cannot have read it, and even then not what makes something
that lasts, such as a stored response or a background job.
"""

from __future__ import annotations

import enum
from typing import Final

from prefillwatch.relay.http_head import Request

_IDEMPOTENT: Final = frozenset((b"GET", b"HEAD", b"OPTIONS", b"PUT", b"DELETE"))
#: Ends of the paths at which a prompt is answered and nothing is kept, whatever the server is mounted under.
_PLAIN_ENDS: Final = ("/v1/chat/completions", "/v1/completions")
#: Other servers have messages that are made and stay, such as those of a thread; only this one is an answer.
_PLAIN_PATHS: Final = frozenset(("/v1/messages",))


class Repeat(enum.Enum):
    """When a request may be sent again."""

    NEVER = enum.auto()  # so it gets a new connection in the first place
    UNREAD = enum.auto()  # if upstream cannot have read all of it
    ALWAYS = enum.auto()


def repeat_of(request: Request) -> Repeat:
    """By method and path."""
    if request.method in _IDEMPOTENT:
        return Repeat.ALWAYS
    path = request.path
    plain = path in _PLAIN_PATHS or path.endswith(_PLAIN_ENDS)
    return Repeat.UNREAD if request.method == b"POST" and plain else Repeat.NEVER
