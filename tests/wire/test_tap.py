from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefillwatch.wire import tap
from prefillwatch.wire.tap import Kind, Packet, PacketBuilder


def test_records_come_out_as_they_went_in() -> None:
    builder = PacketBuilder(relay=3, epoch=77)
    builder.add(10, 5, Kind.REQUEST, b"head")
    builder.add(11, 5, Kind.REQUEST_END)
    builder.add(2**63, 2**48, Kind.DATA, bytes(range(256)))
    packet = Packet(builder.take())
    assert (packet.relay, packet.epoch, packet.sequence, packet.dropped, packet.count) == (3, 77, 1, 0, 3)
    assert list(packet) == [
        (10, 5, Kind.REQUEST, b"head"),
        (11, 5, Kind.REQUEST_END, b""),
        (2**63, 2**48, Kind.DATA, bytes(range(256))),
    ]


def test_packets_are_numbered_and_tell_of_dropped_ones() -> None:
    builder = PacketBuilder(relay=0, epoch=1)
    builder.add(1, 1, Kind.DATA, b"lost")
    builder.take()
    builder.dropped += 1
    builder.add(2, 1, Kind.DATA, b"kept")
    packet = Packet(builder.take())
    assert (packet.sequence, packet.dropped, [record[3] for record in packet]) == (2, 1, [b"kept"])
    assert len(builder) == 0
    assert Packet(builder.take()).count == 0


@given(
    st.lists(
        st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**56 - 1), st.sampled_from(Kind), st.binary(max_size=50))
    )
)
def test_any_records_survive(records: list[tuple[int, int, Kind, bytes]]) -> None:
    builder = PacketBuilder(relay=0, epoch=0)
    for record in records:
        builder.add(*record)
    assert list(Packet(builder.take())) == records


def test_a_packet_that_says_it_is_full_still_fits() -> None:
    builder = PacketBuilder(relay=0, epoch=0)
    full = False
    while not full:
        full = builder.add(1, 1, Kind.DATA, b"x" * tap.MAX_PAYLOAD_BYTES)
    assert len(builder.take()) <= tap.MAX_PACKET_BYTES
    while not builder.add(1, 1, Kind.DATA, b"x" * 100):
        pass
    assert tap.MAX_PACKET_BYTES // 2 < len(builder.take()) <= tap.MAX_PACKET_BYTES


def test_long_reads_are_cut_into_pieces() -> None:
    size = tap.MAX_PAYLOAD_BYTES
    data = bytes(range(256)) * (size // 100)
    pieces = list(tap.pieces(data))
    assert b"".join(piece for _, piece in pieces) == data
    assert [is_last for is_last, _ in pieces] == [False] * (len(pieces) - 1) + [True]
    assert max(len(piece) for _, piece in pieces) == size
    assert list(tap.pieces(b"x" * size)) == [(True, b"x" * size)]


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (Kind.HELLO, tap.Hello(relay=1, pid=42)),
        (Kind.REQUEST, tap.RequestHead("POST", "/v1/completions", "application/json", request_id="r", slo_ttft_ms=1.5)),
        (Kind.RESPONSE, tap.ResponseHead(200, "text/event-stream", injected=True)),
        (Kind.END, tap.End(tap.Finish.UPSTREAM_TRUNCATED, 200, "reset")),
        (Kind.STATS, tap.RelayStats(1, 2, 3, 4, (0.001, 0.01), (5, 6, 7), 0.5, retries=8)),
    ],
)
def test_payloads_come_out_as_they_went_in(kind: Kind, payload: Any) -> None:
    assert tap.decode_payload(kind, tap.encode_payload(payload), type(payload)) == payload


@pytest.mark.parametrize("data", [b"", b"\x00" * 20, b"\x00" * 100])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="tap packet"):
        Packet(data)


def test_a_packet_cut_in_its_tables_is_refused() -> None:
    builder = PacketBuilder(relay=0, epoch=0)
    builder.add(1, 1, Kind.DATA)
    builder.add(2, 1, Kind.DATA)
    with pytest.raises(ValueError, match="bad header"):
        Packet(builder.take()[:-10])
