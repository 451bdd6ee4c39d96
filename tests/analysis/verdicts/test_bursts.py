"""Which bursts look like those of a hop. Times in milliseconds."""

from __future__ import annotations

import pytest

from prefillwatch.analysis.tuning import DEFAULT
from prefillwatch.analysis.verdicts.bursts import Bursts
from prefillwatch.units import MS

#: What a stream that flows takes per token; 0: none ever did.
UNKNOWN_NS = 0


def stream(bursts: Bursts, *lengths: float, silence: float = 2000, events: int = 100) -> float:
    """Bursts of one stream, as long as these, with the same silence around each; when the last one ended."""
    at = 10_000.0
    bursts.begin(0, round(silence * MS), round(at * MS))
    for number, length in enumerate(lengths, 1):
        bursts.gap(0, round((at + length) * MS), round((at + length + silence) * MS), events * number)
        at += length + silence
    return at - silence


def held(*lengths: float, silence: float = 2000, events: int = 100) -> int:
    bursts = Bursts(DEFAULT.verdicts)
    end = stream(bursts, *lengths, silence=silence, events=events)
    return bursts.around(round(end * MS), round((end + silence) * MS), UNKNOWN_NS)


@pytest.mark.parametrize(("length", "found"), [(290, 3), (310, 0)])
def test_a_hop_lets_go_in_a_seventh_of_the_time_that_it_collects(length: float, found: int) -> None:
    assert held(length, length, length) == found


@pytest.mark.parametrize(("pace", "found"), [(4.9, 3), (5.1, 0)])
def test_tokens_quicker_than_five_milliseconds_are_no_steps(pace: float, found: int) -> None:
    length = pace * 49
    assert held(length, length, length, silence=5000, events=50) == found


@pytest.mark.parametrize(("others", "found"), [(2, 8), (3, 0)])
def test_four_fifths_of_all_bursts_have_to_be_so(others: int, found: int) -> None:
    assert held(*[500.0] * others, *[50.0] * 8, silence=1000) == found


@pytest.mark.parametrize(("later_s", "found"), [(19.5, True), (20.5, False)])
def test_bursts_more_than_twenty_seconds_ago_say_nothing(later_s: float, found: bool) -> None:
    bursts = Bursts(DEFAULT.verdicts)
    later_ns = round((stream(bursts, 100, 100, 100) + later_s * 1000) * MS)
    assert bool(bursts.around(later_ns, later_ns + 1000 * MS, UNKNOWN_NS)) is found
