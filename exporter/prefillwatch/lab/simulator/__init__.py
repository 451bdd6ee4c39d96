"""A vLLM look-alike: an engine model that steps, and a server that speaks vLLM's HTTP interface on top of it."""

from prefillwatch.lab.simulator.cost import CostModel
from prefillwatch.lab.simulator.engine import Engine, EngineConfig, SimRequest, StepRecord
from prefillwatch.lab.simulator.presets import PRESETS, preset_engine
from prefillwatch.lab.simulator.server import SimServer, serve
from prefillwatch.lab.simulator.settings import SimSettings
from prefillwatch.lab.simulator.virtual import Arrival, Delivery, Pause, VirtualRun, run_virtual

__all__ = [
    "PRESETS",
    "Arrival",
    "CostModel",
    "Delivery",
    "Engine",
    "EngineConfig",
    "Pause",
    "SimRequest",
    "SimServer",
    "SimSettings",
    "StepRecord",
    "VirtualRun",
    "preset_engine",
    "run_virtual",
    "serve",
]
