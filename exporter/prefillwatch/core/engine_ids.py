"""Which of our requests an id of vLLM's means. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from prefillwatch.analysis.requests import Request

#: vLLM puts the kind of answer before the client's X-Request-Id, and the number of the prompt after it in completions.
_KIND: Final = re.compile(r"^(?:chatcmpl|cmpl|resp|msg)[-_]")
_PROMPT_NUMBER: Final = re.compile(r"-\d+$")


def names(engine_id: str) -> set[str]:
    """What the client may know the request by."""
    whole = {engine_id}
    if engine_id.startswith("cmpl-"):
        whole.add(_PROMPT_NUMBER.sub("", engine_id))
    return whole | {_KIND.sub("", each) for each in whole}


def find(requests: Iterable[Request], engine_id: str) -> Request | None:
    """The one request that can be meant; None where it is not there, or several have the same id.

    It is no harm to give a request twice.
    """
    known = names(engine_id) - {""}
    found = {request.rid: request for request in requests if request.request_id in known}
    return next(iter(found.values())) if len(found) == 1 else None
