"""Memory of one GPU."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """Bytes."""

    used: int
    free: int
