"""Asking what a prompt would do that came now."""

from __future__ import annotations

from typing import Final

#: Of a prompt: ten times the longest context that there is.
MOST_PROMPT_TOKENS: Final = 100_000_000


class UnknownModelError(Exception):
    """No model of this name is served."""

    def __init__(self, model: str) -> None:
        super().__init__(f"model names none that is served: {model[:40]!r}")
