"""The lives of requests as timelines, and how they end."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from prefillwatch.analysis.requests.lifecycle import (
    LOST,
    OUTCOMES,
    TRANSITIONS,
    Event,
    Lifecycle,
    LifecycleError,
    State,
    outcome,
)
from prefillwatch.units import MS, NS
from prefillwatch.wire.tap import Finish

REQUEST_END, SENT, RESPONSE, FIRST, TOKEN, HOLE, END, REPORTED_AGAIN = Event


def live(*events: tuple[int, Event], resumed: bool = False) -> Lifecycle:
    """A request to which these (millisecond, event) happened."""
    life = Lifecycle(resumed=resumed)
    for time, event in events:
        life.feed(event, time * MS)
    return life


def ttft_s(life: Lifecycle) -> float | None:
    """Seconds from the last byte received to the first token; None unless both were seen."""
    if life.received_ns is None or life.first_token_ns is None:
        return None
    return (life.first_token_ns - life.received_ns) / NS


UP_TO_PREFILL = ((10, REQUEST_END), (11, SENT))
UP_TO_DECODING = (*UP_TO_PREFILL, (30, RESPONSE), (3010, FIRST))


def test_a_streamed_answer_from_end_to_end() -> None:
    life = Lifecycle()
    seen = []
    for time, event in (*UP_TO_DECODING, (3031, TOKEN), (3052, TOKEN), (3053, END)):
        life.feed(event, time * MS)
        seen.append((life.state.name, life.decoding))
    assert seen == [
        ("RECEIVED", False),
        ("SENT", False),
        ("ANSWERED", False),
        ("DECODING", True),
        ("DECODING", True),
        ("DECODING", True),
        ("DONE", False),
    ]
    assert ttft_s(life) == 3.0, "from the last byte of the request, not from when it was handed on"


def test_there_is_one_ttft_whatever_comes_after() -> None:
    life = live(*UP_TO_DECODING)
    assert not life.token(3030 * MS)
    assert not life.token(9000 * MS)
    assert ttft_s(life) == 3.0
    with pytest.raises(LifecycleError):
        life.feed(FIRST, 9001 * MS)


def test_token_finds_out_whether_it_is_the_first() -> None:
    life = live(*UP_TO_PREFILL, (30, RESPONSE))
    assert life.token(40 * MS)
    assert not life.token(60 * MS)
    assert ttft_s(life) == 0.03


@pytest.mark.parametrize(
    "events",
    [
        [(0, END)],
        [(10, REQUEST_END), (12, END)],
        [*UP_TO_PREFILL, (500, END)],
        [*UP_TO_PREFILL, (30, RESPONSE), (500, END)],
    ],
    ids=["left while sending", "no connection to upstream", "left in prefill", "an answer without a token"],
)
def test_a_request_without_a_token_has_no_ttft(events: list[tuple[int, Event]]) -> None:
    life = live(*events)
    assert life.state is State.DONE
    assert ttft_s(life) is None
    assert not life.decoding


def test_a_retry_does_not_begin_the_ttft_again() -> None:
    life = live(*UP_TO_PREFILL, (15, SENT), (30, RESPONSE), (40, FIRST))
    assert ttft_s(life) == 0.03


def test_the_original_body_is_sent_when_upstream_refused_ours() -> None:
    life = live(*UP_TO_PREFILL, (14, RESPONSE), (15, SENT))
    assert life.state is State.SENT
    assert ttft_s(live(*UP_TO_PREFILL, (14, RESPONSE), (15, SENT), (30, RESPONSE), (40, FIRST))) == 0.03


def test_an_answer_may_come_before_upstream_has_taken_the_whole_request() -> None:
    life = live((10, REQUEST_END), (30, RESPONSE))
    assert life.state is State.ANSWERED
    assert life.token(40 * MS)
    assert ttft_s(life) == 0.03


# What was not seen


def test_lost_records_before_the_first_token_cost_the_ttft() -> None:
    life = live(*UP_TO_PREFILL, (30, RESPONSE), (40, HOLE))
    assert life.state is State.BLIND
    assert life.token(60 * MS)
    assert life.decoding
    assert ttft_s(life) is None


def test_what_is_seen_after_lost_records_puts_things_right() -> None:
    life = live(*UP_TO_PREFILL, (20, HOLE), (30, RESPONSE))
    assert life.state is State.ANSWERED
    assert life.token(40 * MS)
    assert ttft_s(life) == 0.03


def test_a_lost_request_end_gives_no_ttft() -> None:
    life = live((5, HOLE), (11, SENT), (30, RESPONSE), (40, FIRST))
    assert life.decoding
    assert ttft_s(life) is None


def test_lost_records_in_the_middle_of_decoding_change_no_state() -> None:
    life = live(*UP_TO_DECODING, (3020, HOLE))
    assert life.decoding
    assert ttft_s(life) == 3.0


@pytest.mark.parametrize("retold", [[], [(1, SENT)], [(1, SENT), (1, RESPONSE)], [(5, HOLE)]])
def test_a_request_older_than_the_observer_may_be_anywhere(retold: list[tuple[int, Event]]) -> None:
    life = live(*retold, resumed=True)
    assert life.state is State.RESUMED
    assert life.token(20 * MS)
    assert life.decoding
    assert ttft_s(life) is None
    life.feed(END, 30 * MS)


def test_a_request_still_being_received_when_the_observer_came_is_seen_in_full() -> None:
    assert ttft_s(live(*UP_TO_DECODING, resumed=True)) == 3.0


# The table


def test_a_miss_names_event_and_state_and_changes_nothing() -> None:
    life = Lifecycle()
    with pytest.raises(LifecycleError, match="event FIRST_TOKEN in state RECEIVING") as error:
        life.feed(FIRST, 0)
    assert (error.value.event, error.value.state) == (FIRST, State.RECEIVING)
    assert life.state is State.RECEIVING
    assert life.first_token_ns is None


@pytest.mark.parametrize(("state", "event"), sorted(set(itertools.product(State, Event)) - set(TRANSITIONS)))
def test_every_pair_outside_the_table_is_an_error(state: State, event: Event) -> None:
    life = Lifecycle()
    life.state = state
    with pytest.raises(LifecycleError):
        life.feed(event, 0)
    assert life.state is state


def test_every_life_can_end_and_nothing_follows_the_end() -> None:
    assert {state for state, event in TRANSITIONS if event is END} == set(State) - {State.DONE}
    assert not [event for state, event in TRANSITIONS if state is State.DONE]


def test_a_thousand_aborts_leave_nothing_in_flight() -> None:
    """Clients leave before the head, at the first byte, in the middle, at the end; upstream fails."""
    full = [*UP_TO_DECODING, (3031, TOKEN)]
    lives = [live(*full[: i % (len(full) + 1)]) for i in range(1000)]
    assert sum(life.state in (State.SENT, State.ANSWERED) for life in lives) > 0
    assert sum(life.decoding for life in lives) > 0
    for life in lives:
        life.feed(END, 5000 * MS)
    assert {life.state for life in lives} == {State.DONE}


# How it ended


def ended(
    finish: Finish = Finish.COMPLETE,
    status: int = 200,
    generating: bool = True,
    tokens: int = 3,
    error: str | None = None,
    terminal: bool = True,
) -> str:
    return outcome(finish, status, generating, tokens, error, terminal)


@pytest.mark.parametrize(
    ("what", "verdict"),
    [
        ({}, "ok"),
        ({"generating": False, "tokens": 0}, "ok"),  # the list of models, or max_tokens 0
        ({"terminal": False}, "ok"),  # whole as far as bytes tell, in a dialect without a last event
        ({"status": 304, "tokens": 0}, "ok"),
        # Nothing came of it.
        ({"tokens": 0}, "empty"),
        ({"tokens": 0, "terminal": False}, "empty"),
        # The one who asked is at fault.
        ({"status": 400, "tokens": 0}, "rejected"),
        ({"status": 404, "tokens": 0}, "rejected"),
        ({"status": 501, "tokens": 0}, "rejected"),
        ({"finish": Finish.REJECTED, "status": 413, "tokens": 0}, "rejected"),
        ({"finish": Finish.REJECTED, "status": 501, "tokens": 0}, "rejected"),
        ({"finish": Finish.REJECTED, "status": 0, "tokens": 0}, "rejected"),  # gone before it could be told
        ({"status": 400, "tokens": 0, "error": "too long"}, "rejected"),
        # Upstream is.
        ({"status": 500, "tokens": 0, "error": "oops"}, "error"),
        ({"status": 503, "tokens": 0}, "error"),
        ({"finish": Finish.UPSTREAM_UNREACHABLE, "status": 502, "tokens": 0}, "error"),
        ({"finish": Finish.UPSTREAM_UNREACHABLE, "status": 0, "tokens": 0}, "error"),
        ({"finish": Finish.UPSTREAM_TRUNCATED, "status": 500, "tokens": 0}, "error"),
        ({"finish": Finish.CLIENT_CLOSED, "status": 500, "tokens": 0}, "error"),
        # A 200 that was none: three tokens, an error object, [DONE].
        ({"error": "504"}, "error_in_stream"),
        ({"tokens": 0, "error": "504"}, "error_in_stream"),
        ({"error": "504", "finish": Finish.CLIENT_CLOSED, "terminal": False}, "error_in_stream"),
        ({"error": "504", "finish": Finish.UPSTREAM_TRUNCATED, "terminal": False}, "error_in_stream"),
        # Upstream broke off: an incomplete transfer for the client even behind the last event.
        ({"finish": Finish.UPSTREAM_TRUNCATED, "terminal": False}, "upstream_truncated"),
        ({"finish": Finish.UPSTREAM_TRUNCATED, "tokens": 0, "terminal": False}, "upstream_truncated"),
        ({"finish": Finish.UPSTREAM_TRUNCATED}, "upstream_truncated"),
        # The client left.
        ({"finish": Finish.CLIENT_CLOSED, "status": 0, "tokens": 0, "terminal": False}, "client_closed"),
        ({"finish": Finish.CLIENT_CLOSED, "tokens": 0, "terminal": False}, "client_closed"),
        ({"finish": Finish.CLIENT_CLOSED, "terminal": False}, "client_closed"),
        ({"finish": Finish.CLIENT_CLOSED, "generating": False, "tokens": 0, "terminal": False}, "client_closed"),
        ({"finish": Finish.CLIENT_CLOSED}, "ok"),  # with everything it had asked for
        ({"finish": Finish.CLIENT_CLOSED, "tokens": 0}, "empty"),
        # We cut it off in the end.
        ({"finish": Finish.CUT, "terminal": False}, "error"),
        ({"finish": Finish.CUT}, "ok"),
    ],
)
def test_the_outcome(what: dict[str, Any], verdict: str) -> None:
    assert ended(**what) == verdict


def test_every_ending_has_a_verdict() -> None:
    for finish, status, generating, tokens, error, terminal in itertools.product(
        Finish, (0, 200, 204, 304, 400, 499, 500, 501, 599), (True, False), (0, 5), (None, "x"), (True, False)
    ):
        found = outcome(finish, status, generating, tokens, error, terminal)
        assert found in OUTCOMES or (finish, found) == (Finish.LOST, LOST)
