"""The table, and every way out of every state of it."""

from __future__ import annotations

from typing import Final

import pytest
from tests.relay.peers import STREAM_HEAD, chunk, event, post
from tests.relay.playbook import (
    Exchange,
    Happening,
    client_blocked,
    client_leaves,
    complete,
    connected,
    fault,
    shutdown,
    silence,
    upstream,
    upstream_closes,
    upstream_resets,
)

from prefillwatch.relay.exchange.commands import Farewell, Over, Tell, ToClient
from prefillwatch.relay.exchange.state import (
    AWAITING_UPSTREAM,
    HELD_UP,
    PASSING,
    READING,
    TRANSITIONS,
    Event,
    ExchangeStateError,
    State,
)
from prefillwatch.wire.tap import End, Finish

HINT = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
WHOLE = STREAM_HEAD + b"0\r\n\r\n"
#: What happens up to a state.
WAY: Final[dict[State, tuple[Happening, ...]]] = {
    State.RECEIVING: (),
    State.CONNECTING: (complete(),),
    State.WAITING: (complete(), connected()),
    State.HEAD: (complete(), connected(), upstream(HINT)),
    State.HEAD_BLOCKED: (complete(), connected(), upstream(HINT), client_blocked()),
    State.STREAMING: (complete(), connected(), upstream(STREAM_HEAD + chunk(event(1)))),
    State.BLOCKED: (complete(), connected(), upstream(STREAM_HEAD + chunk(event(1))), client_blocked()),
    State.ENDING: (complete(), connected(), upstream(WHOLE)),
    State.FLUSHING: (complete(), connected(), upstream(WHOLE), client_blocked()),
    State.DONE: (complete(), connected(), client_leaves()),
}
#: How an exchange may be ended from outside.
CANCELLED: Final[dict[str, Happening]] = {
    "client gone": client_leaves(),
    "upstream closes": upstream_closes(),
    "upstream resets": upstream_resets(),
    "deadline": silence(),
    "shutdown": shutdown(),
    "fault of ours": fault(),
}
Ending = tuple[Finish, int, str, Farewell]
GONE, CLOSE, RESET, CUT_OFF = Farewell.GONE, Farewell.CLOSE, Farewell.RESET, Farewell.BREAK_OFF
LEFT, DEAD, SHORT, CUT = (
    Finish.CLIENT_CLOSED,
    Finish.UPSTREAM_UNREACHABLE,
    Finish.UPSTREAM_TRUNCATED,
    Finish.CUT,
)
#: By state and by what happens in the order of CANCELLED: how it ends (finish, status, reason, what becomes of the
#: client's connection); None: it cannot happen there, since nobody listens to upstream or none is there.
ENDINGS: Final[dict[State, tuple[Ending | None, ...]]] = {
    State.RECEIVING: (
        (LEFT, 0, "", GONE), None, None, None,
        (CUT, 0, "drain", RESET), (CUT, 0, "internal", RESET),
    ),
    State.CONNECTING: (
        (LEFT, 0, "", GONE), None, None, (DEAD, 504, "idle_limit", CLOSE),
        (CUT, 0, "drain", RESET), (CUT, 0, "internal", RESET),
    ),
    State.WAITING: (
        (LEFT, 0, "", GONE), (DEAD, 502, "reset", CLOSE), (DEAD, 502, "reset", CLOSE),
        (DEAD, 504, "idle_limit", CLOSE), (CUT, 0, "drain", RESET), (CUT, 0, "internal", RESET),
    ),
    State.HEAD: (
        (LEFT, 0, "", GONE), (DEAD, 502, "reset", CLOSE), (DEAD, 502, "reset", CLOSE),
        (DEAD, 504, "idle_limit", CLOSE), (CUT, 0, "drain", RESET), (CUT, 0, "internal", RESET),
    ),
    State.HEAD_BLOCKED: (
        (LEFT, 0, "", GONE), None, None, None,
        (CUT, 0, "drain", RESET), (CUT, 0, "internal", RESET),
    ),
    State.STREAMING: (
        (LEFT, 200, "", GONE), (SHORT, 200, "closed", CUT_OFF), (SHORT, 200, "reset", CUT_OFF),
        (SHORT, 200, "idle_limit", CUT_OFF), (CUT, 200, "drain", CUT_OFF), (CUT, 200, "internal", CUT_OFF),
    ),
    State.BLOCKED: (
        (LEFT, 200, "", GONE), None, None, None,
        (CUT, 200, "drain", CUT_OFF), (CUT, 200, "internal", CUT_OFF),
    ),
    State.ENDING: (
        (LEFT, 200, "", GONE), None, None, None,
        (CUT, 200, "drain", CUT_OFF), (CUT, 200, "internal", CUT_OFF),
    ),
    State.FLUSHING: (
        (LEFT, 200, "", GONE), None, None, None,
        (CUT, 200, "drain", CUT_OFF), (CUT, 200, "internal", CUT_OFF),
    ),
    State.DONE: (None, None, None, None, None, None),
}  # fmt: skip


def brought_to(state: State) -> Exchange:
    exchange = Exchange(post(), receive=state is not State.RECEIVING)
    for happening in WAY[state]:
        happening(exchange.core, exchange.now)
    assert exchange.state is state
    return exchange


@pytest.mark.parametrize("how", CANCELLED)
@pytest.mark.parametrize("state", State)
def test_every_end_in_every_state(state: State, how: str) -> None:
    exchange, expected = brought_to(state), dict(zip(CANCELLED, ENDINGS[state], strict=True))[how]
    if expected is None:
        with pytest.raises(ExchangeStateError, match=f"in state {state.name}"):
            CANCELLED[how](exchange.core, 7)
        assert exchange.state is state
        return
    *_, told, last = CANCELLED[how](exchange.core, 7)
    finish, status, reason, farewell = expected
    assert isinstance(told, Tell)
    assert told.payload == End(finish, status, reason)
    assert isinstance(last, Over)
    assert last.farewell is farewell
    assert bool(last.words) == (farewell is Farewell.CLOSE)
    assert exchange.state is State.DONE


@pytest.mark.parametrize("event", Event)
@pytest.mark.parametrize("state", State)
def test_what_the_table_lacks_is_an_error_and_changes_nothing(state: State, event: Event) -> None:
    exchange = brought_to(state)
    if (state, event) in TRANSITIONS:
        exchange.core._fire(event)
        assert exchange.state is TRANSITIONS[state, event]
        return
    with pytest.raises(ExchangeStateError) as raised:
        exchange.core._fire(event)
    assert (raised.value.event, raised.value.state) == (event, state)
    assert exchange.state is state


def test_nothing_follows_the_end_and_every_other_state_has_one() -> None:
    assert not [event for state, event in TRANSITIONS if state is State.DONE]
    for state in set(State) - {State.DONE}:
        assert TRANSITIONS[state, Event.CLIENT_GONE] is State.DONE


def test_every_state_can_be_reached_and_every_event_happens() -> None:
    reached, queue = {State.RECEIVING}, [State.RECEIVING]
    while queue:
        state = queue.pop()
        for (before, _), after in TRANSITIONS.items():
            if before is state and after not in reached:
                reached.add(after)
                queue.append(after)
    assert reached == set(State)
    assert {event for _, event in TRANSITIONS} == set(Event)


def test_upstream_is_read_where_its_bytes_and_its_end_may_come() -> None:
    for state in State:
        may_come = any((state, event) in TRANSITIONS for event in (Event.BYTES, Event.DATA))
        assert may_come == (state in READING) == ((state, Event.UPSTREAM_GONE) in TRANSITIONS)
        assert ((state, Event.SILENT) in TRANSITIONS) == (state in AWAITING_UPSTREAM)
        assert ((state, Event.CLIENT_BLOCKED) in TRANSITIONS) == (state in PASSING)
        held = (state, Event.CLIENT_FREE) in TRANSITIONS and state is not State.ENDING
        assert held == (state in HELD_UP)


def test_a_fault_leaves_nothing_that_looks_like_an_answer() -> None:
    for state in set(State) - {State.DONE}:
        commands = fault()(brought_to(state).core, 7)
        assert not [command for command in commands if isinstance(command, ToClient)]
