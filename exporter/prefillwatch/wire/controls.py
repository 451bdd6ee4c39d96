"""Requests that stop, or may stop, the engine by themselves: what they are for."""

from __future__ import annotations

from typing import Final

#: By the last segment of the path: what stops the engine, and the segments that let it go on. Without any, it goes on
#: when the request is answered.
_CONTROLS: Final[dict[str, tuple[str, frozenset[str]]]] = {
    "pause": ("paused by request", frozenset({"resume"})),
    "pause_generation": ("paused by request", frozenset({"continue_generation"})),
    "sleep": ("asleep", frozenset({"wake_up"})),
    "wake_up": ("asleep", frozenset()),
    "release_memory_occupation": ("asleep", frozenset({"resume_memory_occupation"})),
    "resume_memory_occupation": ("asleep", frozenset()),
    "update_weights": ("weight update", frozenset()),
    "update_weights_from_disk": ("weight update", frozenset()),
    "update_weights_from_tensor": ("weight update", frozenset()),
    "update_weights_from_distributed": ("weight update", frozenset()),
    "load_lora_adapter": ("weight update", frozenset()),
    "unload_lora_adapter": ("weight update", frozenset()),
    "start_profile": ("profiler", frozenset()),
    "stop_profile": ("profiler", frozenset()),
    "scale_elastic_ep": ("elastic scaling", frozenset()),
    "collective_rpc": ("called from outside", frozenset()),
    "resume": ("", frozenset()),
    "continue_generation": ("", frozenset()),
    "reset_prefix_cache": ("", frozenset()),
    "flush_cache": ("", frozenset()),
}


def control_of(path: str) -> str | None:
    """The last segment of a path that controls the engine; None for others."""
    name = path.partition("?")[0].partition("#")[0].rstrip("/").rpartition("/")[2].lower()
    return name if name in _CONTROLS else None


def reason_of(control: str) -> str:
    """Why the engine stands still because of it; empty: it does not."""
    return _CONTROLS[control][0]


def ended_by(control: str) -> frozenset[str]:
    """Which requests let the engine go on; none: its own answer does."""
    return _CONTROLS[control][1]
