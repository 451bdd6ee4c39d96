"""Reads of decoding streams become engine steps. Timelines in milliseconds."""

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from prefillwatch.analysis.cost import ClearStep
from prefillwatch.analysis.steps.heartbeat import Heartbeat, Step
from prefillwatch.units import MS


def feed(heartbeat: Heartbeat, *reads: tuple[float, str]) -> list[tuple[float, float, int]]:
    """Reads as (ms, letter of the stream); steps as (start ms, end ms, streams)."""
    ordered = sorted(reads)
    slots = np.array([ord(stream) - ord("a") for _, stream in ordered], np.int64)
    times = np.array([round(ms * MS) for ms, _ in ordered], np.int64)
    return told(heartbeat.feed(slots, times))


def told(steps: list[Step]) -> list[tuple[float, float, int]]:
    return [(step.start_ns / MS, step.end_ns / MS, step.streams) for step in steps]


def clear_of(duration_ms: float = 10) -> ClearStep:
    """It is known how long a clear step takes."""
    clear = ClearStep()
    for _ in range(20):
        clear.observe(round(duration_ms * MS), 3, waiting=False)
    return clear


def beating(streams: str, *, until: int, every: int = 10) -> Heartbeat:
    """A heartbeat that has seen steps of 10 ms, and knows that a clear one takes as long."""
    heartbeat = Heartbeat(clear_of(every))
    for index, _ in enumerate(streams):
        heartbeat.joined(index, 0)
    feed(heartbeat, *((ms, stream) for ms in range(every, until + 1, every) for stream in streams))
    return heartbeat


def test_a_stream_that_reads_again_opens_a_new_step() -> None:
    heartbeat = Heartbeat(ClearStep())
    heartbeat.joined(0, 0)
    heartbeat.joined(1, 0)
    steps = feed(heartbeat, (10, "a"), (10.4, "b"), (20, "a"), (20.1, "b"), (30, "a"))
    assert steps == [(0, 10, 2), (10, 20, 2)]


def test_a_step_over_several_batches_is_one_step() -> None:
    heartbeat = beating("abc", until=200)
    assert feed(heartbeat, (210, "a")) == [(190, 200, 3)]
    assert feed(heartbeat, (211, "b")) == []
    assert feed(heartbeat, (212, "c"), (220, "a")) == [(200, 210, 3)]


def test_what_a_clear_step_takes_is_asked_for() -> None:
    assert beating("abc", until=500).clear_step_ns == 10 * MS
    assert Heartbeat(ClearStep()).clear_step_ns == 0


def test_streams_that_read_a_step_apart_are_not_one_step() -> None:
    heartbeat = beating("ab", until=500)
    steps = feed(heartbeat, (510, "a"), (519, "b"), (530, "a"), (530, "b"))
    assert steps == [(490, 500, 2), (500, 510, 1), (510, 519, 1)]


def test_a_step_that_went_quiet_is_closed_by_flush() -> None:
    heartbeat = beating("ab", until=500)
    assert told(heartbeat.flush(505 * MS)) == []
    assert told(heartbeat.flush(509 * MS)) == [(490, 500, 2)]
    assert told(heartbeat.flush(600 * MS)) == []
    assert feed(heartbeat, (510, "a"), (520, "a")) == [(500, 510, 1)]


def test_closed_up_to_tells_which_reads_have_their_step() -> None:
    heartbeat = beating("ab", until=500)
    assert 490 * MS < heartbeat.closed_ns < 500 * MS
    heartbeat.flush(509 * MS)
    assert heartbeat.closed_ns == 509 * MS


def test_after_a_long_step_delivery_spreads_wider() -> None:
    heartbeat = beating("abcd", until=500)
    spread = [(800, "a"), (803, "b"), (809, "c"), (812, "d")]
    assert feed(heartbeat, *spread, *((820, s) for s in "abcd"), *((830, s) for s in "abcd"))[1:] == [
        (500, 800, 4),
        (800, 820, 4),
    ]


def test_a_read_owed_from_a_long_step_opens_no_step_of_its_own() -> None:
    heartbeat = beating("abc", until=500)
    # "a" is in the step after the long one while "c" still gets its read of the long one, and then its next.
    reads = [
        (800, "a"),
        (801, "b"),
        (810, "a"),
        (810.5, "c"),
        (811, "b"),
        (811.5, "c"),
        (820, "a"),
        (820, "b"),
        (820, "c"),
    ]
    assert feed(heartbeat, *reads, (830, "a")) == [(490, 500, 3), (500, 800, 2), (800, 810, 3), (810, 820, 3)]


def test_after_an_idle_time_the_first_token_starts_the_clock() -> None:
    heartbeat = beating("a", until=500)
    heartbeat.left(0)
    heartbeat.joined(1, 900 * MS)
    assert feed(heartbeat, (910, "b"), (920, "b")) == [(490, 500, 1), (900, 910, 1)]


def test_a_stream_that_joins_others_does_not_move_the_clock() -> None:
    heartbeat = beating("a", until=500)
    heartbeat.joined(1, 505 * MS)
    assert feed(heartbeat, (510, "a"), (510, "b"), (520, "a")) == [(490, 500, 1), (500, 510, 2)]


def test_leaving_and_joining_within_one_batch() -> None:
    heartbeat = beating("a", until=500)
    heartbeat.left(0)
    heartbeat.joined(0, 700 * MS)  # the slot of another stream now
    assert feed(heartbeat, (510, "a"), (710, "a"), (720, "a")) == [(490, 500, 1), (500, 510, 1), (700, 710, 1)]


def test_one_that_leaves_makes_room_for_the_next_before_its_last_reads_are_fed() -> None:
    heartbeat = beating("a", until=500)
    heartbeat.leaves()
    heartbeat.joined(1, 700 * MS)
    assert feed(heartbeat, (510, "a"), (710, "b"), (720, "b")) == [(490, 500, 1), (500, 510, 1), (700, 710, 1)]
    heartbeat.left(0)
    heartbeat.joined(2, 725 * MS)
    assert feed(heartbeat, (730, "b"), (730, "c"), (740, "b")) == [(710, 720, 1), (720, 730, 2)]


def test_one_that_was_said_to_leave_and_goes_on_keeps_the_clock() -> None:
    heartbeat = beating("a", until=500)
    heartbeat.leaves()
    heartbeat.stays()
    heartbeat.joined(1, 700 * MS)
    assert feed(heartbeat, (710, "a"), (710, "b"), (720, "a")) == [(490, 500, 1), (500, 710, 2)]


def test_no_step_is_measured_across_a_hole() -> None:
    heartbeat = beating("ab", until=500)
    heartbeat.hole()
    assert feed(heartbeat, (540, "a"), (540, "b"), (550, "a"), (550, "b"), (560, "a")) == [(540, 550, 2)]


def test_streams_that_read_together_have_the_pace_of_the_steps() -> None:
    assert beating("abcd", until=100).pace_ns == 10 * MS
    half = beating("abcd", until=100)
    half.joined(4, 100 * MS)  # it has just begun
    assert half.pace_ns == 10 * MS


def test_streams_that_read_one_after_another_have_a_slower_pace_than_the_steps() -> None:
    heartbeat = Heartbeat(clear_of(10))
    for slot in range(8):
        heartbeat.joined(slot, 0)
    feed(heartbeat, *((10 * number, "abcdefgh"[number % 8]) for number in range(1, 64)))
    assert heartbeat.clear_step_ns == 10 * MS
    assert heartbeat.pace_ns == 80 * MS


def test_the_pace_is_not_known_before_steps_are() -> None:
    assert Heartbeat(ClearStep()).pace_ns == 0


def test_no_reads_no_steps() -> None:
    heartbeat = Heartbeat(ClearStep())
    assert heartbeat.feed(np.array([], np.int64), np.array([], np.int64)) == []
    assert heartbeat.flush(10**12) == []


def test_more_streams_than_ever_before() -> None:
    heartbeat = Heartbeat(ClearStep())
    slots = np.arange(5000)
    for beat in range(1, 30):
        heartbeat.feed(slots, np.full(5000, beat * 10 * MS))
    assert told(heartbeat.flush(10**12)) == [(280, 290, 5000)]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_cut_into_batches_gives_the_same_steps(data: st.DataObject) -> None:
    """With delivery that jitters, streams that come and go, and long steps in between."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    reads: list[tuple[int, int]] = []
    now = 0
    for _ in range(40):
        now += int(rng.choice([10, 10, 10, 10, 300])) * MS
        reads += [(now + int(rng.integers(0, 3 * MS)), slot) for slot in range(4) if rng.random() < 0.9]
    reads.sort()
    times = np.array([at for at, _ in reads], np.int64)
    slots = np.array([slot for _, slot in reads], np.int64)
    whole, parts = Heartbeat(clear_of(10)), Heartbeat(clear_of(10))
    expected = whole.feed(slots, times)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(reads)), max_size=12)))
    found: list[Step] = []
    for begin, end in zip([0, *cuts], [*cuts, len(reads)], strict=True):
        found += parts.feed(slots[begin:end], times[begin:end])
    assert found == expected
    assert sum(step.streams for step in expected) <= len(reads)
    assert all(before.end_ns <= after.start_ns for before, after in pairwise(expected))
