"""Commands without the secrets in them, for files and screens. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

HIDDEN: Final = "***"
_NAME: Final = r"(?:api[-_]?keys?|token|secret|password|credentials?)"
_OPTION: Final = re.compile(rf"--[\w-]*{_NAME}", re.IGNORECASE)
_WITH_VALUE: Final = re.compile(rf"((?:--[\w-]*|\b[A-Z0-9_]*){_NAME}=)[^\s'\"]+", re.IGNORECASE)


def without_secrets(words: Iterable[str]) -> tuple[str, ...]:
    """The words with the value of ``--api-key`` and its like hidden, and those of ``HF_TOKEN=…``."""
    shown: list[str] = []
    hide = False
    for word in words:
        hidden = HIDDEN if hide and not word.startswith("-") else _WITH_VALUE.sub(rf"\1{HIDDEN}", word)
        # Some options take several keys: all words up to the next option.
        hide = bool(_OPTION.fullmatch(word)) or (hide and hidden == HIDDEN)
        shown.append(hidden)
    return tuple(shown)
