"""The two pressures for `/api/state`, and `/api/predict`: what a prompt would do that came now."""

from __future__ import annotations

from typing import Any

from prefillwatch.analysis.pressure import first_token_promise
from prefillwatch.core.view import View


def pressures_now(view: View) -> dict[str, Any]:
    """By model: each pressure with the parts that it is the largest of."""
    return {
        each.model: {
            "capacity_pressure_ratio": each.capacity,
            "pace": each.pace,
            "reading": each.reading,
            "waiting": each.waiting,
            "interference_pressure_ratio": each.interference,
            "gaps": each.gaps,
            "held_up": each.held_up,
        }
        for each in view.pressures
    }


def prediction(view: View, prompt_tokens: int, cached_tokens: int) -> dict[str, Any]:
    """For a prompt of so many tokens, of which so many are cached."""
    forecast = view.forecast(prompt_tokens, cached_tokens)
    known: dict[str, Any] = {
        "prompt_tokens": prompt_tokens,
        "cached_tokens": cached_tokens,
        "known": forecast is not None,
        "first_token_promise_seconds": first_token_promise(view.settings.slo, prompt_tokens),
        "gap_promise_seconds": view.settings.slo.itl,
    }
    if forecast is None:
        return {**known, "reason": f"too few engine steps with prompts were seen: {view.steps_seen}"}
    low_s, high_s = forecast.range_s or (None, None)
    return {
        **known,
        "first_token_seconds": forecast.first_token_s,
        "first_token_low_seconds": low_s,
        "first_token_high_seconds": high_s,
        "gap_seconds": forecast.gap_s,
        "streams": forecast.streams,
        "steps": forecast.steps,
        "queued_tokens": forecast.ahead,
    }
