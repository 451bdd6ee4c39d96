"""A recording gives the figures that the observer had then."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.recorder.scenes import SECRET, anything, engine_tells, every_shape, freeze, goes_bad, lossy, simulated
from tests.recorder.stage import Live, incidents, page, played, unpacked

from prefillwatch.recorder.file import RecordingFile
from prefillwatch.recorder.replay import Replay, ReplayClock

SCENES = [freeze, every_shape, simulated, engine_tells, goes_bad, lossy]


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("texts", [False, True])
def test_metrics_and_incidents_are_the_same(scene: Callable[[Live], None], texts: bool, tmp_path: Path) -> None:
    live = Live(tmp_path, texts=texts)
    scene(live)
    live.close()
    again = played(live.path)
    assert page(again) == page(live.observation)
    assert incidents(again) == incidents(live.observation)
    assert again.state()["streams"] == live.observation.state()["streams"]


@pytest.mark.parametrize("scene", SCENES)
def test_recording_changes_nothing(scene: Callable[[Live], None], tmp_path: Path) -> None:
    live, plain = Live(tmp_path), Live(tmp_path, plain=True)
    scene(live)
    scene(plain)
    assert page(live.observation) == page(plain.observation)
    assert incidents(live.observation) == incidents(plain.observation)


@pytest.mark.parametrize("seed", range(4))
def test_whatever_relays_say(seed: int, tmp_path: Path) -> None:
    live = Live(tmp_path)
    anything(live, seed)
    live.close()
    again = played(live.path)
    assert page(again) == page(live.observation)
    assert incidents(again) == incidents(live.observation)
    assert not _holds_text(live.path)


@pytest.mark.parametrize("seed", range(3))
def test_whoever_looks_at_a_replay_changes_nothing_in_it(seed: int, tmp_path: Path) -> None:
    live, rng = Live(tmp_path), random.Random(seed)
    anything(live, seed)
    live.close()
    with RecordingFile(live.path) as file:
        replay = Replay(file.header, ReplayClock())
        shown = replay.observation
        shown.viewers.join()
        for entry in file.entries():
            if rng.random() < 0.3:
                looks: list[Callable[[], object]] = [
                    shown.snapshot,
                    shown.page,
                    shown.state,
                    lambda: shown.incidents(9),
                ]
                rng.choice(looks)()
            replay.play(entry)
    assert page(shown) == page(played(live.path)) == page(live.observation)
    assert incidents(shown) == incidents(live.observation)


def test_the_scene_is_what_it_is_meant_to_be(tmp_path: Path) -> None:
    live = Live(tmp_path)
    freeze(live)
    (incident,) = incidents(live.observation)
    assert (incident["cause"], incident["victims"]) == ("prefill", 3)
    assert [culprit["request_id"] for culprit in incident["culprits"]] == ["the-culprit"]


def test_texts_are_in_the_file_only_when_asked_for(tmp_path: Path) -> None:
    live = Live(tmp_path, texts=True)
    every_shape(live)
    live.close()
    assert _holds_text(live.path)


def test_no_prompt_no_answer_and_no_secret_is_in_the_file(tmp_path: Path) -> None:
    live = Live(tmp_path)
    every_shape(live)
    live.close()
    assert any(SECRET.encode() in packet for packet in live.packets)
    assert not _holds_text(live.path)


def _holds_text(path: Path) -> bool:
    """Whether a text of the scenes, or a part of it, is in the file once it is taken out of its compression."""
    data = b"".join(unpacked(path))
    return any(word in data for word in (SECRET.encode(), b"Xyzzy", b"Geheim", b"merger", b"whatnan", b"what nan"))
