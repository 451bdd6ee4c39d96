"""Token books as timelines: reads in, gaps out. Times are milliseconds here, for reading."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefillwatch.analysis.tokens.gaps import GapBatch, GapBook
from prefillwatch.units import MS


def read(book: GapBook, *reads: tuple[int, int, int]) -> tuple[GapBatch, list[tuple[int, ...]]]:
    """Note reads of (slot, millisecond, events) as one batch; the gaps as (slot, start, end, events)."""
    slots, times, events = zip(*reads, strict=True)
    batch = book.tokens(list(slots), [t * MS for t in times], list(events))
    gaps = zip(batch.slot, batch.start_ns // MS, batch.end_ns // MS, batch.events, strict=True)
    return batch, [tuple(map(int, gap)) for gap in gaps]


def silent(book: GapBook, now: int) -> dict[int, float]:
    slots, seconds = book.open_gaps(now * MS)
    return dict(zip(slots.tolist(), seconds.tolist(), strict=True))


def test_the_first_token_makes_no_gap_and_each_later_one_does() -> None:
    book = GapBook()
    a = book.open(model=3)

    batch, gaps = read(book, (a, 1000, 1))
    assert gaps == []
    assert batch.firsts == [(a, 1000 * MS)]

    batch, gaps = read(book, (a, 1021, 1))
    assert gaps == [(a, 1000, 1021, 1)]
    assert batch.firsts == []
    assert (batch.end_ns - batch.start_ns).tolist() == [21 * MS]
    assert batch.model.tolist() == [3]


def test_several_events_in_one_read_are_one_gap_and_no_gaps_of_zero() -> None:
    book = GapBook()
    a = book.open(model=2)
    batch, gaps = read(book, (a, 0, 4))
    assert gaps == []
    assert batch.coalesced == {2: 3}

    batch, gaps = read(book, (a, 184, 16))
    assert gaps == [(a, 0, 184, 16)]
    assert batch.coalesced == {2: 15}
    assert book.totals(a).events == 20


def test_parts_of_one_read_are_put_together_within_a_batch_and_across_batches() -> None:
    book = GapBook()
    a = book.open(model=0)
    read(book, (a, 0, 1))
    batch, gaps = read(book, (a, 20, 1), (a, 20, 2))
    assert gaps == [(a, 0, 20, 3)]
    assert batch.coalesced == {0: 2}

    batch, gaps = read(book, (a, 20, 1))
    assert gaps == []
    assert batch.coalesced == {0: 1}, "the rest of a read that was noted already"

    batch, gaps = read(book, (a, 40, 1))
    assert gaps == [(a, 20, 40, 1)]
    assert book.totals(a).events == 6


def test_a_batch_may_hold_reads_of_many_slots_in_any_order() -> None:
    book = GapBook()
    a, b = book.open(0), book.open(1)
    batch, gaps = read(book, (b, 30, 1), (a, 20, 1), (b, 10, 1), (a, 40, 1), (a, 30, 1))
    assert sorted(gaps) == sorted([(a, 20, 30, 1), (a, 30, 40, 1), (b, 10, 30, 1)])
    assert sorted(batch.firsts) == sorted([(a, 20 * MS), (b, 10 * MS)])


def test_no_gap_is_measured_across_a_hole() -> None:
    book = GapBook()
    a, b = book.open(0), book.open(0)
    read(book, (a, 0, 1), (b, 0, 1))
    book.hole(a)
    assert silent(book, 50) == {b: 0.05}, "whether a is silent is not known"

    batch, gaps = read(book, (a, 100, 1), (b, 100, 1))
    assert gaps == [(b, 0, 100, 1)]
    assert batch.firsts == [], "the first token was before the hole"

    _, gaps = read(book, (a, 120, 1))
    assert gaps == [(a, 100, 120, 1)]
    assert book.holed(a)
    assert not book.holed(b)


def test_a_first_token_seen_after_a_hole_is_told_and_marked() -> None:
    book = GapBook()
    a = book.open(0)
    book.hole(a)
    batch, _ = read(book, (a, 70, 1))
    assert batch.firsts == [(a, 70 * MS)]
    assert book.holed(a)


def test_open_gaps_grow_while_a_freeze_lasts() -> None:
    book = GapBook()
    waiting, frozen, flowing = (book.open(0) for _ in range(3))
    read(book, (frozen, 0, 1), (flowing, 0, 1))
    assert silent(book, 1000) == {frozen: 1.0, flowing: 1.0}, "who waits for a first token is not decoding"

    read(book, (flowing, 4990, 1))
    assert silent(book, 5000) == {frozen: 5.0, flowing: 0.01}

    _, gaps = read(book, (frozen, 77_000, 1))
    assert gaps == [(frozen, 0, 77_000, 1)]
    assert silent(book, 77_000)[frozen] == 0.0
    assert waiting not in silent(book, 77_000)


def test_open_gaps_are_never_negative() -> None:
    book = GapBook()
    a = book.open(0)
    read(book, (a, 100, 1))
    assert silent(book, 90) == {a: 0.0}


def test_a_finished_choice_has_no_open_gap_while_its_sibling_goes_on() -> None:
    book = GapBook()
    first, second = book.open(0), book.open(0)
    read(book, (first, 0, 1), (second, 0, 1))
    book.finish(first)
    assert silent(book, 500) == {second: 0.5}
    assert book.last_ns(first) == 0


def test_a_slot_used_again_starts_clean() -> None:
    book = GapBook()
    a = book.open(1)
    read(book, (a, 0, 1), (a, 900, 2))
    book.note_clear([a] * 5, [0.9] * 5)
    book.hole(a)
    book.finish(a)
    assert book.totals(a) == (0, 900 * MS, 3, True)
    book.close(a)
    assert silent(book, 1000) == {}

    assert book.open(2) == a
    assert book.totals(a) == (None, None, 0, False)
    assert book.model(a) == 2
    assert book.baseline(a) is None
    batch, gaps = read(book, (a, 2000, 1))
    assert gaps == []
    assert batch.firsts == [(a, 2000 * MS)]
    assert silent(book, 2001) == {a: 0.001}


def test_closing_what_is_not_open_is_an_error() -> None:
    book = GapBook()
    a = book.open(0)
    book.close(a)
    with pytest.raises(ValueError, match="not open"):
        book.close(a)


def test_the_book_grows_to_thousands_of_slots_and_gives_them_back() -> None:
    book = GapBook()
    slots = [book.open(0) for _ in range(2000)]
    assert len(set(slots)) == len(book) == 2000
    read(book, *((slot, 0, 1) for slot in slots))
    assert len(silent(book, 20)) == 2000
    _, gaps = read(book, *((slot, 20, 1) for slot in reversed(slots)))
    assert len(gaps) == 2000

    for slot in slots:
        book.close(slot)
    assert len(book) == 0
    arrays = book._open.size
    for _ in range(5000):
        book.close(book.open(0))
    assert book._open.size == arrays, "slots are used again"


def test_an_empty_batch_is_no_trouble() -> None:
    batch = GapBook().tokens([], [], [])
    assert len(batch.slot) == 0
    assert batch.firsts == []
    assert batch.coalesced == {}


def test_coalesced_events_are_told_by_model() -> None:
    book = GapBook()
    a, b, c = book.open(0), book.open(5), book.open(5)
    batch, _ = read(book, (a, 0, 1), (b, 0, 3), (c, 0, 2))
    assert batch.coalesced == {5: 3}


# Time per output token


def test_tpot_of_one_stream() -> None:
    book = GapBook()
    a = book.open(0)
    read(book, *((a, 21 * i, 1) for i in range(101)))
    assert book.time_per_output_token([a]) == 0.021
    assert book.time_per_output_token([a], tokens=201) == 0.0105, "usage knows of two tokens to an event"


def test_tpot_of_choices_side_by_side_is_not_divided_by_their_number() -> None:
    book = GapBook()
    choices = [book.open(0) for _ in range(4)]
    for i in range(11):
        read(book, *((slot, 20 * i, 1) for slot in choices))
    assert book.time_per_output_token(choices) == 0.02
    assert book.time_per_output_token(choices, tokens=44) == 0.02


@pytest.mark.parametrize("reads", [[], [(0, 1)]])
def test_no_tpot_without_a_second_token(reads: list[tuple[int, int]]) -> None:
    book = GapBook()
    a = book.open(0)
    for time, events in reads:
        read(book, (a, time, events))
    assert book.time_per_output_token([a]) is None


def test_no_tpot_where_bytes_were_lost() -> None:
    book = GapBook()
    a = book.open(0)
    read(book, (a, 0, 1))
    book.hole(a)
    read(book, (a, 100, 1))
    assert book.time_per_output_token([a]) is None


# However the reads are batched, the facts are the same


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 30), st.integers(1, 3)), max_size=60),
    st.lists(st.integers(1, 20), max_size=20),
    st.randoms(use_true_random=False),
)
@settings(deadline=None)
def test_any_batching_and_order_gives_the_facts_of_a_loop(
    steps: list[tuple[int, int, int]], cuts: list[int], random: Random
) -> None:
    """Reads of five slots with pauses of 0-30 ms, against a plain loop over each slot's reads."""
    clock, reads = 0, []
    for slot, pause, events in steps:
        clock += pause
        reads.append((slot, clock, events))

    expected = []
    merged: dict[tuple[int, int], int] = {}
    for slot, time, events in reads:
        merged[slot, time] = merged.get((slot, time), 0) + events
    last: dict[int, int] = {}
    for slot, time in merged:
        if slot in last:
            expected.append((slot, last[slot], time))
        last[slot] = time

    book = GapBook()
    slots = [book.open(0) for _ in range(5)]
    found, firsts, coalesced = [], [], 0
    rest = list(reads)
    for cut in [*cuts, len(rest)]:
        part, rest = rest[:cut], rest[cut:]
        if part:
            random.shuffle(part)
            batch, gaps = read(book, *((slots[s], t, k) for s, t, k in part))
            found += [(slots.index(s), start, end) for s, start, end, _ in gaps]
            firsts += [slots.index(s) for s, _ in batch.firsts]
            coalesced += sum(batch.coalesced.values())
    assert sorted(found) == sorted(expected)
    assert sorted(firsts) == sorted(last)
    assert coalesced == sum(k for _, _, k in reads) - len(merged)


# Baselines through the book


def test_a_young_stream_has_the_baseline_of_its_model() -> None:
    book = GapBook()
    old, young, other = book.open(0), book.open(0), book.open(1)
    assert book.baseline(old) is None
    book.note_clear(np.full(10, old), np.full(10, 0.021))
    assert book.baseline(old) == pytest.approx(0.021)
    assert book.baseline(young) == pytest.approx(0.021)
    assert book.baseline(other) is None

    book.note_clear([young] * 5, [0.04] * 5)
    assert book.baseline(young) == pytest.approx(0.04)
    assert book.model_baseline(0) == pytest.approx(0.021)


def test_a_verdict_that_comes_late_is_not_charged_to_the_new_owner_of_the_slot() -> None:
    book = GapBook()
    a = book.open(0)
    read(book, *((a, 20 * i, 1) for i in range(10)))
    book.close(a)
    late: dict[str, list[int]] = {"models": [0] * 9, "start_ns": [20 * i * MS for i in range(9)]}

    book.note_clear([a] * 9, [0.02] * 9, **late)  # nobody owns the slot
    assert book.model_baseline(0) == pytest.approx(0.02)

    assert book.open(1) == a
    book.note_clear([a] * 9, [0.02] * 9, **late)  # the new owner has no token yet
    assert book.baseline(a) is None
    read(book, *((a, 1000 + 50 * i, 1) for i in range(7)))
    book.note_clear([a] * 9, [0.02] * 9, **late)
    assert book.baseline(a) is None
    assert book.model_baseline(1) is None

    book.note_clear([a] * 6, [0.05] * 6, [1] * 6, [(1000 + 50 * i) * MS for i in range(6)])
    assert book.baseline(a) == pytest.approx(0.05)


def test_a_model_whose_number_goes_to_another_is_forgotten() -> None:
    book = GapBook()
    a = book.open(0)
    book.note_clear([a] * 3, [0.021] * 3)
    assert book.model_baseline(0) == pytest.approx(0.021)
    book.forget_model(0)
    assert book.model_baseline(0) is None
