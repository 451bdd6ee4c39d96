"""What an exchange wants done, event by event."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.relay.peers import LAST_CHUNK, STREAM_HEAD, chunk, event, get, post
from tests.relay.playbook import (
    Exchange,
    Expected,
    Happening,
    answered,
    begin,
    client_blocked,
    client_ends,
    client_free,
    client_leaves,
    complete,
    connect,
    connected,
    ended,
    fault,
    leave,
    over,
    refused,
    rest_injection,
    sent,
    shutdown,
    silence,
    tap,
    to_client,
    unreachable,
    upstream,
    upstream_closes,
    upstream_resets,
)

from prefillwatch.relay.exchange.commands import Commands, Farewell, Leave, Over, Tell, ToClient
from prefillwatch.relay.exchange.core import OBSERVED_BYTES, ExchangeCore, Policy
from prefillwatch.relay.exchange.state import TRANSITIONS, ExchangeStateError, State
from prefillwatch.wire.tap import End, Finish, Kind, RequestHead, ResponseHead

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
HINT = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
ENDLESS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
NO = b"HTTP/1.1 400 No\r\nContent-Length: 2\r\n\r\nno"
OLD_GET = b"GET /health HTTP/1.0\r\n\r\n"
OLD_POST = b"POST /v1/completions HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}"
ASK = b"HTTP/1.1 100 Continue\r\n\r\n"
GONE, NEXT, CLOSE, CUT_OFF, RESET = (
    Farewell.GONE,
    Farewell.NEXT,
    Farewell.CLOSE,
    Farewell.BREAK_OFF,
    Farewell.RESET,
)


def asked(request: bytes = post(), *, inject: bool = False, draining: bool = False) -> Exchange:
    """The request was sent on a connection that may be a kept one, unless it must not be repeated."""
    exchange = Exchange(request, Policy(inject_usage=inject, draining=draining))
    for happening in (complete(), connected(injected=inject), sent()):
        happening(exchange.core, exchange.now)
    return exchange


def streaming(request: bytes = post(), head: bytes = STREAM_HEAD) -> Exchange:
    exchange = asked(request)
    exchange.core.read(head + chunk(event(1)), exchange.now)
    assert exchange.state is State.STREAMING
    return exchange


# A request and its answer
# ---------------------------------------------------------------------------------------------------------------------


def test_a_stream_from_its_request_to_its_end() -> None:
    head = ResponseHead(200, "text/event-stream", "", observed=True, injected=False)
    assert (
        Exchange(post())
        >> complete() << tap(Kind.REQUEST_END, (15).to_bytes(8, "little")) << connect(fresh=False)
        >> connected()
        >> sent() << tap(Kind.SENT)
        >> upstream(STREAM_HEAD) << tap(Kind.RESPONSE, head) << begin(stream=True) << to_client(STREAM_HEAD)
        >> upstream(chunk(event(1))) << to_client(chunk(event(1))) << tap(Kind.DATA, event(1))
        >> upstream(chunk(event(2)) + chunk(event(3)))
        << to_client(chunk(event(2)) + chunk(event(3))) << tap(Kind.DATA, event(2) + event(3))
        >> upstream(LAST_CHUNK) << to_client(LAST_CHUNK) << leave(keep=True)
        >> client_free() << ended(Finish.COMPLETE, 200) << over(NEXT)
    )  # fmt: skip


def test_a_whole_answer_in_one_read() -> None:
    assert (
        asked(get())
        >> upstream(OK) << tap(Kind.RESPONSE) << begin(stream=False) << to_client(OK) << leave(keep=True)
        >> client_free() << ended(Finish.COMPLETE, 200) << over(NEXT)
    )  # fmt: skip


def test_any_cuts_of_an_answer_give_the_same_bytes_and_end() -> None:
    answer = HINT + STREAM_HEAD + chunk(event(1)) + chunk("data: 好\n\n".encode()) + LAST_CHUNK
    for cut in range(1, len(answer)):
        exchange, passed = asked(), b""
        for part in (answer[:cut], answer[cut:]):
            for command in exchange.core.read(part, exchange.now):
                if isinstance(command, ToClient):
                    passed += command.data
                elif isinstance(command, Tell):
                    exchange.told.append(command)
        assert passed == answer
        assert exchange.payload() == event(1) + "data: 好\n\n".encode()
        assert exchange.state is State.ENDING


def test_interim_heads_pass_but_not_the_one_that_is_ours() -> None:
    assert asked(get()) >> upstream(ASK + HINT) << to_client(HINT)
    assert asked(OLD_GET) >> upstream(ASK + HINT)  # an old client knows none


def test_a_client_of_http_1_0_gets_no_chunks_and_a_close() -> None:
    exchange = asked(OLD_POST) >> upstream(STREAM_HEAD + chunk(event(1)) + LAST_CHUNK)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    assert (
        exchange << tap(Kind.RESPONSE) << begin(stream=True) << to_client(head + event(1)) << tap(Kind.DATA, event(1))
        << leave(keep=True)
        >> client_free() << ended(Finish.COMPLETE, 200) << over(CLOSE)
    )  # fmt: skip


def test_while_draining_no_client_is_kept() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n"
    assert (
        asked(get(), draining=True)
        >> upstream(OK) << tap(Kind.RESPONSE) << begin(stream=False) << to_client(head + b"ok") << leave(keep=True)
        >> client_free() << ended(Finish.COMPLETE, 200) << over(CLOSE)
    )  # fmt: skip


def test_an_answer_that_ends_with_its_connection_is_complete_then() -> None:
    assert (
        asked()
        >> upstream(ENDLESS + event(1)) << tap(Kind.RESPONSE) << begin(stream=True)
        << to_client(ENDLESS[:-2] + b"Connection: close\r\n\r\n" + event(1)) << tap(Kind.DATA, event(1))
        >> upstream_closes() << leave()
        >> client_free() << ended(Finish.COMPLETE, 200) << over(CLOSE)
    )  # fmt: skip


def test_bytes_beyond_the_end_are_nobodys_and_the_connection_is_not_used_again() -> None:
    assert (
        asked(get())
        >> upstream(OK + b"HTTP/1.1 200 OK\r\nX-Forged: 1\r\n\r\n")
        << tap(Kind.RESPONSE) << begin(stream=False) << to_client(OK) << leave(keep=False)
    )  # fmt: skip


def test_an_answer_that_comes_before_the_request_was_taken_is_told_without_sent() -> None:
    exchange = Exchange(post())
    for happening in (complete(), connected()):
        happening(exchange.core, exchange.now)
    exchange.core.read(STREAM_HEAD, exchange.now)
    assert exchange >> sent()
    assert exchange.state is State.STREAMING


# What the tap is told
# ---------------------------------------------------------------------------------------------------------------------


def test_of_other_endpoints_the_observer_sees_heads_only() -> None:
    exchange = Exchange(post("/v1/files"))
    assert [tell.kind for tell in exchange.told] == [Kind.REQUEST]
    assert (
        exchange >> complete() << tap(Kind.REQUEST_END) << connect(fresh=True)
        >> connected() >> sent() << tap(Kind.SENT)
        >> upstream(OK) << tap(Kind.RESPONSE, ResponseHead(200, "", "", observed=False)) << begin(stream=False)
        << to_client(OK) << leave(keep=True)
    )  # fmt: skip


def test_of_a_large_body_the_observer_is_shown_a_part() -> None:
    exchange = Exchange(post(), receive=False)
    half = b"x" * (OBSERVED_BYTES // 2 + 1)
    assert (
        exchange
        >> (lambda core, now: core.body(half, now)) << tap(Kind.REQUEST_BODY, half)
        >> (lambda core, now: core.body(half, now)) << tap(Kind.REQUEST_BODY, half[:-2])
        >> (lambda core, now: core.body(half, now))
    )  # fmt: skip


def test_a_new_observer_is_told_what_is_running() -> None:
    waiting, running = asked(), streaming()
    (told,) = waiting.core.announce(7, 5)
    assert isinstance(told, Tell)
    assert isinstance(told.payload, RequestHead)
    assert told.payload.resumed
    assert told.payload.received_ns == waiting.core.received_ns
    assert [told.kind for told in running.core.announce(7, 5) if isinstance(told, Tell)] == [
        Kind.REQUEST,
        Kind.RESPONSE,
    ]


# Sending again
# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dies", [upstream_closes, upstream_resets])
def test_a_kept_connection_that_was_dead_costs_another_try(dies: object) -> None:
    assert (
        asked(get())
        >> dies(may_repeat=True) << leave() << connect(fresh=True, again=True)  # type: ignore[operator]
        >> connected() >> sent() << tap(Kind.SENT)
        >> upstream(OK) << tap(Kind.RESPONSE) << begin(stream=False) << to_client(OK) << leave(keep=True)
    )  # fmt: skip


def test_it_is_tried_once_more_only_where_the_driver_says_that_it_may_be() -> None:
    assert (
        asked(get()) >> upstream_resets() << ended(Finish.UPSTREAM_UNREACHABLE, 502, "reset") << answered(502, "reset")
    )


@pytest.mark.parametrize("came", [b"H", ASK, HINT])
def test_nothing_is_repeated_once_a_byte_has_come(came: bytes) -> None:
    exchange = asked(get())
    exchange.core.read(came, exchange.now)
    assert (
        exchange >> upstream_resets(may_repeat=True)
        << ended(Finish.UPSTREAM_UNREACHABLE, 502, "reset") << answered(502, "reset")
    )  # fmt: skip


@pytest.mark.parametrize("status", [400, 422])
def test_a_refusal_of_what_we_added_is_mended_and_injection_rests(status: int) -> None:
    passed = STREAM_HEAD + chunk(event(1))
    assert (
        asked(inject=True)
        >> upstream(b"HTTP/1.1 %d No\r\nContent-Length: 2\r\n\r\nno" % status)
        << leave(abort=True) << connect(fresh=True, inject=False)
        >> connected() >> sent() << tap(Kind.SENT)
        >> upstream(passed)
        << rest_injection() << tap(Kind.RESPONSE) << begin(stream=True) << to_client(passed) << tap(Kind.DATA, event(1))
    )  # fmt: skip


def test_a_request_that_is_refused_without_it_too_has_its_own_fault() -> None:
    assert (
        asked(inject=True)
        >> upstream(NO) << leave(abort=True) << connect(fresh=True, inject=False)
        >> connected() >> sent() << tap(Kind.SENT)
        >> upstream(NO) << tap(Kind.RESPONSE) << begin(stream=False) << to_client(NO) << leave(keep=True)
    )  # fmt: skip


def test_what_was_added_is_added_again_when_a_kept_connection_was_dead() -> None:
    assert (
        asked(inject=True)
        >> upstream_resets(may_repeat=True) << leave() << connect(fresh=True, inject=True, again=True)
    )  # fmt: skip


# The client's socket
# ---------------------------------------------------------------------------------------------------------------------


def test_a_blocked_client_holds_up_its_stream_and_both_ends_of_that_are_told() -> None:
    assert (
        streaming()
        >> client_blocked() << tap(Kind.BLOCKED)
        >> client_free() << tap(Kind.UNBLOCKED)
        >> upstream(LAST_CHUNK) << to_client(LAST_CHUNK) << leave(keep=True)
        >> client_blocked() << tap(Kind.BLOCKED)
        >> client_free() << tap(Kind.UNBLOCKED) << ended(Finish.COMPLETE, 200) << over(NEXT)
    )  # fmt: skip


def test_interim_heads_can_block_too() -> None:
    exchange = asked()
    exchange.core.read(HINT, exchange.now)
    assert exchange >> client_blocked() << tap(Kind.BLOCKED) >> client_free() << tap(Kind.UNBLOCKED)
    assert exchange.state is State.HEAD


ENDS_EARLY: dict[str, tuple[Exchange, tuple[Expected, ...]]] = {
    "while a connection is sought": (Exchange(post()), (to_client(ASK),)),
    "while it waits": (asked(), (to_client(ASK),)),
    "while it waits for what is no generation": (asked(get()), (to_client(ASK),)),
    "amid its answer": (streaming(), (ended(Finish.CLIENT_CLOSED, 200), over(GONE))),
    "a generation for HTTP/1.0": (asked(OLD_POST), (ended(Finish.CLIENT_CLOSED), over(GONE))),
    "anything else for HTTP/1.0": (asked(OLD_GET), ()),
}


@pytest.mark.parametrize("case", ENDS_EARLY)
def test_a_client_that_sends_no_more_is_asked_or_has_left(case: str) -> None:
    exchange, expected = ENDS_EARLY[case]
    if exchange.state is State.RECEIVING:
        exchange.core.complete(15, exchange.now)
    play = exchange >> client_ends()
    for each in expected:
        play = play << each
    assert play


def test_a_client_that_sends_no_more_while_its_body_waits_for_room_is_asked_too() -> None:
    assert Exchange(post(), receive=False) >> client_ends() << to_client(ASK)
    assert (
        Exchange(OLD_POST, receive=False) >> client_ends() << ended(Finish.CLIENT_CLOSED) << over(GONE)
    )  # fmt: skip


# Ends
# ---------------------------------------------------------------------------------------------------------------------

UNREACHABLE = [("connect", 502), ("timeout", 502), ("tls", 502), ("no_descriptors", 503)]


@pytest.mark.parametrize(("reason", "status"), UNREACHABLE)
def test_without_a_connection_the_client_is_told_why(reason: str, status: int) -> None:
    finish = Finish.UPSTREAM_UNREACHABLE if status == 502 else Finish.REJECTED
    assert (
        Exchange(post())
        >> complete() << tap(Kind.REQUEST_END) << connect(fresh=False)
        >> unreachable(reason) << ended(finish, status, reason) << answered(status, reason)
    )  # fmt: skip


def test_a_refused_request() -> None:
    assert (
        Exchange(post(), receive=False)
        >> refused(413, "body_too_large")
        << ended(Finish.REJECTED, 413, "body_too_large") << answered(413, "body_too_large")
    )  # fmt: skip


BROKEN = [
    b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
    b"HTTP/2 200 OK\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
    b"HTTP/1.1 200 OK\nContent-Length: 0\n\n",
    b"HTTP/1.1 200 OK\r\nX: " + b"x" * 300_000,
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nContent-Length 5\r\n\r\n",
    STREAM_HEAD + b"no chunk\r\n",
]


@pytest.mark.parametrize("answer", BROKEN)
def test_what_is_not_http_becomes_a_502_as_long_as_nothing_has_left(answer: bytes) -> None:
    assert (
        asked()
        >> upstream(answer) << ended(Finish.UPSTREAM_UNREACHABLE, 502, "malformed") << answered(502, "malformed")
    )  # fmt: skip


#: A request, the head of its answer, and what is left to do when that breaks off, so that it does not look whole.
LOOKS: dict[str, tuple[bytes, bytes, Farewell]] = {
    "chunks": (post(), STREAM_HEAD, CUT_OFF),
    "a length": (post(), b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n", CUT_OFF),
    "a close": (post(), ENDLESS, RESET),
    "chunks for HTTP/1.0": (OLD_POST, STREAM_HEAD, RESET),
}
BREAKS: dict[str, tuple[Happening, Finish, str]] = {
    "reset": (upstream_resets(), Finish.UPSTREAM_TRUNCATED, "reset"),
    "silence": (silence(), Finish.UPSTREAM_TRUNCATED, "idle_limit"),
    "shutdown": (shutdown(), Finish.CUT, "drain"),
    "fault": (fault(), Finish.CUT, "internal"),
}


@pytest.mark.parametrize("breaks", BREAKS)
@pytest.mark.parametrize("looks", LOOKS)
def test_an_answer_that_breaks_off_does_not_look_complete(looks: str, breaks: str) -> None:
    request, head, farewell = LOOKS[looks]
    happening, finish, reason = BREAKS[breaks]
    assert streaming(request, head) >> happening << ended(finish, 200, reason) << over(farewell)


def test_chunks_that_are_malformed_break_an_answer_off() -> None:
    assert (
        streaming() >> upstream(b"5\r\nabcdeXX\r\n")
        << ended(Finish.UPSTREAM_TRUNCATED, 200, "malformed") << over(CUT_OFF)
    )  # fmt: skip


def test_a_client_that_leaves_is_told_to_nobody_but_the_tap() -> None:
    assert streaming() >> client_leaves() << ended(Finish.CLIENT_CLOSED, 200) << over(GONE)


# Whatever happens
# ---------------------------------------------------------------------------------------------------------------------

ANYTHING: tuple[Happening, ...] = (
    complete(), connected(), unreachable(), sent(), upstream(HINT), upstream(STREAM_HEAD), upstream(chunk(event(1))),
    upstream(LAST_CHUNK), upstream(OK), upstream(b"junk\r\n\r\n"), upstream_closes(), upstream_closes(may_repeat=True),
    upstream_resets(), silence(), client_blocked(), client_free(), client_ends(), client_leaves(), shutdown(), fault(),
)  # fmt: skip


@given(st.integers(0, 2**32 - 1), st.sampled_from([post(), get(), OLD_POST]))
def test_whatever_happens_an_exchange_ends_once_and_all_that_follows_is_refused(seed: int, request: bytes) -> None:
    chance = random.Random(seed)
    exchange = Exchange(request)
    done: Commands = []
    refusals: list[tuple[ExchangeStateError, State, State]] = []
    for _ in range(60):
        before = exchange.state
        try:
            commands = chance.choice(ANYTHING)(exchange.core, exchange.now)
        except ExchangeStateError as error:
            refusals.append((error, before, exchange.state))
            continue
        assert before is not State.DONE
        done += commands
        overs = [command for command in done if isinstance(command, Over)]
        ends = [command for command in done if isinstance(command, Tell) and isinstance(command.payload, End)]
        assert len(overs) == len(ends) == (exchange.state is State.DONE)
    for refusal, before, after in refusals:
        assert before is after is refusal.state
        assert (before, refusal.event) not in TRANSITIONS
    left = [command for command in done if isinstance(command, Leave)]
    assert all(not (command.keep and command.abort) for command in left)
    assert not overs or done[-1] is overs[0]


def test_the_core_has_no_way_around_its_table() -> None:
    exchange = streaming()
    with pytest.raises(ExchangeStateError, match="event CONNECTED in state STREAMING"):
        exchange.core.connected(injected=False)
    assert isinstance(exchange.core, ExchangeCore)
    assert exchange.state is State.STREAMING
