"""The live page: files that need no build, and what browsers without scripts see in it."""

from __future__ import annotations

from functools import cache
from html import escape
from pathlib import Path
from typing import Final

from prefillwatch import __version__
from prefillwatch.export.landing import fallback
from prefillwatch.export.registry import Snapshot

_FOLDER: Final = Path(__file__).parent / "page"

_TYPES: Final = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}

#: What the page asks for, by name, with its types.
PAGE_FILES: Final = {path.name: _TYPES[path.suffix] for path in sorted(_FOLDER.iterdir()) if path.suffix in _TYPES}


@cache
def read_page_file(name: str) -> bytes:
    return (_FOLDER / name).read_bytes()


def live_page(snapshot: Snapshot, ready: bool, reason: str = "") -> bytes:
    """HTML in UTF-8."""
    page = read_page_file("index.html").decode()
    page = page.replace("{version}", escape(__version__)).replace("{fallback}", fallback(snapshot, ready, reason))
    return page.encode("utf-8", "backslashreplace")
