"""Who sent a request, under a name that may be shown, and how urgent it is: what the relay and the observer make of a
header or of a member of the body.

A name is a keyed hash of what the request says. Keys and users can be guessed, so a hash without a key would be as good
as the text; the key never leaves our processes (docs/tenants.md).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Final, Literal

TenantFrom = Literal["api_key_id", "user"]
TenantNames = Literal["hashed", "plain"]

#: Headers that carry a credential: no name is made of one but by hashing it. In this order one is looked for.
CREDENTIALS: Final = (b"authorization", b"x-api-key", b"api-key")
#: These can be no names in plain words, either.
SECRET_HEADERS: Final = frozenset({*CREDENTIALS, b"proxy-authorization", b"cookie", b"x-goog-api-key"})
#: How urgent a request is, in a server of vLLM's kind; goes before the body's member there, and so it does here.
PRIORITY_HEADER: Final = b"x-vllm-priority"

#: Hexadecimal digits of a hash. With 48 bits, ten thousand tenants share a name once in five million times.
_DIGITS: Final = 12
#: Longer ones are hashed whatever was asked for.
_LONGEST_PLAIN: Final = 64
#: What is read of a name at most: beyond it, two are told apart by their beginnings.
_LONGEST: Final = 4096
#: Names that stand for something else: those without a place of their own, and those who do not say who they are.
OTHER: Final = "other"
UNNAMED: Final = "none"
#: Priorities beyond these are one class at either end.
MOST_URGENT: Final = -2
LEAST_URGENT: Final = 2
_LONGEST_NUMBER: Final = 20


class TenantIds:
    """Makes names of texts that identify somebody."""

    __slots__ = ("_key", "_plain")

    def __init__(self, key: str, *, plain: bool = False) -> None:
        self._key = hashlib.blake2b(key.encode(), digest_size=32).digest()
        self._plain = plain

    def __call__(self, text: str | bytes) -> str:
        """Empty for an empty text."""
        given = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
        given = given.strip()
        if not given:
            return ""
        if self._plain and len(given) <= _LONGEST_PLAIN:
            name = given.decode("utf-8", "replace")
            if name.isprintable() and "\ufffd" not in name and name not in (OTHER, UNNAMED):
                return name
        return hashlib.blake2b(given[:_LONGEST], key=self._key, digest_size=_DIGITS // 2).hexdigest()


def by_credential(header: Callable[[bytes], bytes], ids: TenantIds) -> str:
    """The name of whom a request's credential belongs to; ``header`` gives the value of one."""
    for name in CREDENTIALS:
        value = header(name)
        if value:
            return ids(value[7:] if value[:7].lower() == b"bearer " else value)
    return ""


def clipped(priority: int) -> int:
    """Of five classes: lower ones are served first by vLLM."""
    return max(MOST_URGENT, min(LEAST_URGENT, priority))


def priority_of(value: bytes) -> int | None:
    """What the header says; None where that is no number, as in vLLM."""
    if not value or len(value) > _LONGEST_NUMBER:
        return None
    try:
        return clipped(int(value))
    except ValueError:
        return None
