"""The words for why upstream could not be read."""

from __future__ import annotations

from prefillwatch.engine.errors import FetchReason
from prefillwatch.export import table


def test_each_reason_is_the_label_value_of_its_name() -> None:
    assert {reason.value: reason.name.lower() for reason in FetchReason} == {str(each): each for each in FetchReason}
    (label,) = table.UPSTREAM_SCRAPE_FAILURES.labels
    assert label.values == tuple(reason.value for reason in FetchReason)
    assert all(type(value) is str for value in label.values)
