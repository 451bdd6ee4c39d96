"""Asking for usage in the client's place: mostly off, so its code is imported when it is first used."""

from __future__ import annotations

from typing import Final

from prefillwatch.relay.answer import Stripper
from prefillwatch.relay.http_head import Request
from prefillwatch.relay.request_body import RequestBody

#: Larger bodies are not looked into; that would take longer than a token may wait.
_MAX_BODY: Final = 4 * 2**20


def rewritten(request: Request, body: RequestBody) -> bytes | None:
    """The body with usage asked for; None where nothing is to be added."""
    if body.size > _MAX_BODY or request.header(b"content-encoding") or body.trailers:
        return None
    from prefillwatch.wire.inject import rewrite

    return rewrite(body.whole(), request.path)


def new_stripper() -> Stripper:
    """What takes out of the answer what was added to the request."""
    from prefillwatch.wire.inject import UsageStripper

    return UsageStripper()
