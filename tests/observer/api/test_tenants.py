"""`/api/tenants` and what the live page shows of it: the largest, and nothing lost."""

from __future__ import annotations

from typing import Any

from tests.core.script import Observed
from tests.scenarios.playbook import Scene, beat

from prefillwatch.analysis.settings import AnalysisSettings
from prefillwatch.core.view import BlameNow
from prefillwatch.observer.api import tenants_now, tenants_shown
from prefillwatch.observer.api.tenants import MOST_SHOWN, _matrix


def blame(*pairs: tuple[str, str, float]) -> list[BlameNow]:
    return [BlameNow(*pair) for pair in pairs]


def test_a_matrix_has_the_largest_of_each_side_first() -> None:
    found = _matrix(blame(("a", "b", 1.0), ("b", "a", 5.0), ("b", "c", 2.0), ("b", "b", 1.0)), most=20)
    assert found == {
        "culprits": ["b", "a"],
        "victims": ["a", "b", "c"],
        "stall_seconds": [[5.0, 1.0, 2.0], [0.0, 1.0, 0.0]],
        "rest_seconds": 0.0,
    }


def test_what_is_in_no_row_or_column_is_the_rest() -> None:
    pairs = [(f"c{number}", f"v{number}", 1.0 + number) for number in range(10)]
    found = _matrix(blame(*pairs), most=3)
    assert found["culprits"] == ["c9", "c8", "c7"]
    assert sum(map(sum, found["stall_seconds"])) + found["rest_seconds"] == sum(seconds for _, _, seconds in pairs)


def scene(**settings: Any) -> Scene:
    found = Scene(AnalysisSettings(**settings))
    for number in range(MOST_SHOWN + 2):
        found.victims(1, beat(21, 12_000, (5000, 830)), tenant=f"tenant-{number}")
    found.prompt(4900, 6000, tenant="batch").answers(beat(21, 6200, start=5830)).ends(6210)
    return found.play()


def test_all_of_it() -> None:
    found = tenants_now(scene(max_tenants=20, priorities=True).observed.view())
    assert found["tenants"][0]["tenant"] == "batch"
    assert found["tenants"][0]["tokens_last_hour"] > 6000
    assert found["tenants"][-1]["tenant"] == "other"
    assert [each["priority"] for each in found["priorities"]] == ["<-1", "-1", "0", "1", ">1"]
    victim = next(each for each in found["tenants"] if each["tenant"] == "tenant-0")
    assert victim["stall_seconds_suffered"] > 0.7
    assert (victim["stall_seconds_caused"], victim["stall_seconds_by_itself"]) == (0.0, 0.0)
    assert set(victim["inter_token_latency_p99_seconds"]) == {"10s", "1m", "5m"}


def test_the_page_has_room_for_few() -> None:
    shown = tenants_shown(scene(max_tenants=20).observed.view())
    assert shown is not None
    assert len(shown["tenants"]) == MOST_SHOWN
    assert len(shown["tenant_matrix"]["victims"]) == MOST_SHOWN
    assert shown["tenant_matrix"]["rest_seconds"] > 1.0


def test_off_there_is_nothing() -> None:
    found = tenants_now(scene().observed.view())
    assert not found["tenants"]
    assert not found["priorities"]
    assert tenants_shown(Observed().view()) is None
