"""What the plugin inside vLLM reports of the engine's steps: JSON packets over a unix SOCK_SEQPACKET socket.

Plugin and sidecar may be of different versions: unknown fields are ignored, missing ones have defaults, and -1 stands
for what the version of vLLM does not report. No prompts and no answers; request ids only to match requests by.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

MAX_PACKET_BYTES: Final = 1 << 17


#: -1: not reported. More than this is nonsense, whatever the plugin meant, and arithmetic with it could fail.
_Count = Annotated[int, Meta(ge=-1, le=1 << 48)]
_Nanoseconds = Annotated[int, Meta(ge=0, le=1 << 62)]
_Seconds = Annotated[float, Meta(ge=-1e9, le=1e9)]


class FinishedRequest(msgspec.Struct, array_like=True):
    """A request whose answer ended with this step, by the engine's own clock. Times in seconds."""

    request_id: str  # as in the answer; vLLM makes it from X-Request-Id and the name of the endpoint
    queued_s: _Seconds  # in the scheduler's queue only; requests also wait before it
    prefill_s: _Seconds  # scheduled for the first time until first token
    prompt_tokens: _Count = 0
    cached_tokens: _Count = 0
    preemptions: _Count = 0


class StepReport(msgspec.Struct, omit_defaults=True):
    """What one API server knows of one engine step. Times are of the monotonic clock of the machine."""

    engine: _Count
    end_ns: _Nanoseconds  # when its output was ready, as near as can be known
    taken_ns: _Nanoseconds  # when the API server took the output in
    duration_ns: _Nanoseconds = 0  # since the step before; 0: unknown
    is_step: bool = True  # False: another API server reports the step itself, this is only about our own requests
    prefill_tokens: _Count = -1
    prefill_requests: _Count = -1
    decode_requests: _Count = -1
    decode_tokens: _Count = -1  # more than one per request: speculation, or a preempted request computed again
    gaps: list[tuple[_Seconds, _Count]] = []  # seconds since the token before, and of how many requests
    first_tokens: _Count = 0
    running: _Count = -1
    waiting: _Count = -1
    kv_usage: Annotated[float, Meta(ge=-1, le=1e6)] = -1.0
    preemptions: _Count = 0
    finished: list[FinishedRequest] = []


class Packet(msgspec.Struct, omit_defaults=True):
    """Some steps in order. ``dropped`` is the number of steps that this process could not report so far."""

    steps: list[StepReport]
    dropped: _Count = 0


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Packet)


def encode(packet: Packet) -> bytes:
    return _encoder.encode(packet)


def decode(data: bytes) -> Packet:
    """Raises msgspec.DecodeError when the bytes are no packet."""
    return _decoder.decode(data)
