"""After any loss every gauge is true again within two seconds, and no freeze and no wait comes out of it."""

from __future__ import annotations

import pytest
from tests.core.lossy import Session, Story, describe, losses, recorded, scripted, smallest, tell

from prefillwatch.export import table

pytestmark = pytest.mark.apart

#: Whoever looks for more: `losses` and `scripted` take any number.
SEEDS = range(16)


def check(session: Session, ticks: set[float], *, keeps_books: bool = False) -> Story:
    """Fails with the fewest lost packets that are enough for it."""

    def story(lost: set[float]) -> Story:
        return tell(session, lost.__contains__, keeps_books=keeps_books)

    found = story(ticks)
    if found.wrong:
        fewest = smallest(ticks, lambda lost: bool(story(lost).wrong))
        pytest.fail(describe(session, fewest, story(fewest)))
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_gauges_are_true_again_whatever_was_lost(seed: int) -> None:
    session = scripted(seed)
    story = check(session, losses(seed, session))
    assert not story.dropped or story.holed.asks


@pytest.mark.parametrize("seed", SEEDS[::2])
def test_gauges_are_true_again_where_bodies_alone_were_lost(seed: int) -> None:
    session = scripted(seed)
    story = check(session, losses(seed, session), keeps_books=True)
    relay = story.holed.observed.taps.relays[0]
    assert (relay.closed, relay.taken_in, relay.caught_up) == (0, 0, 0)
    whole, holed = (side.observed.values(table.REQUESTS) for side in (story.whole, story.holed))
    assert sum(holed.values()) == sum(whole.values())


@pytest.mark.parametrize("name", ["mixed", "twelve-at-once", "preemption", "nobody-decoding"])
@pytest.mark.parametrize("seed", range(2))
def test_gauges_are_true_again_in_recordings_of_a_real_engine(name: str, seed: int) -> None:
    session = recorded(name, 12)
    check(session, losses(seed, session))


@pytest.mark.parametrize("seed", SEEDS[::2])
def test_nothing_that_was_lost_becomes_a_freeze_or_a_wait(seed: int) -> None:
    session = scripted(seed, calm=True)
    story = check(session, losses(seed, session))
    for side in (story.whole, story.holed):
        assert side.observed.observation.incidents(10) == []
        assert sum(side.observed.values(table.STALLS).values()) == 0


@pytest.mark.parametrize("seed", SEEDS[::4])
def test_no_token_is_made_up_and_no_gap_is_measured_across_a_loss(seed: int) -> None:
    session = scripted(seed, calm=True)
    story = check(session, losses(seed, session))
    whole, holed = (side.observed for side in (story.whole, story.holed))
    assert holed.values(table.GENERATED_TOKENS)[("m",)] <= whole.values(table.GENERATED_TOKENS)[("m",)]
    assert sum(holed.sums(table.INTER_TOKEN_LATENCY).values()) <= sum(whole.sums(table.INTER_TOKEN_LATENCY).values())
    assert sum(holed.counts(table.TIME_TO_FIRST_TOKEN).values()) <= sum(
        whole.counts(table.TIME_TO_FIRST_TOKEN).values()
    )


def test_the_smallest_loss_that_is_enough_is_found() -> None:
    fewest = smallest({float(tick) for tick in range(20)}, lambda lost: {3.0, 17.0} <= lost)
    assert fewest == {3.0, 17.0}
