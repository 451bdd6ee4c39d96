"""The view is of one moment: what was read of it stays, what was not cannot be read later."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from functools import cached_property

import pytest
from tests.core.script import Observed, Relay, chunk, ns

from prefillwatch.core.view import View

PARTS = sorted(name for name, part in vars(View).items() if isinstance(part, cached_property))


def streaming(observed: Observed, relay: Relay, until_ms: float) -> int:
    """One request with a token every 20 ms, and one that waits for its first."""
    stream = relay.request(0, request_id="reader")
    relay.request(10, request_id="waits")
    relay.response(1, stream)
    for at in range(50, round(until_ms), 20):
        relay.data(at, stream, chunk())
    relay.flush()
    observed.advance(until_ms)
    return stream


def test_what_is_in_flight() -> None:
    observed = Observed()
    streaming(observed, Relay(observed), 400)
    reader, waits = observed.view().requests
    assert (reader.request_id, reader.model, reader.decoding, reader.in_prefill) == ("reader", "m", 1, False)
    (sequence,) = reader.sequences
    assert (sequence.choice, sequence.over, sequence.frozen) == (0, False, False)
    assert (sequence.first_ns, sequence.last_ns) == (ns(50), ns(390))
    assert sequence.silent_s == pytest.approx(0.01)
    assert (waits.request_id, waits.in_prefill, waits.sequences) == ("waits", True, ())


def test_the_load_of_a_model_is_the_sum_of_its_requests() -> None:
    observed = Observed()
    streaming(observed, Relay(observed), 400)
    view = observed.view()
    (load,) = view.load
    assert load.decoding == sum(each.decoding for each in view.requests) == 1
    assert load.prefilling == sum(each.in_prefill for each in view.requests) == 1
    assert load.prefilling_tokens == sum(each.prompt_tokens for each in view.requests if each.in_prefill)
    assert load.oldest_wait_s == pytest.approx(0.39)
    assert load.longest_silence_s == max(own.silent_s for each in view.requests for own in each.sequences)


def test_what_was_read_stays_as_it_was() -> None:
    observed = Observed()
    relay = Relay(observed)
    stream = streaming(observed, relay, 400)
    view = observed.view()
    load, requests = view.load, view.requests
    relay.end(420, stream)
    relay.flush()
    observed.advance(600)
    assert (view.load, view.requests) == (load, requests)
    assert observed.view().load[0].decoding == 0


@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_was_not_read_in_time_is_none_of_a_later_moment(part: str) -> None:
    observed = Observed()
    streaming(observed, Relay(observed), 400)
    view = observed.view()
    observed.advance(500)
    with pytest.raises(RuntimeError, match="of the past"):
        getattr(view, part)


@pytest.mark.parametrize("part", PARTS)
def test_each_part_can_be_read_at_once(part: str) -> None:
    observed = Observed(plugin=True)
    streaming(observed, Relay(observed), 400)
    getattr(observed.view(), part)


def test_nobody_writes_into_it() -> None:
    view = Observed().view()
    with pytest.raises(FrozenInstanceError):
        view.known_ns = 0  # type: ignore[misc]


def test_a_stall_is_known_by_its_key_when_it_is_over_for_good() -> None:
    observed = Observed()
    relay = Relay(observed)
    stream = streaming(observed, relay, 400)
    observed.advance(1500)
    (stall,) = observed.view().stalls
    assert (stall.started_ns, stall.ended_ns) == (ns(390), 0)
    relay.data(1600, stream, chunk())
    relay.flush()
    observed.advance(60_000)
    view = observed.view()
    assert stall.key not in {each.key for each in view.stalls}
    assert view.stall(stall.key).ended_ns == ns(1600)


def test_one_that_is_over_is_remembered_with_what_its_end_showed() -> None:
    observed = Observed()
    relay = Relay(observed)
    stream = streaming(observed, relay, 400)
    relay.end(420, stream)
    relay.flush()
    observed.advance(600)
    (over,) = observed.view().ended
    assert over.request_id == "reader"
    assert [(own.over, own.first_ns, own.last_ns) for own in over.sequences] == [(True, ns(50), ns(390))]


def test_some_by_number_in_flight_or_just_over_and_no_others() -> None:
    observed = Observed()
    relay = Relay(observed)
    stream = streaming(observed, relay, 400)
    reader, waits = observed.view().requests
    assert observed.view().owners == {reader.sequences[0].slot: reader.rid}
    relay.end(420, stream)
    relay.flush()
    observed.advance(600)
    view = observed.view()
    assert {rid: each.request_id for rid, each in view.those({reader.rid, waits.rid, 99}).items()} == {
        reader.rid: "reader",
        waits.rid: "waits",
    }
    assert (view.in_flight(reader.rid), view.in_flight(waits.rid), view.owners) == (False, True, {})


def test_who_had_no_token_yet_at_some_time_since_a_moment() -> None:
    observed = Observed()
    streaming(observed, Relay(observed), 400)
    view = observed.view()
    assert [each.request_id for each in view.without_token(ns(100))] == ["waits"]
    assert [each.request_id for each in view.without_token(ns(-1))] == ["waits", "reader"]
