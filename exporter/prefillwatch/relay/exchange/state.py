"""The life of one exchange, as a table of states and events.

The table is the whole truth about what may follow what. An event without an entry in the present state is a fault of
ours: it is raised, which ends this one exchange and leaves all others alone.

The table follows the answer. How much of the request has been handed to upstream is a second story, told by `Sending`:
it overlaps with most of these states, since upstream may answer before it has taken the request.
"""

from __future__ import annotations

import enum
from types import MappingProxyType
from typing import Final

from prefillwatch.relay.errors import StateError


class State(enum.IntEnum):
    RECEIVING = 0  # the request's head is known, its body is still coming
    CONNECTING = 1  # the request is complete, and a connection to upstream is sought
    WAITING = 2  # it is on its way or was handed over; not a byte of an answer has come
    HEAD = 3  # bytes of an answer have come, its final head is not complete; interim answers pass meanwhile
    HEAD_BLOCKED = 4  # the same, but the client's socket is full, so upstream is not read
    STREAMING = 5  # the answer passes
    BLOCKED = 6  # the same, but the client's socket is full, so upstream is not read
    ENDING = 7  # all of the answer was read and written, as far as the client's socket took it
    FLUSHING = 8  # all of the answer was read, and the client has yet to take the rest
    DONE = 9


class Event(enum.IntEnum):
    BODY = 0  # bytes of the request's body came
    REQUEST_COMPLETE = 1
    REFUSED = 2  # we answer the request ourselves
    CONNECTED = 3
    UNREACHABLE = 4  # there is no connection to be had
    SENT = 5  # all of the request was handed over
    REPEAT = 6  # it has to be sent once more, on another connection
    BYTES = 7  # of heads
    RESPONSE = 8  # the final head is complete
    DATA = 9  # bytes of the answer's body
    ANSWER_END = 10
    CLIENT_BLOCKED = 11  # the client's socket took less than it was given
    CLIENT_FREE = 12  # it has taken all
    UPSTREAM_GONE = 13  # closed or reset before the answer was complete
    MALFORMED = 14  # upstream sent what is not HTTP
    SILENT = 15  # upstream was silent for longer than is allowed
    CLIENT_ENDED = 16  # the client sends nothing more, and may wait for its answer
    CLIENT_GONE = 17
    CUT = 18  # the time for draining is over
    FAILED = 19  # a fault of ours


_S, _E = State, Event
#: An answer is due, and none of it has come or all of it has.
_MAY_WAIT: Final = (_S.RECEIVING, _S.CONNECTING, _S.WAITING, _S.HEAD, _S.HEAD_BLOCKED, _S.FLUSHING)
_ANYTIME: Final = (_E.CLIENT_GONE, _E.CUT, _E.FAILED)
#: (state, event) -> next state.
TRANSITIONS: Final = MappingProxyType(
    {
        (_S.RECEIVING, _E.BODY): _S.RECEIVING,
        (_S.RECEIVING, _E.REQUEST_COMPLETE): _S.CONNECTING,
        (_S.RECEIVING, _E.REFUSED): _S.DONE,
        (_S.CONNECTING, _E.CONNECTED): _S.WAITING,
        (_S.CONNECTING, _E.UNREACHABLE): _S.DONE,
        (_S.CONNECTING, _E.SILENT): _S.DONE,
        (_S.WAITING, _E.SENT): _S.WAITING,
        (_S.WAITING, _E.BYTES): _S.HEAD,
        (_S.WAITING, _E.REPEAT): _S.CONNECTING,  # a kept connection was dead
        (_S.WAITING, _E.UPSTREAM_GONE): _S.DONE,
        (_S.WAITING, _E.SILENT): _S.DONE,
        (_S.HEAD, _E.SENT): _S.HEAD,
        (_S.HEAD, _E.BYTES): _S.HEAD,
        (_S.HEAD, _E.RESPONSE): _S.STREAMING,
        (_S.HEAD, _E.REPEAT): _S.CONNECTING,  # upstream refused what we had added
        (_S.HEAD, _E.CLIENT_BLOCKED): _S.HEAD_BLOCKED,
        (_S.HEAD, _E.UPSTREAM_GONE): _S.DONE,
        (_S.HEAD, _E.MALFORMED): _S.DONE,
        (_S.HEAD, _E.SILENT): _S.DONE,
        (_S.HEAD_BLOCKED, _E.SENT): _S.HEAD_BLOCKED,
        (_S.HEAD_BLOCKED, _E.CLIENT_FREE): _S.HEAD,
        (_S.STREAMING, _E.SENT): _S.STREAMING,  # answered early
        (_S.STREAMING, _E.DATA): _S.STREAMING,
        (_S.STREAMING, _E.ANSWER_END): _S.ENDING,
        (_S.STREAMING, _E.CLIENT_BLOCKED): _S.BLOCKED,
        (_S.STREAMING, _E.UPSTREAM_GONE): _S.DONE,
        (_S.STREAMING, _E.MALFORMED): _S.DONE,
        (_S.STREAMING, _E.SILENT): _S.DONE,
        (_S.BLOCKED, _E.SENT): _S.BLOCKED,
        (_S.BLOCKED, _E.CLIENT_FREE): _S.STREAMING,
        (_S.ENDING, _E.CLIENT_BLOCKED): _S.FLUSHING,
        (_S.ENDING, _E.CLIENT_FREE): _S.DONE,
        (_S.FLUSHING, _E.CLIENT_FREE): _S.DONE,
    }
    | {(state, _E.CLIENT_ENDED): state for state in _MAY_WAIT}
    | {(state, event): _S.DONE for state in State if state is not _S.DONE for event in _ANYTIME}
)
#: What comes next is upstream's to send, so that its silence counts.
AWAITING_UPSTREAM: Final = frozenset((_S.CONNECTING, _S.WAITING, _S.HEAD, _S.STREAMING))
#: Upstream's connection is read.
READING: Final = frozenset((_S.WAITING, _S.HEAD, _S.STREAMING))
#: Bytes for the client come out of what is read.
PASSING: Final = frozenset((_S.HEAD, _S.STREAMING, _S.ENDING))
#: The client has to take what it was given before anything else happens.
HELD_UP: Final = frozenset((_S.HEAD_BLOCKED, _S.BLOCKED, _S.FLUSHING))


class ExchangeStateError(StateError):
    """An event that cannot happen in the state the exchange is in."""

    def __init__(self, event: Event, state: State) -> None:
        super().__init__(f"event {event.name} in state {state.name}")
        self.event = event
        self.state = state
