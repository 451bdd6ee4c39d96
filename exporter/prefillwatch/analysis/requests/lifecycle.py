"""The life of one request, as a table of states and events, and the verdict on how it ended.

The table is the whole truth about what may follow what: an event that has no entry in the present state is an error
of the reporter, and is raised instead of guessed around. Where records were lost the state is BLIND,
and where the observer came later than the request it is RESUMED: the request lives, but whether its first token has
passed is unknown, so it counts neither as in prefill nor as decoding until an event shows it, and a token that is the
first one seen gives no TTFT. A request that is reported again after a loss is RESUMED too.
"""

from __future__ import annotations

import enum
from types import MappingProxyType
from typing import Final, Literal, TypeAlias, get_args

from prefillwatch.wire.tap import Finish


class State(enum.IntEnum):
    RECEIVING = 0  # its head is known, its body is still coming
    RECEIVED = 1  # complete, not yet handed to upstream
    SENT = 2  # handed to upstream: in prefill, or waiting for it
    ANSWERED = 3  # the response head came, but no token: still in prefill
    DECODING = 4
    BLIND = 5  # records were lost: tokens may have passed unseen
    RESUMED = 6  # older than this observer: what is reported of it may be old news
    DONE = 7


class Event(enum.IntEnum):
    REQUEST_END = 0  # its last byte was received; TTFT starts
    SENT = 1  # handed to upstream; a second time when it is retried
    RESPONSE = 2  # the response head was read
    FIRST_TOKEN = 3
    TOKEN = 4  # any later one
    HOLE = 5  # records of this request may have been lost
    END = 6  # the exchange is over
    REPORTED_AGAIN = 7  # after a loss the relay reports how far it is


_S, _E = State, Event
#: (state, event) -> next state.
TRANSITIONS: Final = MappingProxyType(
    {
        (_S.RECEIVING, _E.REQUEST_END): _S.RECEIVED,
        (_S.RECEIVING, _E.HOLE): _S.BLIND,
        (_S.RECEIVING, _E.END): _S.DONE,  # the client left, or we refused it
        (_S.RECEIVED, _E.SENT): _S.SENT,
        (_S.RECEIVED, _E.RESPONSE): _S.ANSWERED,  # early: upstream had not taken all of it yet
        (_S.RECEIVED, _E.HOLE): _S.BLIND,
        (_S.RECEIVED, _E.END): _S.DONE,  # no connection to upstream
        (_S.SENT, _E.SENT): _S.SENT,  # retried: a reused connection died before a byte came
        (_S.SENT, _E.RESPONSE): _S.ANSWERED,
        (_S.SENT, _E.HOLE): _S.BLIND,
        (_S.SENT, _E.END): _S.DONE,
        (_S.ANSWERED, _E.SENT): _S.SENT,  # retried: upstream refused our version of the body
        (_S.ANSWERED, _E.FIRST_TOKEN): _S.DECODING,
        (_S.ANSWERED, _E.HOLE): _S.BLIND,
        (_S.ANSWERED, _E.END): _S.DONE,
        (_S.DECODING, _E.TOKEN): _S.DECODING,
        (_S.DECODING, _E.HOLE): _S.DECODING,
        (_S.DECODING, _E.END): _S.DONE,
        **{
            (state, _E.REPORTED_AGAIN): _S.RESUMED
            for state in (_S.RECEIVING, _S.RECEIVED, _S.SENT, _S.ANSWERED, _S.BLIND)
        },
        (_S.DECODING, _E.REPORTED_AGAIN): _S.DECODING,
        (_S.RESUMED, _E.REPORTED_AGAIN): _S.RESUMED,
        # Nothing was lost after the hole, so what is reported now has just happened, and tokens come after it.
        (_S.BLIND, _E.REQUEST_END): _S.RECEIVED,
        (_S.BLIND, _E.SENT): _S.SENT,
        (_S.BLIND, _E.RESPONSE): _S.ANSWERED,
        (_S.BLIND, _E.FIRST_TOKEN): _S.DECODING,
        (_S.BLIND, _E.TOKEN): _S.DECODING,
        (_S.BLIND, _E.HOLE): _S.BLIND,
        (_S.BLIND, _E.END): _S.DONE,
        # A response head may be reported again to an observer that comes later; the end of the body is reported once.
        (_S.RESUMED, _E.REQUEST_END): _S.RECEIVED,
        (_S.RESUMED, _E.SENT): _S.RESUMED,
        (_S.RESUMED, _E.RESPONSE): _S.RESUMED,
        (_S.RESUMED, _E.FIRST_TOKEN): _S.DECODING,
        (_S.RESUMED, _E.TOKEN): _S.DECODING,
        (_S.RESUMED, _E.HOLE): _S.RESUMED,
        (_S.RESUMED, _E.END): _S.DONE,
    }
)


#: The same as a list by state of lists by event. It is asked five times per request, and enums are slow keys.
_NEXT: Final = tuple(tuple(TRANSITIONS.get((state, event)) for event in Event) for state in State)
# To look a member of an enum up takes as long as all else that an event does.
_REQUEST_END: Final = Event.REQUEST_END
_FIRST_TOKEN: Final = Event.FIRST_TOKEN
_ANSWERED: Final = State.ANSWERED
_DECODING: Final = State.DECODING


class LifecycleError(Exception):
    """An event that cannot happen in the state the request is in."""

    def __init__(self, event: Event, state: State) -> None:
        super().__init__(f"event {event.name} in state {state.name}")
        self.event = event
        self.state = state


class Lifecycle:
    """One request's state, and the two moments between which its TTFT lies. Times are monotonic nanoseconds, None until
    (or unless) they were seen."""

    __slots__ = ("first_token_ns", "received_ns", "state")

    def __init__(self, *, resumed: bool = False) -> None:
        self.state = State.RESUMED if resumed else State.RECEIVING
        self.received_ns: int | None = None
        self.first_token_ns: int | None = None

    def feed(self, event: Event, now_ns: int) -> State:
        """Go to the next state. Raises LifecycleError, and changes nothing, when the table has none."""
        state = _NEXT[self.state][event]
        if state is None:
            raise LifecycleError(event, self.state)
        if event is _REQUEST_END:
            self.received_ns = now_ns
        elif event is _FIRST_TOKEN and self.state is _ANSWERED:
            self.first_token_ns = now_ns
        self.state = state
        return state

    def token(self, now_ns: int) -> bool:
        """A token of any choice; True when it is the first of the request that was seen."""
        if self.decoding:
            return False
        self.feed(Event.FIRST_TOKEN, now_ns)
        return True

    @property
    def decoding(self) -> bool:
        return self.state is _DECODING


Outcome: TypeAlias = Literal[
    "ok", "error", "error_in_stream", "upstream_truncated", "client_closed", "empty", "rejected"
]
OUTCOMES: Final[tuple[Outcome, ...]] = get_args(Outcome)
#: Not an outcome: how it ended is not known, and nothing may be made of that.
Lost: TypeAlias = Literal["lost"]
LOST: Final = "lost"


def outcome(
    finish: Finish, status: int, generating: bool, tokens: int, error: str | None, terminal_seen: bool
) -> Outcome | Lost:
    """How an exchange ended, as its client sees it.

    ``status`` is what the client got (0: nothing), ``generating`` whether tokens were due (an endpoint that makes
    them, and max_tokens not 0), ``error`` what an error object inside the answer said, and ``terminal_seen`` whether
    the answer's own last event was passed on (``[DONE]``, ``response.completed``, ``message_stop``, or a whole JSON
    document).

    What is known first decides: a status of failure, then an error inside a 200, then a transfer broken by
    upstream (even behind the last event the client's library calls that an error) or by us. A client that leaves when
    it has the last event has all it asked for.
    """
    refused = _refusal(finish, status)
    if refused is not None:
        return refused
    if error is not None:
        return "error_in_stream"
    if finish is Finish.UPSTREAM_TRUNCATED:
        return "upstream_truncated"
    if not terminal_seen and finish in _BROKEN_OFF:
        return _BROKEN_OFF[finish]
    return "empty" if generating and tokens == 0 and 200 <= status < 300 else "ok"


#: The client left before it had its answer.
CLIENT_CLOSED: Final = "client_closed"

#: Endings that only the last event's having passed makes good. A cut is our doing: neither upstream's nor the client's.
_BROKEN_OFF: Final[dict[Finish, Outcome | Lost]] = {
    Finish.CLIENT_CLOSED: CLIENT_CLOSED,
    Finish.CUT: "error",
    Finish.LOST: LOST,
}


def _refusal(finish: Finish, status: int) -> Outcome | None:
    """The verdict where no answer was begun, or one that the status already calls a failure."""
    if finish is Finish.REJECTED or 400 <= status < 500 or status == 501:
        return "rejected"
    if finish is Finish.UPSTREAM_UNREACHABLE or status >= 500:
        return "error"
    return None
