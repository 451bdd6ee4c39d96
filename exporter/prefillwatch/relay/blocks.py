"""Bytes that are gathered piece by piece, in memory that goes back to the system when they are let go."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import Final

#: Up to here bytes are kept where Python keeps its own; most prompts are no longer. A client that sends them one by one
#: costs no object for each.
_FIRST: Final = 96 * 1024
#: What is longer gets pages of its own. From malloc they would be parts of a heap that has to keep its largest size for
#: as long as anything small stands behind them. Only pages that were written to are taken.
_PAGES: Final = 1024 * 1024


class Blocks:
    """An append-only sequence of bytes."""

    __slots__ = ("_filled", "_first", "_mapped", "size")

    def __init__(self) -> None:
        self.size = 0
        self._first = bytearray()
        self._mapped: list[mmap.mmap] = []
        self._filled = 0  # of the last mapped block

    def add(self, data: bytes) -> None:
        """Keep a copy of ``data``. Raises OSError where the system has no memory."""
        self.size += len(data)
        if not self._mapped:
            if len(self._first) + len(data) <= _FIRST:
                self._first += data
                return
            self._filled = _PAGES
        view = memoryview(data)
        while view:
            if self._filled == _PAGES:
                self._mapped.append(mmap.mmap(-1, _PAGES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
                self._filled = 0
            part = view[: _PAGES - self._filled]
            self._mapped[-1][self._filled : self._filled + len(part)] = part
            self._filled += len(part)
            view = view[len(part) :]

    def __iter__(self) -> Iterator[memoryview]:
        """The bytes in a few pieces, which keep alive what they show."""
        if self._first:
            yield memoryview(self._first)
        for block in self._mapped[:-1]:
            yield memoryview(block)
        if self._mapped:
            yield memoryview(self._mapped[-1])[: self._filled]
