"""Requests that are refused for want of room."""

from __future__ import annotations

from alerts.rulebook.source import SOURCE, load

from prefillwatch.observer.process import WANT_OF_ROOM
from prefillwatch.wire.reasons import RelayReason


def test_the_reasons_that_are_told_of_are_there_from_the_beginning() -> None:
    words = load(SOURCE).words("refused_for_want_of_room")
    assert sorted(words) == sorted(WANT_OF_ROOM)
    assert set(words) <= {str(reason) for reason in RelayReason}
