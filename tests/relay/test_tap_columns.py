"""Records added column by column, as the hot path does, come out whole and numbered."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from prefillwatch.wire.tap import (
    MAX_PACKET_BYTES,
    MAX_PAYLOAD_BYTES,
    Kind,
    Packet,
    PacketBuilder,
)

sizes = st.one_of(st.integers(0, 400), st.sampled_from([MAX_PAYLOAD_BYTES, 20_000]))
records = st.tuples(st.integers(0, 2**63), st.integers(0, 2**40), st.sampled_from(Kind), sizes.map(bytes))


@given(st.lists(records, max_size=40))
def test_records_come_out_as_they_went_in(added: list[tuple[int, int, Kind, bytes]]) -> None:
    builder = PacketBuilder(relay=2, epoch=7)
    builder.dropped = 3
    times, keys, payloads = builder.columns
    for number, (time_ns, stream, kind, payload) in enumerate(added):
        if number % 2:
            builder.add(time_ns, stream, kind, payload)
        else:
            times.append(time_ns)
            keys.append(stream << 8 | kind)
            payloads.append(payload)
    assert len(builder) == len(added)
    raw = builder.take_all()
    assert len(builder) == 0
    assert all(len(data) <= MAX_PACKET_BYTES for data in raw)
    packets = [Packet(data) for data in raw]
    assert [record for packet in packets for record in packet] == added
    assert [packet.sequence for packet in packets] == list(range(1, len(packets) + 1))
    assert all((packet.relay, packet.epoch, packet.dropped) == (2, 7, 3) for packet in packets)
    assert builder.take_all() == []
