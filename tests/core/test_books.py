"""Books that are put right: what was lost, what the relay says, and what is made of it."""

from __future__ import annotations

import pytest
from tests.core.lossy import Side, answered, ended, request
from tests.core.script import CHAT, DONE, Observed, Relay, chunk, ns, stream_tokens, usage

from prefillwatch.core.view.around import relay_now
from prefillwatch.export import table
from prefillwatch.observer.api import relay_state
from prefillwatch.wire import answer
from prefillwatch.wire.in_flight import Ask, InFlight, Stage, decode_ask, encode_in_flight
from prefillwatch.wire.tap import Finish, Kind, PacketBuilder, RequestHead, encode_payload


def listed(relay: Relay, at_ms: float, *streams: int, until: int = 99, read_ms: float = 0) -> None:
    """The relay says that exactly these are in flight, all of them answered."""
    read_ns = ns(read_ms) if read_ms else 0
    told = InFlight(0, until, streams, [read_ns] * len(streams), [Stage.ANSWERED] * len(streams))
    relay.add(at_ms, 0, Kind.IN_FLIGHT, encode_in_flight(told))
    relay.flush()


def asked(observed: Observed, index: int = 0) -> list[tuple[Ask, tuple[int, ...]]]:
    packets = observed.taps.relays[index].asks(ns(observed.now_ms))
    return [(ask, streams) for ask, _, streams in map(decode_ask, packets)]


def empty(observed: Observed) -> None:
    """Nothing of any request is left anywhere."""
    ledger = observed.ledger
    queue = ledger.timeline._queue
    assert not ledger.requests
    assert not len(ledger.book)
    assert ledger.engines.decoding == 0
    assert not any(ledger._figures._decoding.values())
    assert not ledger._figures._unsized
    left = [ledger.causes.watch.open, ledger.causes.watch._owners, ledger.causes._waits._late]
    left += [ledger.causes.evidence.requests.awaiting, queue.waiting, queue.unplaced, queue.firsts]
    assert not any(left)
    assert all(prompt.is_over for prompt in queue._known.values())
    assert not [incident for incident in ledger.causes.incidents.open if incident.live]
    assert not any(observed.names._held)
    assert not any(relay.streams or relay.digest or relay.reading._expected for relay in observed.taps.relays.values())


def test_a_stream_whose_end_was_lost_is_closed_and_nothing_is_made_of_it() -> None:
    observed = Observed()
    relay = Relay(observed)
    stream = relay.request(0)
    stream_tokens(relay, stream, [100 + 20 * i for i in range(20)])
    relay.flush()
    observed.advance(500)
    relay.data(500, stream, chunk())
    relay.end(520, stream)
    relay.flush(lose=True)
    listed(relay, 2500)
    observed.advance(9000)
    assert observed.taps.relays[0].closed == 1
    assert observed.values(table.REQUESTS) == {}
    assert observed.values(table.GENERATED_TOKENS) == {("m",): 20}
    assert observed.values(table.REQUESTS_WITHIN_SLO).get(("m",), 0) == 0
    assert observed.values(table.STALLS).get(("m", "unattributed"), 0) == 0
    assert observed.history.newest([], 10) == []
    empty(observed)


def test_a_request_whose_first_token_and_end_were_lost_did_not_wait_for_ever() -> None:
    observed = Observed()
    relay = Relay(observed)
    relay.response(5, relay.request(0))
    relay.flush()
    observed.advance(300)
    relay.data(310, 1, chunk())
    relay.end(350, 1)
    relay.flush(lose=True)
    relay.add(1000, 0, Kind.HELLO)
    relay.flush()
    observed.advance(1200)
    assert asked(observed) == [(Ask.LIST, ())]
    listed(relay, 1300)
    observed.advance(20_000)
    assert observed.values(table.PREFILLING_REQUESTS) == {("m",): 0}
    assert observed.values(table.OLDEST_FIRST_TOKEN_WAIT) == {}
    assert observed.history.newest([], 10) == []
    empty(observed)


@pytest.mark.parametrize(
    ("last", "outcome"),
    [(DONE, "ok"), (b'data: {"error":{"message":"no","code":500}}\n\n', "error_in_stream")],
)
def test_an_outcome_that_is_known_counts_although_the_end_was_lost(last: bytes, outcome: str) -> None:
    observed = Observed()
    relay = Relay(observed)
    stream = relay.request(0)
    stream_tokens(relay, stream, [100, 120])
    relay.data(121, stream, last)
    relay.flush()
    listed(relay, 1000)
    observed.advance(2000)
    assert observed.values(table.REQUESTS) == {("m", "chat_completions", outcome): 1}


def test_a_stream_that_nobody_told_of_is_asked_for_and_taken_in() -> None:
    observed = Observed()
    relay = Relay(observed)
    relay.flush()
    listed(relay, 1000, 7)
    assert asked(observed) == [(Ask.REPORT, (7,))]
    head = RequestHead(
        "POST", CHAT, "application/json", resumed=True, received_ns=ns(400), stage=Stage.ANSWERED, body_size=4000
    )
    relay.add(1100, 7, Kind.REQUEST, encode_payload(head))
    relay.response(1100, 7)
    relay.flush()
    observed.advance(1400)
    assert observed.values(table.PREFILLING_REQUESTS) == {("m",): 1}
    assert observed.values(table.PREFILLING_TOKENS) == {("m",): 1000}
    assert observed.values(table.OLDEST_FIRST_TOKEN_WAIT) == {("m",): pytest.approx(1.0)}
    for at_ms in (1500, 1520):
        relay.data(at_ms, 7, chunk())
    relay.data(1521, 7, DONE)
    relay.end(1522, 7)
    relay.flush()
    observed.advance(3000)
    assert observed.values(table.REQUESTS) == {("m", "chat_completions", "ok"): 1}
    assert observed.counts(table.TIME_TO_FIRST_TOKEN) == {}
    assert observed.taps.relays[0].taken_in == 1
    empty(observed)


def test_a_packet_that_comes_after_its_stream_was_closed_opens_nothing() -> None:
    observed = Observed()
    relay = Relay(observed)
    stream = relay.request(0)
    stream_tokens(relay, stream, [100 + 20 * i for i in range(20)])
    relay.flush()
    observed.advance(500)
    listed(relay, 1000)
    for at_ms in (1010, 1030):
        relay.data(at_ms, stream, chunk())
    relay.add(1031, stream, Kind.SKIPPED, bytes(8))
    relay.end(1040, stream)
    relay.flush()
    observed.advance(3000)
    assert observed.values(table.GENERATED_TOKENS) == {("m",): 20}
    assert observed.taps.out_of_order == 0
    empty(observed)


def test_a_relay_that_is_gone_takes_its_streams_with_it_and_not_those_of_others() -> None:
    observed = Observed()
    gone, other = Relay(observed, 0), Relay(observed, 1)
    for relay in (gone, other):
        stream_tokens(relay, relay.request(0), [100, 120])
        relay.flush()
    observed.advance(1000)
    observed.taps.feed(observed.taps.farewell(0, ns(1000)), ns(1000))
    listed(other, 1100, 1, read_ms=120)
    observed.advance(2000)
    assert [observed.taps.relays[index].lost_streams for index in (0, 1)] == [1, 0]
    assert observed.values(table.DECODING_STREAMS) == {("m",): 1}
    new = Relay(observed, 0, epoch=2)  # its ids begin anew
    stream_tokens(new, new.request(2100), [2200])
    new.flush()
    observed.advance(2300)
    assert observed.values(table.DECODING_STREAMS) == {("m",): 2}
    assert observed.taps.relays[0].lost_streams == 1


def test_books_that_agree_ask_for_nothing() -> None:
    side = Side(Observed())
    for record in (*request(0, 1, 40), answered(5, 1), (100, 1, Kind.DATA, chunk()), *request(120, 2, 40)):
        side.take(record)
    side.tell_stats(ns(1000))
    side.flush(ns(1000), lose=False)
    side.beat(ns(1000))
    assert side.asks == 0
    side.take(ended(1100, 1))
    side.flush(ns(1200), lose=True)
    side.tell_stats(ns(2000))
    side.flush(ns(2000), lose=False)
    side.beat(ns(2000))
    assert [ask for ask, _ in side.asked] == [Ask.LIST]


def test_a_relay_that_is_behind_is_asked_nothing_and_its_silence_is_no_freeze() -> None:
    observed = Observed()
    relay = Relay(observed)
    stream_tokens(relay, relay.request(0), [100 + 20 * i for i in range(20)])
    observed.now_ms = 10_000  # all of it waited in the relay for so long
    relay.flush()
    tap = observed.taps.relays[0]
    assert observed.taps.known_until(ns(10_000)) == ns(480)
    tap.wants_list = True
    assert asked(observed) == []
    assert relay_state(relay_now(0, tap, ns(10_000))) == {}
    observed.now_ms = 11_500  # and nothing more comes: it is silent indeed
    assert observed.taps.known_until(ns(11_500)) == ns(11_500)
    assert asked(observed) == [(Ask.LIST, ())]


def test_old_news_in_a_new_packet_is_no_backlog() -> None:
    observed = Observed()
    relay = Relay(observed)
    relay.request(9_950)
    observed.now_ms = 10_000
    relay.flush()
    relay.add(3_000, 1, Kind.BLOCKED)  # told again: since when the client takes nothing
    relay.flush()
    assert observed.taps.known_until(ns(10_000)) == ns(10_000)


def test_what_is_skipped_is_a_hole_in_that_stream_alone() -> None:
    observed = Observed()
    relay = Relay(observed)
    streams = [relay.request(0), relay.request(0)]
    for stream in streams:
        stream_tokens(relay, stream, [100, 120])
    relay.add(130, 1, Kind.SKIPPED, (70_000).to_bytes(8, "little"))
    for at_ms in (140, 160):
        for stream in streams:
            relay.data(at_ms, stream, chunk())
    relay.flush()
    observed.advance(1000)
    assert observed.counts(table.INTER_TOKEN_LATENCY) == {("m", "none"): 2 + 3}
    for stream in streams:
        relay.data(161, stream, DONE)
        relay.end(162, stream)
    relay.flush()
    observed.advance(2000)
    assert observed.values(table.REQUESTS) == {("m", "chat_completions", "ok"): 2}
    first, second = observed.ended
    assert (first.unparsed(), second.unparsed()) == ({"too_long": 1}, {})


def test_an_answer_whose_first_token_was_skipped_is_decoding_and_no_empty_one() -> None:
    observed = Observed()
    relay = Relay(observed)
    stream = relay.request(0)
    relay.response(5, stream)
    relay.add(300, stream, Kind.SKIPPED, bytes(8))
    relay.flush()
    observed.advance(8000)
    assert observed.values(table.PREFILLING_REQUESTS) == {("m",): 0}
    assert observed.values(table.DECODING_STREAMS) == {("m",): 1}
    assert observed.values(table.FROZEN_STREAMS) == {("m",): 0}
    assert observed.values(table.OLDEST_FIRST_TOKEN_WAIT) == {}
    relay.end(8000, stream)
    relay.flush()
    observed.advance(9000)
    assert observed.values(table.REQUESTS) == {("m", "chat_completions", "ok"): 1}
    assert observed.values(table.GENERATED_TOKENS).get(("m",), 0) == 0
    assert observed.history.newest([], 10) == []
    empty(observed)


@pytest.mark.parametrize("began", [False, True])
@pytest.mark.parametrize("filler", [b"x" * 1000, b"what is this\n\n" * 70, b"data: {broken\n\n" * 70])
def test_an_answer_that_cannot_be_read_is_given_up_and_neither_waits_nor_freezes(
    monkeypatch: pytest.MonkeyPatch, began: bool, filler: bytes
) -> None:
    most = answer.MAX_SENSELESS_BYTES // 64  # what counts is that it is reached
    monkeypatch.setattr(answer, "MAX_SENSELESS_BYTES", most)
    observed = Observed()
    relay = Relay(observed)
    stream = relay.request(0)
    relay.response(5, stream)
    at_ms = 100.0
    if began:
        for _ in range(20):
            at_ms += 20
            relay.data(at_ms, stream, chunk())
    for _ in range(most // len(filler) + 2):
        at_ms += 0.1
        relay.data(at_ms, stream, filler)
    relay.flush()
    observed.now_ms = at_ms
    assert asked(observed) == [(Ask.STOP, (stream,))]
    observed.advance(at_ms + 60_000)
    assert observed.values(table.DECODING_STREAMS) == {("m",): 1}
    assert observed.values(table.PREFILLING_REQUESTS) == {("m",): 0}
    assert observed.values(table.FROZEN_STREAMS) == {("m",): 0}
    assert observed.values(table.OLDEST_FIRST_TOKEN_WAIT) == {}
    relay.end(at_ms + 60_000, stream)
    relay.flush()
    observed.advance(at_ms + 61_000)
    (exchange,) = observed.ended
    assert exchange.unparsed()["no_events"] == 1
    assert observed.values(table.REQUESTS) == {("m", "chat_completions", "ok"): 1}
    assert observed.history.newest([], 10) == []
    empty(observed)


def test_a_usage_of_0_beside_tokens_that_were_seen_is_no_usage() -> None:
    observed = Observed()
    relay = Relay(observed)
    for at_ms in (0, 1000):
        stream = relay.request(at_ms, {"messages": [{"role": "user", "content": "w" * 4000}]})
        stream_tokens(relay, stream, [at_ms + 100 + 20 * i for i in range(10)])
        if not at_ms:
            relay.data(300, stream, usage(0, 0))
        relay.data(at_ms + 301, stream, DONE)
        relay.end(at_ms + 302, stream)
    relay.flush()
    observed.advance(3000)
    assert observed.values(table.GENERATED_TOKENS) == {("m",): 20}
    assert observed.values(table.PROMPT_TOKENS) == {("m",): 2000}


def test_a_body_with_a_hole_counts_by_its_size_and_streams_if_its_answer_does() -> None:
    observed = Observed()
    relay = Relay(observed)
    relay.add(0, 1, Kind.REQUEST, encode_payload(RequestHead("POST", CHAT, "application/json")))
    relay.add(0, 1, Kind.REQUEST_BODY, b'{"model":"m","messages":[{"role":"user","content":"begin')
    relay.add(0, 1, Kind.SKIPPED, (30_000).to_bytes(8, "little"))
    relay.add(0, 1, Kind.REQUEST_BODY, b'end"}],"stream":true}')
    relay.add(1, 1, Kind.REQUEST_END, (40_000).to_bytes(8, "little"))
    relay.add(1, 1, Kind.SENT)
    relay.response(2, 1)
    relay.flush()
    observed.advance(1001)
    assert observed.values(table.PREFILLING_TOKENS) == {("m",): 10_000}
    assert observed.values(table.OLDEST_FIRST_TOKEN_WAIT) == {("m",): pytest.approx(1.0)}
    stream_tokens(relay, 1, [1100, 1120])
    relay.data(1121, 1, DONE)
    relay.end(1122, 1, Finish.COMPLETE)
    relay.flush()
    observed.advance(200_000)
    empty(observed)


def test_a_list_of_which_a_slice_was_lost_closes_nothing_that_is_alive() -> None:
    observed = Observed()
    relay = Relay(observed)
    for _ in range(4):
        stream_tokens(relay, relay.request(0), [100])
    relay.flush()
    whole = [InFlight(0, 2, [1, 2], [0, 0], [3, 3]), InFlight(2, 4, [3, 4], [0, 0], [3, 3])]
    relay.add(200, 0, Kind.IN_FLIGHT, encode_in_flight(whole[1]))
    relay.flush()
    observed.advance(500)
    assert len(observed.taps.relays[0].streams) == 4
    relay.add(600, 0, Kind.IN_FLIGHT, b"junk")
    relay.flush()
    assert observed.taps.unreadable == 1


def test_an_observer_told_the_same_of_another_release_understands_what_it_knows() -> None:
    observed = Observed()
    builder = PacketBuilder(0, 3)
    builder.add(ns(0), 0, 200, b"?")
    builder.add(ns(0), 1, 201, b"?")
    observed.taps.feed(builder.take(), ns(0))
    assert (observed.taps.unreadable, observed.taps.out_of_order) == (0, 0)
