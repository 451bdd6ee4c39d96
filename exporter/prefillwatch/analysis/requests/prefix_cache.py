"""How much of a prompt the server probably has in its prefix cache, before usage reports it, if it ever does.

A server with a prefix cache does not work again on the beginning that a prompt shares with an earlier one. So the
beginnings of prompts that were worked on lately are remembered as keyed digests (see wire.fingerprint; no text can be
recovered), and a new prompt is held against them. It is an estimate: the server may have evicted what we remember.
Where usage reports cached tokens, it teaches whether the estimate can be believed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from itertools import islice
from typing import Final

#: Digests kept: with one per 256 characters these are the beginnings of about 16 million characters.
_KEPT: Final = 1 << 16
#: So often in a row must usage deny what we expected before we stop expecting it.
_DENIALS: Final = 3


class PrefixMemory:
    """Beginnings of prompts, per model, the least recently used forgotten first."""

    __slots__ = ("_denied", "_kept", "_seen")

    def __init__(self, kept: int = _KEPT) -> None:
        self._kept = kept
        self._seen: OrderedDict[tuple[Hashable, int], None] = OrderedDict()
        self._denied: dict[Hashable, int] = {}

    def shared(self, model: Hashable, fingerprint: tuple[int, ...]) -> int:
        """With how many of these blocks an earlier prompt of this model began."""
        if self._denied.get(model, 0) >= _DENIALS:
            return 0
        for blocks in range(len(fingerprint), 0, -1):
            if (model, fingerprint[blocks - 1]) in self._seen:
                return blocks
        return 0

    def remember(self, model: Hashable, fingerprint: tuple[int, ...]) -> None:
        """The server has worked on a prompt with this beginning."""
        for digest in fingerprint:
            self._seen[(model, digest)] = None
            self._seen.move_to_end((model, digest))
        while len(self._seen) > self._kept:
            self._seen.popitem(last=False)

    def newest(self, model: Hashable, most: int) -> list[int]:
        """The digests of this model used last, in order."""
        found = (digest for its, digest in reversed(self._seen) if its == model)
        return list(islice(found, most))[::-1]

    def reported(self, model: Hashable, expected_tokens: int, cached_tokens: int) -> None:
        """Usage reported the cached tokens of a prompt of which so many were expected to be cached."""
        if cached_tokens > 0:
            self._denied.pop(model, None)
        elif expected_tokens > 0:
            self._denied[model] = self._denied.get(model, 0) + 1

    def forget(self, model: Hashable) -> None:
        """The number of the model goes to another one."""
        self._denied.pop(model, None)
        for key in [key for key in self._seen if key[0] == model]:
            del self._seen[key]
