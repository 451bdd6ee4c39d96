"""What goes wrong in a relay: a peer's bytes, which end in an answer to the client, and faults of ours, which end one
exchange. Files of TLS and descriptors raise OSError, as the system does."""

from __future__ import annotations

from prefillwatch.wire.reasons import RelayReason


class MessageError(ValueError):
    """A peer sent what is not HTTP/1.1 as we take it."""


class HeadError(MessageError):
    """A head that is refused. ``status`` is the answer a client gets for it, ``reason`` why."""

    def __init__(self, status: int, reason: RelayReason, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


class FramingError(MessageError):
    """Bytes that are no chunked body."""


class BodyTooLargeError(MessageError):
    """More bytes came than a request may have."""


class WastefulChunksError(BodyTooLargeError):
    """More bytes of framing came than the payload needs."""


class StateError(Exception):
    """A fault of ours: something that cannot happen in the present state. `ExchangeStateError` and `ClientStateError`
    say what."""
