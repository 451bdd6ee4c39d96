"""What teaches the yardsticks: neither a delay, nor what it held back, nor work that nobody can read."""

from __future__ import annotations

import pytest
from tests.scenarios.playbook import Scene, beat, slow

from prefillwatch.export import table


def baseline_ms(scene: Scene) -> float:
    (model,) = scene.observed.ledger.models
    found = scene.observed.ledger.book.model_baseline(model)
    assert found is not None
    return 1000 * found


def score(scene: Scene, at: float, until: float, path: str = "/some/scoring") -> None:
    """A request on an endpoint that nobody reads."""
    streams: list[int] = []
    scene.at(at, lambda relay: streams.append(relay.request(at, {"items": ["a text"] * 10}, path)))
    scene.at(until, lambda relay: relay.response(until, streams[0], content_type="application/json"))
    scene.at(until + 1, lambda relay: relay.end(until + 1, streams[0]))


def test_work_that_nobody_reads_is_neither_clear_nor_a_pause() -> None:
    scene = Scene()
    scene.victims(8, beat(15, 12_000, *slow(5000, 10_000, 105)))
    for number in range(100):
        score(scene, 4990 + 50 * number, 5090 + 50 * number)
    scene.healthy(500, 12_000, running=8)
    scene.play(until=9900)
    assert baseline_ms(scene) == pytest.approx(15, abs=1)
    assert scene.observed.ledger.engines.clear_step_ns / 1e6 == pytest.approx(15, abs=1)
    assert scene.observed.values(table.INTER_TOKEN_LATENCY_P99)[("m", "1m", "clear")] < 0.03
    scene.play()
    assert set(scene.stalls()) == {"unattributed"}
    assert all(each["evidence"]["unread_requests"] for each in scene.incidents())


def test_a_plateau_that_nobody_caused_becomes_the_baseline_slowly() -> None:
    scene = Scene()
    scene.victims(8, beat(22, 45_000, *slow(5000, 44_000, 110)))
    scene.play(until=12_000)
    assert baseline_ms(scene) == pytest.approx(22, abs=1)
    scene.play(until=44_000)
    assert baseline_ms(scene) == pytest.approx(110, abs=5)


def test_a_plateau_that_is_over_soon_teaches_nothing() -> None:
    scene = Scene()
    for begun in (5000, 12_000, 19_000):
        scene.victims(4, beat(22, 25_000, *slow(begun, begun + 4000, 110)), ends=False)
    scene.play(until=24_900)
    assert baseline_ms(scene) == pytest.approx(22, abs=1)
