"""The files that vLLM's profiler writes: which one belongs to a capture, and whether it is all there."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Final

from prefillwatch.errors import ConfigError
from prefillwatch.lab.trace.errors import TraceError

_PATTERNS: Final = ("*.pt.trace.json", "*.pt.trace.json.gz")
#: The API server's own trace holds no kernels.
_FRONTEND: Final = "async_llm"
_LOOK_EVERY_S: Final = 0.25
#: A file is complete when this many looks in a row find it unchanged.
_QUIET_LOOKS: Final = 3


class TraceFolder:
    """vLLM's torch_profiler_dir, remembered as it was before a capture. Raises ConfigError where it is no folder."""

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise ConfigError(f"--trace-dir {folder}: no such folder; give the torch_profiler_dir that vLLM writes to")
        self._folder = folder
        self._before = set(self._files())

    async def new_traces(self, patience_seconds: float) -> list[Path]:
        """The workers' traces that have come since and no longer grow, that of the first rank first.

        Raises TraceError when there is none by then.
        """
        deadline = time.monotonic() + patience_seconds
        sizes: dict[Path, int] = {}
        quiet = 0
        while time.monotonic() < deadline:
            now = {path: path.stat().st_size for path in self._files() if path not in self._before}
            quiet = quiet + 1 if now and now == sizes else 0
            sizes = now
            if quiet >= _QUIET_LOOKS:
                return sorted(now, key=_rank)
            await asyncio.sleep(_LOOK_EVERY_S)
        raise TraceError(
            f"no new trace of a worker came into {self._folder} within {patience_seconds:g} s; is it the "
            "torch_profiler_dir of that very server?"
        )

    def _files(self) -> list[Path]:
        return [path for pattern in _PATTERNS for path in self._folder.glob(pattern) if _FRONTEND not in path.name]


def _rank(path: Path) -> tuple[int, str]:
    _, found, rest = path.name.partition("rank")
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    return (int(digits) if found and digits else 1 << 30, path.name)
