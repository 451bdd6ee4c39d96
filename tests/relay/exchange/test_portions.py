"""What upstream sends is taken in portions, each of which is short for the streams of others."""

from __future__ import annotations

from tests.relay.peers import LAST_CHUNK, STREAM_HEAD, chunk, get, post

from prefillwatch.relay.exchange.commands import Over, ToClient
from prefillwatch.relay.exchange.core import ExchangeCore, Policy
from prefillwatch.relay.framing import MOST_CHUNKS
from prefillwatch.relay.http_head import parse_request

HINT = b"HTTP/1.1 103 Early Hints\r\nLink: </%d>\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def waiting(request: bytes) -> ExchangeCore:
    """An exchange whose request is on its way."""
    head = request[: request.index(b"\r\n\r\n") + 4]
    core = ExchangeCore(parse_request(head), Policy(wall_clock=lambda: 1e9))
    core.open(1)
    core.complete(0, 2)
    core.connected(injected=False)
    return core


def portions(core: ExchangeCore, data: bytes) -> list[list[bytes]]:
    """What the client gets in each turn of the loop."""
    found = [core.read(data, 3)]
    while core.is_behind:
        found.append(core.read(b"", 3))
    return [[command.data for command in commands if isinstance(command, ToClient)] for commands in found]


def test_interim_answers_without_end_pass_a_few_at_a_time() -> None:
    hints = [HINT % number for number in range(100)]
    got = portions(waiting(get()), b"".join(hints) + OK)
    assert [data for datas in got for data in datas] == [*hints, OK]
    assert max(map(len, got)) <= 16


def test_an_interim_answer_that_ends_in_the_next_read_is_not_waited_for_twice() -> None:
    core = waiting(get())
    assert portions(core, b"".join(HINT % number for number in range(16)) + b"HTTP/1.1 1") != []
    assert not core.is_behind
    assert portions(core, b"03 x\r\n\r\n" + OK) == [[b"HTTP/1.1 103 x\r\n\r\n", OK]]


def test_tiny_chunks_pass_some_at_a_time_and_the_fast_lane_waits_for_them() -> None:
    core = waiting(post())
    stream = STREAM_HEAD + chunk(b"x") * 5 * MOST_CHUNKS
    got = [core.read(stream, 3)]
    assert core.is_behind
    assert not core.streams_plainly
    while core.is_behind:
        got.append(core.read(b"", 3))
    assert core.streams_plainly
    assert b"".join(command.data for commands in got for command in commands if isinstance(command, ToClient)) == stream
    assert len(got) == 5
    assert portions(core, LAST_CHUNK) == [[LAST_CHUNK]]


def test_the_502_says_what_was_wrong() -> None:
    for head, words in (
        (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", b"a single 'chunked'"),
        (b"Content-Length: 1\r\nContent-Length: 1\r\n", b"Content-Length is given twice"),
        (b"X\r\n", b"A header line is malformed"),
    ):
        over = waiting(get()).read(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n", 3)[-1]
        assert isinstance(over, Over)
        assert over.words.startswith(b"HTTP/1.1 502 ")
        assert words in over.words
        assert b"\r\nDate: Sun, 09 Sep 2001 01:46:40 GMT\r\n" in over.words
