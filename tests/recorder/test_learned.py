"""What was learned, handed on: the same figures, and new ones take their place as they come."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
from tests.recorder.scenes import taught
from tests.recorder.stage import Live

from prefillwatch.core.learned import Learned, recall
from prefillwatch.recorder import entries
from prefillwatch.recorder.chunks import Kind


def handed_on(live: Live) -> Learned:
    told: Learned = entries.decode(Kind.LEARNED, entries.encode(live.observation.core.learned()))
    return told


def test_whoever_recalls_it_knows_the_same(tmp_path: Path) -> None:
    first, second = Live(tmp_path, plain=True), Live(tmp_path, plain=True)
    taught(first, 1500, 340.0)
    told = handed_on(first)
    assert 0.15e6 < told.engine.cost.token_ns < 0.25e6
    recall(told, second.observation.core._ledger, second.observation.core.names)
    again = handed_on(second)
    assert again.engine == told.engine
    assert again.clear_steps == told.clear_steps
    assert again.models == told.models


def test_a_server_that_turns_out_otherwise_is_learned_anew(tmp_path: Path) -> None:
    first, second = Live(tmp_path, plain=True), Live(tmp_path, plain=True)
    taught(first, 1500, 340.0)
    told = handed_on(first)
    dearer = told.engine.cost.scaled(5.0)
    told = msgspec.structs.replace(told, engine=replace(told.engine, cost=dearer))
    recall(told, second.observation.core._ledger, second.observation.core.names)
    assert handed_on(second).engine.cost == dearer
    taught(second, 1500, 340.0, "another")
    assert 0.15e6 < handed_on(second).engine.cost.token_ns < 0.25e6


def test_a_model_that_is_not_served_any_more_is_left_out(tmp_path: Path) -> None:
    first, second = Live(tmp_path, plain=True), Live(tmp_path, plain=True, served=("another",))
    taught(first, 700, 200.0)
    told = handed_on(first)
    assert list(told.models) == ["m"]
    recall(told, second.observation.core._ledger, second.observation.core.names)
    assert handed_on(second).models == {}
