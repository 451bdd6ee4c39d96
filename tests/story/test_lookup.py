"""Which account is meant."""

from __future__ import annotations

import pytest
from tests.story.facts import account, incident, stream

from prefillwatch.story import UnknownIncidentError, find

NEW = account(incident=incident(id="x-3"), streams=(stream("document"),), prompts=())
MIDDLE = account(incident=incident(id="x-2"))
OLD = account(incident=incident(id="x-1"), streams=(stream("reader"),))
ALL = [NEW, MIDDLE, OLD]


def test_by_the_id_of_the_incident() -> None:
    assert find(ALL, "x-1") is OLD


def test_without_an_id_the_newest() -> None:
    assert find(ALL, "") is NEW


def test_a_request_is_told_by_what_it_is_to_blame_for_rather_than_by_what_it_suffered() -> None:
    assert find(ALL, "document") is MIDDLE


def test_a_request_that_only_suffered() -> None:
    assert find(ALL, "reader") is OLD


def test_an_unknown_one_names_those_that_there_are() -> None:
    with pytest.raises(UnknownIncidentError) as found:
        find(ALL, "y-9")
    assert str(found.value).startswith(
        "no incident or request 'y-9' is known; there are x-3 (Freeze by prefill, 600 ms)"
    )
    assert "x-1" in str(found.value)


def test_of_many_the_newest_are_named() -> None:
    with pytest.raises(UnknownIncidentError, match="and 12 older"):
        find([OLD] * 20, "y")


def test_where_there_is_none_it_says_so() -> None:
    with pytest.raises(UnknownIncidentError, match="no incident is known"):
        find([], "x-1")
