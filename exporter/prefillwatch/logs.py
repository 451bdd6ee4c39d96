"""Log lines on stderr, as text or JSON. They never hold prompts, completions, headers or keys."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Literal


class _JsonFormatter(logging.Formatter):
    """One object per line: time (Unix seconds), level, process, message."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": round(record.created, 3),
            "level": record.levelname.lower(),
            "process": self._process,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def configure(level: str, form: Literal["text", "json"], process: str) -> None:
    """Send the log to stderr. ``process`` names the one that speaks: ``prefillwatch``, ``relay 0``, ``observer``."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter(process) if form == "json" else _text_formatter(process))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for chatty in ("httpx", "httpcore", "asyncio", "uvicorn.access"):
        logging.getLogger(chatty).setLevel(max(logging.WARNING, root.level))


def _text_formatter(process: str) -> logging.Formatter:
    formatter = logging.Formatter(f"%(asctime)s.%(msecs)03dZ %(levelname)s {process}: %(message)s", "%Y-%m-%dT%H:%M:%S")
    formatter.converter = time.gmtime
    return formatter
