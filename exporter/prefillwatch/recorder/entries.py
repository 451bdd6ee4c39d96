"""Payloads of the entries that do not come from the tap."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from prefillwatch.core.learned import Learned
from prefillwatch.engine.gpu_memory import GpuMemory
from prefillwatch.engine.kinds import PageSample
from prefillwatch.engine.step_report import StepReport
from prefillwatch.recorder.chunks import Kind
from prefillwatch.settings.control import Restarts


class Step(msgspec.Struct, frozen=True, array_like=True):
    link: int
    report: StepReport


class Upstream(msgspec.Struct, frozen=True, array_like=True):
    """How reading upstream's metrics goes; the duration in seconds."""

    success: bool | None
    duration: float | None
    failures: dict[str, int]


class Link(msgspec.Struct, frozen=True, array_like=True):
    connected: int
    dropped: int
    unreadable: int


class Control(msgspec.Struct, frozen=True, array_like=True):
    draining: bool
    restarts: Restarts


_TYPES: Final[dict[int, Any]] = {
    Kind.PAGE: PageSample,
    Kind.MODELS: tuple[str, ...],
    Kind.UP: bool,
    Kind.STEP: Step,
    Kind.UPSTREAM: Upstream,
    Kind.GPUS: dict[str, GpuMemory],
    Kind.CONTROL: Control,
    Kind.LINK: Link,
    Kind.LEARNED: Learned,
}
_encoder = msgspec.msgpack.Encoder()
_decoders = {kind: msgspec.msgpack.Decoder(type_) for kind, type_ in _TYPES.items()}

encode = _encoder.encode


def decode(kind: int, payload: bytes) -> Any:
    """Raises msgspec.DecodeError."""
    return _decoders[kind].decode(payload)
