"""Packets that are lost, relays that die, observers that come late."""

import pytest
from tests.core.script import CHAT, DONE, Observed, Relay, chunk, ns, stream_tokens

from prefillwatch.contract.buckets import LAG_BOUNDS
from prefillwatch.export import table
from prefillwatch.wire.tap import Kind, PacketBuilder, RelayStats, RequestHead, ResponseHead, encode_payload


def test_no_gap_is_measured_across_a_dropped_packet() -> None:
    observed = Observed()
    relay = Relay(observed)
    stream = relay.request(0)
    stream_tokens(relay, stream, [100, 120])
    relay.flush()
    relay.data(140, stream, chunk())
    relay.flush(lose=True)
    relay.data(5000, stream, chunk())  # a gap of 4.86 s, or 243 tokens that nobody saw
    relay.data(5020, stream, chunk())
    relay.flush()
    observed.advance(6000)
    assert observed.counts(table.INTER_TOKEN_LATENCY) == {("m", "none"): 2}
    assert observed.sums(table.INTER_TOKEN_LATENCY) == {("m", "none"): pytest.approx(0.04)}
    assert observed.taps.relays[0].dropped == 1


def test_a_stream_cut_by_a_hole_is_read_again_from_the_next_event() -> None:
    observed = Observed()
    relay = Relay(observed)
    stream = relay.request(0)
    stream_tokens(relay, stream, [100])
    relay.data(110, stream, chunk()[:40])
    relay.flush()
    relay.data(115, stream, chunk()[40:])
    relay.flush(lose=True)
    for at_ms in (120, 140):
        relay.data(at_ms, stream, chunk())
    relay.data(141, stream, DONE)
    relay.end(150, stream)
    relay.flush()
    observed.advance(1000)
    assert observed.values(table.REQUESTS) == {("m", "chat_completions", "ok"): 1}
    assert observed.taps.out_of_order == 0


def test_the_first_token_may_have_been_in_the_hole() -> None:
    observed = Observed()
    relay = Relay(observed)
    stream = relay.request(0)
    relay.flush()
    stream_tokens(relay, stream, [100, 120])
    relay.flush(lose=True)
    relay.data(140, stream, chunk())
    relay.data(160, stream, chunk())
    relay.data(161, stream, DONE)
    relay.end(170, stream)
    relay.flush()
    observed.advance(1000)
    assert observed.counts(table.TIME_TO_FIRST_TOKEN) == {}
    assert observed.counts(table.INTER_TOKEN_LATENCY) == {("m", "none"): 1}


def test_a_client_that_took_all_again_unseen_is_not_to_blame_for_later_silence() -> None:
    observed = Observed()
    relay = Relay(observed)
    stream = relay.request(0)
    stream_tokens(relay, stream, [100 + 20 * i for i in range(20)])
    relay.add(481, stream, Kind.BLOCKED)
    relay.flush()
    relay.add(490, stream, Kind.UNBLOCKED)
    relay.flush(lose=True)
    for at_ms in range(500, 1000, 20):
        relay.data(at_ms, stream, chunk())
    relay.flush()
    observed.advance(1300)
    assert observed.values(table.FROZEN_STREAMS) == {("m",): 1}


def test_the_streams_of_a_relay_that_died_are_counted_and_leave_nothing_behind() -> None:
    observed = Observed()
    old = Relay(observed, epoch=1)
    for _ in range(3):
        stream_tokens(old, old.request(0), [100, 120])
    old.flush()
    observed.advance(300)
    new = Relay(observed, epoch=2)
    stream_tokens(new, new.request(400), [500])
    new.flush()
    observed.advance(1000)
    assert observed.taps.relays[0].lost_streams == 3
    assert observed.values(table.DECODING_STREAMS) == {("m",): 1}
    assert len(observed.ledger.book) == 1


def test_an_observer_that_came_late_counts_what_it_sees_but_no_ttft() -> None:
    observed = Observed()
    builder = PacketBuilder(0, 9)
    head = RequestHead("POST", CHAT, "application/json", resumed=True, received_ns=ns(50))
    builder.add(ns(60_000), 1, Kind.REQUEST, encode_payload(head))
    builder.add(ns(60_000), 1, Kind.RESPONSE, encode_payload(ResponseHead(200, "text/event-stream")))
    for at_ms in (60_100, 60_120, 60_140):
        builder.add(ns(at_ms), 1, Kind.DATA, chunk())
    observed.now_ms = 60_000
    observed.taps.feed(builder.take(), ns(60_200))
    observed.advance(75_000)
    assert observed.counts(table.TIME_TO_FIRST_TOKEN) == {}
    assert observed.counts(table.INTER_TOKEN_LATENCY) == {("m", "none"): 2}
    assert observed.values(table.DECODING_STREAMS) == {("m",): 1}


def test_an_answer_whose_tokens_came_before_the_observer_is_not_empty() -> None:
    observed = Observed()
    relay = Relay(observed)
    relay.add(0, 1, Kind.REQUEST, encode_payload(RequestHead("POST", CHAT, resumed=True, received_ns=ns(0))))
    relay.add(0, 1, Kind.RESPONSE, encode_payload(ResponseHead(200, "text/event-stream")))
    relay.data(10, 1, DONE)
    relay.end(20, 1)
    relay.flush()
    observed.advance(500)
    assert list(observed.values(table.REQUESTS).values()) == [1]
    assert next(iter(observed.values(table.REQUESTS)))[2] == "ok"


def test_a_stream_told_again_is_not_taken_twice() -> None:
    observed = Observed()
    relay = Relay(observed)
    stream = relay.request(0)
    again = RequestHead("POST", CHAT, "application/json", resumed=True, received_ns=5)
    relay.add(10, stream, Kind.REQUEST, encode_payload(again))
    stream_tokens(relay, stream, [100])
    relay.data(101, stream, chunk()[:20])
    relay.add(102, stream, Kind.REQUEST, encode_payload(again))
    relay.add(102, stream, Kind.RESPONSE, encode_payload(ResponseHead(200, "text/event-stream")))
    relay.data(120, stream, chunk()[20:])
    relay.data(121, stream, DONE)
    relay.end(130, stream)
    relay.flush()
    observed.advance(500)
    assert observed.counts(table.TIME_TO_FIRST_TOKEN) == {("m", "0-512"): 1}
    assert observed.counts(table.INTER_TOKEN_LATENCY) == {("m", "none"): 1}
    assert observed.taps.out_of_order == 0


@pytest.mark.parametrize("junk", [b"", b"x", b"\x00" * 64, b"TAwp" + b"\xff" * 60])
def test_junk_on_the_tap_is_counted(junk: bytes) -> None:
    observed = Observed()
    observed.taps.feed(junk, 0)
    assert observed.taps.unreadable == 1


def test_records_that_cannot_follow_are_counted_and_dropped() -> None:
    observed = Observed()
    relay = Relay(observed)
    stream = relay.request(0)
    relay.add(5, stream, Kind.REQUEST_END, (0).to_bytes(8, "little"))
    relay.add(6, stream, Kind.RESPONSE, b"\xc1not msgpack")
    stream_tokens(relay, stream, [100])
    relay.flush()
    observed.advance(500)
    assert (observed.taps.out_of_order, observed.taps.unreadable) == (1, 1)
    assert observed.values(table.DECODING_STREAMS) == {("m",): 1}


def test_totals_of_a_relay_go_on_over_its_restarts() -> None:
    observed = Observed()

    def told(epoch: int, quick: int, slow: int, retries: int, given: int = 0) -> None:
        counts = (quick, *(0 for _ in LAG_BOUNDS[1:]), slow)
        stats = RelayStats(
            1,
            1,
            0,
            0,
            LAG_BOUNDS,
            counts,
            quick + slow,
            retries=retries,
            upstream_connect_failures=10 * retries,
            places_given=given,
        )
        feed_stats(observed, stats, epoch)

    told(1, 5, 1, 2)
    told(1, 7, 1, 3, 5)
    told(2, 1, 0, 1, 2)
    relay = observed.taps.relays[0]
    assert (relay.lag_counts[0], relay.lag_counts[-1], sum(relay.lag_counts)) == (8, 1, 9)
    assert (relay.lag_sum, relay.retries, relay.displaced) == (9.0, 4, 7)
    assert observed.values(table.RELAY_CONNECT_FAILURES) == {("0",): 40}


def test_lags_in_the_buckets_of_another_release_are_left_out() -> None:
    observed = Observed()
    feed_stats(observed, RelayStats(1, 1, 0, 0, (0.1,), (7, 2), 3.0, retries=1))
    relay = observed.taps.relays[0]
    assert (sum(relay.lag_counts), relay.lag_sum, relay.retries) == (0, 0.0, 1)
    assert observed.counts(table.RELAY_LOOP_LAG) == {}


def feed_stats(observed: Observed, stats: RelayStats, epoch: int = 1) -> None:
    builder = PacketBuilder(0, epoch)
    builder.add(0, 0, Kind.STATS, encode_payload(stats))
    observed.taps.feed(builder.take(), 0)


def test_a_gap_that_ended_when_the_relay_woke_up_late_is_marked_as_our_own() -> None:
    observed = Observed()
    relay = Relay(observed)
    stream = relay.request(0)
    stream_tokens(relay, stream, [100, 120, 140, 640, 660])
    relay.add(639, 0, Kind.LATE, (480_000_000).to_bytes(8, "little"))
    relay.flush()
    observed.advance(2000)
    assert observed.values(table.LAGGED_GAPS) == {("m",): 1}
