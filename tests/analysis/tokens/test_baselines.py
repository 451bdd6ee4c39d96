"""What undisturbed streams look like, whatever disturbs them."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest

from prefillwatch.analysis.tokens.baselines import Baselines, lower_quantile


def note(baselines: Baselines, slots: npt.ArrayLike, gaps: npt.ArrayLike, model: int = 0) -> None:
    each, seconds = np.asarray(slots, dtype=np.int64), np.asarray(gaps, dtype=np.float64)
    baselines.note_slots(each, seconds)
    baselines.note_models(np.full(len(each), model), seconds)


def fresh(slots: int = 1) -> Baselines:
    baselines = Baselines()
    for slot in range(slots):
        baselines.open(slot)
    return baselines


def test_nothing_is_known_until_a_few_gaps_are() -> None:
    baselines = fresh()
    assert baselines.of_slot(0) is None
    note(baselines, [0, 0], [0.02, 0.02])
    assert baselines.of_slot(0) is None
    assert baselines.of_model(0) is None
    note(baselines, [0], [0.02])
    assert baselines.of_slot(0) is None
    assert baselines.of_model(0) == pytest.approx(0.02)
    note(baselines, [0, 0], [0.02, 0.02])
    assert baselines.of_slot(0) == pytest.approx(0.02)


@pytest.mark.parametrize(("newer", "expected"), [(500, 0.02), (600, 0.03)])
def test_the_last_thousand_gaps_of_a_model_count(newer: int, expected: float) -> None:
    baselines = fresh()
    for gap, count in ((0.02, 1500), (0.03, newer)):
        for _ in range(count):
            note(baselines, [0], [gap])
    assert baselines.of_model(0) == pytest.approx(expected)


@pytest.mark.parametrize(("batch", "kept"), [(16, 16), (20, 10), (64, 16)])
def test_no_batch_leaves_more_than_sixteen_gaps_to_its_model(batch: int, kept: int) -> None:
    baselines = fresh()
    note(baselines, [0] * batch, [0.02] * batch)
    assert len(baselines.newest(0, 1000)) == kept


def test_a_slow_start_does_not_stick() -> None:
    """The first gap after boot compiles for ten seconds."""
    baselines = fresh()
    note(baselines, [0] * 5, [10.0, 0.021, 0.022, 0.020, 0.021])
    assert baselines.of_slot(0) == pytest.approx(0.021)
    assert baselines.of_model(0) == pytest.approx(0.021)


def test_nearly_half_of_the_gaps_may_be_slow() -> None:
    baselines = fresh()
    for _ in range(16):
        note(baselines, [0, 0], [0.021, 5.0])
    assert baselines.of_slot(0) == pytest.approx(0.021)


def test_the_last_32_gaps_decide() -> None:
    baselines = fresh()
    note(baselines, [0] * 100, [0.02] * 100)
    note(baselines, [0] * 15, [0.036] * 15)
    assert baselines.of_slot(0) == pytest.approx(0.02)
    note(baselines, [0] * 2, [0.036] * 2)
    assert baselines.of_slot(0) == pytest.approx(0.036), "a slower clock is the new normal"


def test_it_is_the_exact_lower_median_of_what_it_holds() -> None:
    rng = np.random.default_rng(3)
    baselines = fresh(3)
    told: dict[int, list[float]] = {slot: [] for slot in range(3)}
    for _ in range(40):
        slots = rng.integers(0, 3, rng.integers(1, 50))
        gaps = rng.lognormal(-4, 1, len(slots))
        note(baselines, slots, gaps)
        for slot, gap in zip(slots, gaps, strict=True):
            told[slot].append(gap)
        for slot, history in told.items():
            if len(history) >= 5:
                window = np.sort(history[-32:])
                assert baselines.of_slot(slot) == pytest.approx(window[(len(window) - 1) // 2], rel=1e-6)


def test_one_crowded_batch_does_not_turn_the_model() -> None:
    """A thousand streams that come once, slow, weigh no more than sixteen gaps."""
    baselines = fresh(1000)
    for _ in range(40):
        note(baselines, [0], [0.021])
    note(baselines, range(1000), np.full(1000, 0.5))
    assert baselines.of_model(0) == pytest.approx(0.021)


def test_models_are_kept_apart() -> None:
    baselines = fresh()
    models = np.array([0, 1, 0, 1] * 3)
    baselines.note_models(models, np.where(models == 0, 0.01, 0.05))
    assert baselines.of_model(0) == pytest.approx(0.01)
    assert baselines.of_model(1) == pytest.approx(0.05)
    assert baselines.of_model(2) is None


def test_while_no_gap_of_a_model_is_clear_its_quickest_gaps_show_its_pace() -> None:
    """Three in four are longer for the prompts in them. The first few may all be of one prompt, and do not count."""
    baselines, models = fresh(), np.zeros(4, dtype=np.int64)
    disturbed = np.array([0.2, 0.3, 0.4, 0.5])
    for _ in range(15):
        baselines.note_disturbed(models, disturbed)
    assert baselines.of_disturbed(0) is None
    baselines.note_disturbed(models, disturbed)
    assert baselines.of_disturbed(0) == pytest.approx(0.2)
    assert baselines.of_disturbed(1) is None
    assert baselines.of_model(0) is None
    note(baselines, [0] * 3, [0.02] * 3)
    baselines.note_disturbed(models, disturbed)
    assert baselines.of_disturbed(0) is None
    assert baselines.of_model(0) == pytest.approx(0.02)


def test_the_pace_is_the_lower_quartile() -> None:
    baselines, models = fresh(), np.zeros(10, dtype=np.int64)
    for _ in range(7):
        baselines.note_disturbed(models, np.array([0.1, 0.1, 0.3, *[0.4] * 7]))
    assert baselines.of_disturbed(0) == pytest.approx(0.3)


def test_what_was_disturbed_is_forgotten_with_the_model() -> None:
    baselines = fresh()
    for _ in range(8):
        baselines.note_disturbed(np.zeros(16, dtype=np.int64), np.full(16, 0.2))
    assert baselines.of_disturbed(0) == pytest.approx(0.2)
    baselines.forget_model(0)
    assert baselines.of_disturbed(0) is None


@pytest.mark.parametrize(("values", "median"), [([3], 3), ([1, 2], 1), ([3, 1, 2], 2), ([4, 3, 2, 1], 2)])
def test_lower_median(values: list[int], median: int) -> None:
    assert lower_quantile(np.array(values, dtype=np.float32)) == median


def test_of_many_slots_at_once_as_of_each() -> None:
    baselines, draw = fresh(), np.random.default_rng(1)
    for slot, count in enumerate([0, 1, 4, 5, 6, 31, 32, 33, 100]):
        baselines.open(slot)
        if count:
            note(baselines, [slot] * count, draw.uniform(0.01, 0.5, count))
    slots = draw.permutation(9)
    one_by_one = [baselines.of_slot(slot) for slot in slots.tolist()]
    together = baselines.of_slots(slots).tolist()
    assert [None if math.isnan(each) else each for each in together] == one_by_one
