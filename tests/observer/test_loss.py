"""After any loss every gauge is true again within two seconds."""

from __future__ import annotations

import pytest
from tests.observer.lossy import Session, Story, describe, losses, scripted, smallest, tell


def check(session: Session, ticks: set[float], *, keeps_books: bool = False) -> Story:
    """Raises with the fewest lost packets that are enough for it."""

    def story(lost: set[float]) -> Story:
        return tell(session, lost.__contains__, keeps_books=keeps_books)

    found = story(ticks)
    if found.wrong:
        fewest = smallest(session, ticks, lambda lost: bool(story(lost).wrong))
        pytest.fail(describe(session, fewest, story(fewest)))
    return found


@pytest.mark.parametrize("seed", range(60))
def test_gauges_are_true_again_whatever_was_lost(seed: int) -> None:
    session = scripted(seed)
    check(session, losses(seed, session))


@pytest.mark.parametrize("seed", range(60, 90))
def test_gauges_are_true_again_where_bodies_alone_were_lost(seed: int) -> None:
    session = scripted(seed)
    check(session, losses(seed, session), keeps_books=True)
