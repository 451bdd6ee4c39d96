"""How far over the promises: because there is too little of the server, or because prompts ride in steps."""

from prefillwatch.analysis.pressure.formula import (
    Capacity,
    Interference,
    Load,
    Riding,
    capacity,
    first_token_promise,
    interference,
)
from prefillwatch.analysis.pressure.gauge import PressureGauge, StepShare

__all__ = [
    "Capacity",
    "Interference",
    "Load",
    "PressureGauge",
    "Riding",
    "StepShare",
    "capacity",
    "first_token_promise",
    "interference",
]
