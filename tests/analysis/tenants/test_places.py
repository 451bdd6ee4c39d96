"""Who has a place, by tokens in the last hour: taken, kept, lost and given back."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefillwatch.analysis.tenants import Places
from prefillwatch.analysis.tenants.places import WATCHED_PER_PLACE
from prefillwatch.units import NS

MINUTE_NS = 60 * NS
HOUR_NS = 60 * MINUTE_NS


def crowd(most: int, **tokens: int) -> Places:
    places = Places(most)
    for tenant, count in tokens.items():
        places.seen(tenant, count, HOUR_NS)
    return places


def test_places_are_taken_by_who_comes_first() -> None:
    places = Places(2)
    assert [places.seen(tenant, 1, NS) for tenant in ("a", "a", "b", "c")] == [1, None, 2, None]
    assert places.numbers == {"a": 1, "b": 2}


def test_an_outsider_with_more_than_twice_the_tokens_takes_the_place_of_the_smallest() -> None:
    places = crowd(2, a=100, b=50, c=100)
    assert places.give_anew(HOUR_NS) == []
    places.seen("c", 1, HOUR_NS)
    assert places.give_anew(HOUR_NS + 59 * NS) == [], "places are given anew once a minute"
    assert places.give_anew(HOUR_NS + MINUTE_NS) == [("b", "c", 2)]
    assert places.numbers == {"a": 1, "c": 2}


def test_two_of_one_size_do_not_take_turns() -> None:
    places = crowd(1, a=1000, b=1000)
    for minute in range(2, 50):
        places.seen(("a", "b")[minute % 2], 100, HOUR_NS + minute * MINUTE_NS)
        assert places.give_anew(HOUR_NS + minute * MINUTE_NS) == []


def test_who_had_nothing_for_an_hour_gives_its_place_up() -> None:
    places = crowd(2, a=100, b=100)
    places.seen("a", 1, HOUR_NS + 30 * MINUTE_NS)
    assert places.give_anew(2 * HOUR_NS) == [("b", "", 2)]
    assert places.numbers == {"a": 1}
    assert places.tokens("a") == 1
    assert places.seen("new", 0, 2 * HOUR_NS) == 2


def test_a_place_that_is_free_goes_to_the_largest_outsider() -> None:
    places = crowd(1, a=100, b=10, c=20)
    for tenant, tokens in (("b", 1), ("c", 2)):
        places.seen(tenant, tokens, HOUR_NS + 50 * MINUTE_NS)
    assert places.give_anew(2 * HOUR_NS) == [("a", "", 1), ("", "c", 1)]


def test_a_flood_of_names_pushes_nobody_out_and_fills_no_memory() -> None:
    places = crowd(20, **{f"known-{number}": 10_000 for number in range(20)})
    for number in range(10_000):
        now_ns = HOUR_NS + number * NS // 10
        assert places.seen(f"stranger-{number}", 100, now_ns) is None
        if number % 10 == 0:
            assert places.give_anew(now_ns) == []
    assert len(places) <= 20 * WATCHED_PER_PLACE
    assert all(name.startswith("known") for name in places.numbers)


def test_a_large_one_is_found_in_a_flood() -> None:
    places = crowd(3, a=10, b=10, c=10)
    for number in range(5000):
        places.seen(f"stranger-{number}", 1, HOUR_NS)
        if number % 100 == 0:
            places.seen("large", 1000, HOUR_NS)
    places.give_anew(HOUR_NS + MINUTE_NS)
    assert "large" in places.numbers


TENANTS = st.sampled_from([f"t{number}" for number in range(9)])


@given(st.lists(st.tuples(TENANTS, st.integers(0, 1000), st.integers(0, 20 * 60))))
def test_numbers_are_those_of_one_tenant_each(traffic: list[tuple[str, int, int]]) -> None:
    """Followed by the changes alone, whoever keeps books by number knows at any time whose they are."""
    places, known, now_ns = Places(3), dict[int, str](), HOUR_NS
    for tenant, tokens, seconds in traffic:
        now_ns += seconds * NS
        number = places.seen(tenant, tokens, now_ns)
        if number is not None:
            assert number not in known
            known[number] = tenant
        for loser, taker, number in places.give_anew(now_ns):
            assert known.pop(number, "") == loser
            if taker:
                known[number] = taker
        assert {name: number for number, name in known.items()} == places.numbers
        assert set(known) <= {1, 2, 3}


@pytest.mark.parametrize("when", [lambda ns: ns, lambda ns: ns - HOUR_NS])
def test_a_clock_that_seems_to_go_back_loses_nothing(when: Callable[[int], int]) -> None:
    places = crowd(1, a=5)
    places.seen("a", 7, when(HOUR_NS))
    assert places.tokens("a") == 12
