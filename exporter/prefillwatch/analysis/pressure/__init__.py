"""How far over the promises: because there is too little of the server, or because prompts ride in steps."""

from prefillwatch.analysis.pressure.forecast import Forecast, Forecaster
from prefillwatch.analysis.pressure.formula import (
    Capacity,
    Interference,
    Load,
    Prompts,
    Riding,
    capacity,
    first_token_promise,
    interference,
    most_queued_tokens,
)
from prefillwatch.analysis.pressure.gauge import PressureGauge, StepShare
from prefillwatch.analysis.pressure.pressures import Pressures

__all__ = [
    "Capacity",
    "Forecast",
    "Forecaster",
    "Interference",
    "Load",
    "PressureGauge",
    "Pressures",
    "Prompts",
    "Riding",
    "StepShare",
    "capacity",
    "first_token_promise",
    "interference",
    "most_queued_tokens",
]
