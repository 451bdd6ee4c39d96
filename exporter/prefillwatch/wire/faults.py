"""Errors of ours, named by where they were: what they say may quote a prompt."""

from __future__ import annotations

import traceback


def place_of(error: Exception) -> str:
    where = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {where.name} ({where.filename}:{where.lineno})"
