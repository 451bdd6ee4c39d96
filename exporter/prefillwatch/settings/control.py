"""What the supervisor sends the observer while it runs: one JSON line with a `Control` object for every change.

The first line comes at once. The observer writes the line ``ready`` when it reads the taps, upon which the relays
report their running exchanges again. The end of the channel means that the supervisor is gone: the observer must end
too.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

Role = Literal["supervisor", "relay", "observer", "upstream"]


class ProcessNow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One process of ours, for ``/api/state``."""

    role: Role
    pid: int
    index: int = -1  # which relay; -1: there is only one of this role


class Restarts(msgspec.Struct, frozen=True, kw_only=True):
    """How often a process was started again since the supervisor began."""

    relay: int = 0
    observer: int = 0


#: The state of a healthy relay.
SERVING: Final = "serving"


class RelayNow(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a relay serves. ``state``: starting, serving, not accepting, mute, away."""

    index: int
    state: str


class UpstreamNow(msgspec.Struct, frozen=True, kw_only=True):
    """Upstream's health as of the last check. ``failures`` counts the checks that failed, by reason."""

    up: bool | None
    check_seconds: float
    failures: dict[str, int]


class Control(msgspec.Struct, frozen=True, kw_only=True):
    """One line on the control channel: the whole truth now, not a change."""

    processes: tuple[ProcessNow, ...]
    draining: bool
    restarts: Restarts
    relays: tuple[RelayNow, ...] = ()
    upstream: UpstreamNow | None = None  # None: it was not asked yet
    ready: bool | None = None  # None: only the observer knows
    reason: str = ""
    certificates: dict[str, float] = {}  # Unix time at which each one ends, by listener: data, admin


READY_LINE: Final = b"ready\n"

_decoder = msgspec.json.Decoder(Control)


def encode_control(control: Control) -> bytes:
    """One JSON line."""
    return msgspec.json.encode(control) + b"\n"


def decode_control(line: bytes) -> Control:
    """Raises msgspec.DecodeError when the line is no control message."""
    return _decoder.decode(line)
