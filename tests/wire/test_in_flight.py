"""Slices of what is in flight, asks, digests."""

from __future__ import annotations

import itertools
import random

import pytest

from prefillwatch.wire.in_flight import (
    BLOCKED,
    SLICE,
    Ask,
    InFlight,
    Stage,
    decode_ask,
    decode_in_flight,
    encode_asks,
    encode_in_flight,
    spread,
)
from prefillwatch.wire.tap import MAX_PAYLOAD_BYTES


def test_a_slice_comes_back_as_it_was() -> None:
    told = InFlight(3, 2**56, [4, 9, 2**55], [0, 10**18, 7], [Stage.RECEIVING, Stage.ANSWERED | BLOCKED, Stage.SENT])
    found = decode_in_flight(encode_in_flight(told))
    assert [found.after, found.until] == [3, 2**56]
    assert [list(each) for each in found[2:]] == [list(each) for each in told[2:]]


def test_nothing_in_flight_is_a_slice_too() -> None:
    assert list(decode_in_flight(encode_in_flight(InFlight(0, 8, [], [], []))).streams) == []


def test_a_full_slice_fits_a_record() -> None:
    numbers = [2**56 - 1] * SLICE
    assert len(encode_in_flight(InFlight(0, 1, numbers, numbers, [3] * SLICE))) < MAX_PAYLOAD_BYTES


@pytest.mark.parametrize("size", [0, 5, 19, 21, 36, 38])
def test_other_bytes_are_no_slice(size: int) -> None:
    whole = encode_in_flight(InFlight(0, 1, [1], [2], [3]))
    with pytest.raises(ValueError, match="slice"):
        decode_in_flight((whole + b"\0")[:size])


def test_asks_come_back_as_they_were_in_packets_of_bounded_size() -> None:
    ids = list(range(1, 3000))
    packets = encode_asks(Ask.REPORT, 77, ids)
    assert max(map(len, packets)) < 16 * 1024
    told = [decode_ask(packet) for packet in packets]
    assert {(ask, epoch) for ask, epoch, _ in told} == {(Ask.REPORT, 77)}
    assert [stream for *_, streams in told for stream in streams] == ids
    assert decode_ask(*encode_asks(Ask.LIST, 2**32 - 1)) == (Ask.LIST, 2**32 - 1, ())
    assert encode_asks(Ask.STOP, 1) == []


@pytest.mark.parametrize("junk", [b"", b"\0", b"\0\0\0\0\0\0", b"\x09\0\0\0\0", b"\0" * 12])
def test_other_bytes_are_no_ask(junk: bytes) -> None:
    with pytest.raises(ValueError, match=r"(?i)ask"):
        decode_ask(junk)


def test_sets_of_neighbouring_ids_differ_in_their_digests() -> None:
    rng = random.Random(5)
    digests: set[int] = set()
    sets = {tuple(sorted(rng.sample(range(1, 60), 8))) for _ in range(20_000)}
    sets |= set(itertools.combinations(range(1, 18), 3))
    for ids in sets:
        digest = 0
        for stream in ids:
            digest ^= spread(stream)
        digests.add(digest)
    assert len(digests) == len(sets)
