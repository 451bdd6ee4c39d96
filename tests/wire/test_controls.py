"""Paths that stop the engine."""

from __future__ import annotations

import pytest

from prefillwatch.wire.controls import control_of, ended_by, reason_of


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/pause?mode=keep", "paused by request"),
        ("/resume", ""),
        ("/sleep?level=1", "asleep"),
        ("/v1/load_lora_adapter", "weight update"),
        ("/STOP_profile/", "profiler"),
        ("/scale_elastic_ep", "elastic scaling"),
    ],
)
def test_what_stops_the_engine_is_known_with_its_reason(path: str, reason: str) -> None:
    control = control_of(path)
    assert control is not None
    assert reason_of(control) == reason


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/score", "/", "", "/pause/now"])
def test_the_rest_stops_nothing(path: str) -> None:
    assert control_of(path) is None


def test_a_pause_lasts_until_somebody_lifts_it() -> None:
    assert ended_by("pause") == {"resume"}
    assert not ended_by("update_weights")
