"""Bytes gathered piece by piece, and what becomes of their memory."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefillwatch.relay.blocks import Blocks

MIB = 2**20

_MEASURE = """
import sys
from prefillwatch.relay.blocks import Blocks
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096
size, count, piece = (int(word) for word in sys.argv[1:])
read, before = b"x" * piece, resident()
bodies, kept = [], []
for _ in range(count):
    blocks = Blocks()
    bodies.append(blocks)
for _ in range(size // piece):      # all at once, as clients send
    for blocks in bodies:
        blocks.add(read)
        kept.append(bytes(40))      # somebody else's memory between theirs
peak = resident()
bodies.clear()
del blocks
print(peak - before, resident() - before)
"""


def measured(size: int, count: int, piece: int) -> tuple[int, int]:
    """Resident bytes that so many bodies cost, and that are left when they are gone."""
    argv = [sys.executable, "-c", _MEASURE, str(size), str(count), str(piece)]
    done = subprocess.run(argv, capture_output=True, check=True, text=True)
    peak, left = done.stdout.split()
    return int(peak), int(left)


@given(st.lists(st.integers(0, 300_000), max_size=12))
def test_all_is_there_in_order(sizes: list[int]) -> None:
    blocks, whole = Blocks(), bytearray()
    for number, size in enumerate(sizes):
        data = bytes([number]) * size
        blocks.add(data)
        whole += data
    assert b"".join(blocks) == whole
    assert blocks.size == len(whole)


@pytest.mark.parametrize("edge", [96 * 1024, 96 * 1024 + MIB, 96 * 1024 + 2 * MIB])
@pytest.mark.parametrize("off", [-1, 0, 1])
def test_at_the_edges_of_a_block(edge: int, off: int) -> None:
    blocks = Blocks()
    for _ in range(96):
        blocks.add(b"a" * 1024)
    blocks.add(b"b" * (edge + off - blocks.size))
    assert b"".join(blocks) == b"a" * 96 * 1024 + b"b" * (edge + off - 96 * 1024)
    assert all(len(piece) for piece in blocks)


def test_pieces_keep_what_they_show() -> None:
    blocks = Blocks()
    blocks.add(b"x" * 3 * MIB)
    pieces = list(blocks)
    del blocks
    assert sum(map(len, pieces)) == 3 * MIB
    assert all(bytes(piece[-2:]) == b"xx" for piece in pieces)


def test_a_client_that_sends_single_bytes_costs_no_object_for_each() -> None:
    blocks = Blocks()
    for _ in range(300_000):
        blocks.add(b"x")
    assert len(list(blocks)) == 2


@pytest.mark.parametrize(("size", "count", "piece"), [(16 * MIB, 8, 65536), (MIB, 64, 65536), (MIB, 64, 1460)])
def test_a_byte_costs_a_byte_of_memory_and_goes_back_to_the_system(size: int, count: int, piece: int) -> None:
    peak, left = measured(size, count, piece)
    assert peak < 1.15 * size * count
    assert left < 0.15 * size * count
