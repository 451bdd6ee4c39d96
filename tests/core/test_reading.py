"""The fast path takes the reads of a packet at once: what comes of it is what the long path makes of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.script import DONE, Observed, Relay, chunk, usage

from prefillwatch.core.reading import Other, Reading
from prefillwatch.wire.tap import Kind

OTHER_ID = chunk().replace(b"chatcmpl-1", b"chatcmpl-2")
READS = [
    *[chunk(text) for text in (" word", "x", "für", 'say "so"', "\\", ',"', "a\nb", "long " * 20, "")],
    chunk(" a") + chunk(" b"),
    chunk(index=1),
    chunk(usage={"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}),
    chunk().replace(b" word", b'"'),
    chunk().replace(b" word", b"a\\"),
    chunk().replace(b" word", b"\xff"),
    chunk() + OTHER_ID[:30],
    chunk()[:40],
    chunk()[40:],
    OTHER_ID,
    b": ping\n\n",
    usage(7, 3),
    DONE,
]
EXPECTED = st.just(chunk())
#: Milliseconds to the next record, stream, what was read, and whether a packet ends, or is lost.
STEPS = st.lists(
    st.tuples(
        st.sampled_from((1, 20, 150)),
        st.integers(0, 2),
        EXPECTED | EXPECTED | st.sampled_from([*READS, Kind.DATA_PART, Kind.BLOCKED, Kind.UNBLOCKED, Kind.END]),
        st.sampled_from(("", "", "ends", "ends", "lost")),
    ),
    max_size=25,
)


def play(steps: list[Any], *, fast: bool) -> tuple[Any, ...]:
    """What is known after these steps; ``fast`` False: no read takes the fast path."""
    with pytest.MonkeyPatch.context() as patch:
        if not fast:
            patch.setattr(Reading, "expect", lambda *_: None)
        return played(steps)


def played(steps: list[Any]) -> tuple[Any, ...]:
    observed = Observed()
    relay = Relay(observed)
    streams = [relay.request(0) for _ in range(3)]
    over: set[int] = set()
    for stream in streams:
        relay.response(1, stream)
        relay.data(2, stream, chunk())
        relay.data(3, stream, chunk())
    relay.flush()
    exchanges = list(observed.taps.relays[0].streams.values())
    at_ms = 10
    for wait_ms, which, what, packet in steps:
        at_ms += wait_ms
        stream = streams[which]
        if stream not in over:
            tell(relay, at_ms, stream, what)
        if what is Kind.END:
            over.add(stream)
        if packet:
            relay.flush(lose=packet == "lost")
            observed.advance(at_ms)
    relay.flush()
    observed.advance(at_ms + 1000)
    return facts(observed, exchanges)


def tell(relay: Relay, at_ms: float, stream: int, what: Any) -> None:
    if what is Kind.END:
        relay.end(at_ms, stream)
    elif what is Kind.DATA_PART:
        relay.add(at_ms, stream, what, chunk()[:50])
        relay.data(at_ms, stream, chunk()[50:] + chunk())
    elif isinstance(what, Kind):
        relay.add(at_ms, stream, what)
    else:
        relay.data(at_ms, stream, what)


def facts(observed: Observed, exchanges: list[Any]) -> tuple[Any, ...]:
    books = [(each.request.events, each.request.chars, each.request.last_ns) for each in exchanges]
    readers = [(each.reader.token_events, each.reader.unparsed, each.reader.completion_tokens) for each in exchanges]
    metrics = [(family.spec.name, rounded(family.values), rounded(family.buckets)) for family in observed.snapshot()]
    newest = observed.observation.incidents(100)
    incidents = [(each["cause"], each["victims"], each["evidence"]) for each in newest]
    return books, readers, metrics, incidents, observed.taps.out_of_order


def rounded(figures: Any) -> Any:
    """Sums of stalls depend in their last digit on which was added first."""
    if isinstance(figures, float):
        return round(figures, 9)
    if isinstance(figures, dict):
        return {key: rounded(value) for key, value in figures.items()}
    return tuple(map(rounded, figures)) if isinstance(figures, tuple) else figures


@settings(max_examples=50, deadline=None)
@given(STEPS)
def test_both_paths_give_the_same_facts_of_any_packets(steps: list[Any]) -> None:
    assert play(steps, fast=True) == play(steps, fast=False)


def test_only_what_is_not_as_expected_takes_the_long_path(monkeypatch: pytest.MonkeyPatch) -> None:
    observed = Observed()
    relay = Relay(observed)
    streams = [relay.request(0) for _ in range(3)]
    for stream in streams:
        relay.response(1, stream)
        relay.data(2, stream, chunk())
    relay.flush()
    seen: list[int] = []
    long_path = Reading.records

    def records(reading: Reading, records: Any, other: Other) -> None:
        seen.extend(stream for _, stream, *_ in records)
        long_path(reading, records, other)

    monkeypatch.setattr(Reading, "records", records)
    for stream in streams:
        relay.data(20, stream, chunk(" more"))
    relay.flush()
    assert seen == []
    relay.data(40, streams[0], chunk(" more"))
    relay.data(40, streams[1], chunk() + chunk())
    relay.add(40, streams[2], Kind.BLOCKED)
    relay.data(41, streams[2], chunk())
    relay.flush()
    assert seen == [streams[1], streams[2], streams[2]]
