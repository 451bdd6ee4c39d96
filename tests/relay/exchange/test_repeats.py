"""When a request is sent again because a kept connection had died."""

from __future__ import annotations

import pytest
from tests.relay.peers import get, post
from tests.relay.playbook import (
    Exchange,
    answered,
    begin,
    complete,
    connect,
    connected,
    ended,
    leave,
    tap,
    to_client,
    unreachable,
    upstream,
    upstream_closes,
    upstream_resets,
)

from prefillwatch.wire.tap import Finish, Kind

RESPONSES = post("/v1/responses")
DIED = ended(Finish.UPSTREAM_UNREACHABLE, 502, "reset")
REFUSED = ended(Finish.REJECTED, 503, "no_descriptors")


def waiting(request: bytes, *, fresh: bool, injected: bool = False) -> Exchange:
    asked = Exchange(request) >> complete() << tap(Kind.REQUEST_END) << connect(fresh=fresh)
    return asked >> connected(injected=injected)


@pytest.mark.parametrize("end", [upstream_resets, upstream_closes])
def test_what_is_idempotent_goes_again_however_its_connection_ended(end: object) -> None:
    assert waiting(get(), fresh=False) >> end(may_repeat=True) << leave() << connect(fresh=True, again=True)  # type: ignore[operator]


def test_a_prompt_goes_again_where_it_cannot_have_been_read() -> None:
    assert (
        waiting(post(), fresh=False) >> upstream_resets(may_repeat=True) << leave() << connect(fresh=True, again=True)
    )


@pytest.mark.parametrize(
    ("request_bytes", "end"),
    [
        (post(), upstream_closes(may_repeat=True)),  # it was read
        (post(), upstream_resets(may_repeat=False)),  # its connection was new, or it has been on its way for long
        (RESPONSES, upstream_resets(may_repeat=True)),
    ],
)
def test_else_the_client_is_told(request_bytes: bytes, end: object) -> None:
    exchange = waiting(request_bytes, fresh=request_bytes is RESPONSES)
    assert exchange >> end << DIED << answered(502, "reset")  # type: ignore[operator]


def test_want_of_descriptors_is_our_own_matter() -> None:
    exchange = Exchange(post()) >> complete() << tap(Kind.REQUEST_END) << connect(fresh=False)
    assert exchange >> unreachable("no_descriptors") << REFUSED << answered(503, "no_descriptors")


def test_a_refusal_of_what_was_added_is_passed_on_where_the_original_had_to_go() -> None:
    refusal = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"
    exchange = waiting(post(), fresh=False, injected=True)
    assert exchange >> upstream(refusal) << leave(abort=True) << connect(fresh=True)
    exchange = waiting(post(), fresh=False, injected=True)
    exchange >> (lambda core, now: core.read(refusal, now, may_resend=False))
    assert exchange << tap(Kind.RESPONSE) << begin(stream=False) << to_client(refusal) << leave(keep=True)
