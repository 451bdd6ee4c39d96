"""Every query of every panel against a real Prometheus that scrapes two demos: each must find something.

One demo is the article's server; the other is short of KV cache, so that requests wait and preempt each other.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from grafana.render.capture import ask
from grafana.render.model import Frame, defaults, load_all, panels
from grafana.render.stage import SCRAPE_EVERY_S, Prometheus, Replica, on_stage

pytestmark = pytest.mark.e2e

TRAFFIC_SECONDS = 40
DEMOS = (Replica("article", ("--tenants",)), Replica("small-kv", ("--preset", "tiny-kv", "--seed", "3")))

#: Series that need not exist in the demos, each with the reason.
MAY_BE_ABSENT = {
    "prefillwatch_gpu_memory_used_bytes": "there is no GPU here",
    "prefillwatch_gpu_memory_free_bytes": "there is no GPU here",
    "prefillwatch_prefill_cost_seconds_per_token": "appears when enough steps have been seen to learn it",
    "prefillwatch_prefill_cost_fit_ratio": "appears when enough steps have been seen to learn it",
    "prefillwatch_baseline_step_seconds": "appears when enough steps have been seen to learn it",
    "prefillwatch_advised_max_batched_tokens": "appears when enough steps have been seen to learn it",
    "prefillwatch_waits_total": "appears with the first request that waits longer than its size deserves",
    "up": "every demo answers",
}

QUERIES = [
    pytest.param(
        uid, panel["id"], target["refId"], id=f"{uid.removeprefix('prefillwatch-')}: {panel['title']} {target['refId']}"
    )
    for uid, dashboard in load_all().items()
    for panel in panels(dashboard)
    for target in panel["targets"]
]


@dataclass(frozen=True, slots=True)
class Played:
    prometheus: Prometheus
    frame: Frame


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    """The demos have run for a while, and still run while they are asked about."""
    with on_stage(DEMOS, tmp_path_factory.mktemp("stage")) as prometheus:
        start = time.time()
        time.sleep(TRAFFIC_SECONDS)
        yield Played(prometheus, Frame(start, start + TRAFFIC_SECONDS, SCRAPE_EVERY_S, SCRAPE_EVERY_S))


@pytest.mark.parametrize(("uid", "panel_id", "ref_id"), QUERIES)
def test_a_query_finds_something(played: Played, uid: str, panel_id: int, ref_id: str) -> None:
    dashboard = load_all()[uid]
    (panel,) = (panel for panel in panels(dashboard) if panel["id"] == panel_id)
    (target,) = (target for target in panel["targets"] if target["refId"] == ref_id)
    series = _asked(played, target, defaults(dashboard))
    if any(re.search(rf"\b{name}\b", target["expr"]) for name in MAY_BE_ABSENT) and not series:
        return
    assert _numbers(series), target["expr"]
    _legend_is_complete(target, series)


@pytest.mark.parametrize("uid", load_all())
def test_freezes_are_marked(played: Played, uid: str) -> None:
    dashboard = load_all()[uid]
    (freezes,) = (mark for mark in dashboard["annotations"]["list"] if mark["name"] == "Freezes")
    series = ask(played.prometheus, freezes["target"], defaults(dashboard), played.frame)
    assert all(set(one["metric"]) == {"cause"} for one in series)
    if uid == "prefillwatch-interference":
        assert any(one["metric"]["cause"] == "prefill" for one in series)


@pytest.mark.parametrize(("name", "expected"), [("job", {"prefillwatch"}), ("instance", {"article", "small-kv"})])
def test_variables_offer_what_there_is(played: Played, name: str, expected: set[str]) -> None:
    found = played.prometheus.label_values("prefillwatch_build_info", name, played.frame.start, played.frame.end)
    assert set(found) == expected


def _asked(played: Played, target: dict[str, Any], variables: dict[str, str]) -> list[dict[str, Any]]:
    """What is asked about this moment alone may be absent in any one moment: nobody waits, nothing streams. Then any
    moment of the run will do."""
    if target.get("instant") and "$__range" not in target["expr"]:
        target = {**target, "instant": False}
    return ask(played.prometheus, target, variables, played.frame)


def _numbers(series: list[dict[str, Any]]) -> list[str]:
    samples = [sample for one in series for sample in (one.get("values") or [one["value"]])]
    return [value for _, value in samples if value != "NaN"]


def _legend_is_complete(target: dict[str, Any], series: list[dict[str, Any]]) -> None:
    for part in target["legendFormat"].split("{{")[1:]:
        label = part.partition("}}")[0]
        assert all(label in one["metric"] for one in series), f"no label {label} for the legend"
