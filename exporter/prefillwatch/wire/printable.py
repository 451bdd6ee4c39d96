"""Names that others chose, before they get to a terminal."""

from __future__ import annotations


def printable(name: str) -> str:
    """The name with everything escaped that a terminal would obey or not show: controls (C1's too, which HTTP lets
    through), directions of writing, lone surrogates."""
    return name if name.isprintable() else "".join(sign if sign.isprintable() else _escaped(sign) for sign in name)


def _escaped(sign: str) -> str:
    return sign.encode("unicode_escape").decode()
