"""The engine's steps as seen from the wire: the heartbeat, and which prompts were read in which step."""

from prefillwatch.analysis.steps.heartbeat import Heartbeat, Step
from prefillwatch.analysis.steps.history import Overlap
from prefillwatch.analysis.steps.packing import Engine
from prefillwatch.analysis.steps.timeline import PrefillTimeline, StepFacts

__all__ = ["Engine", "Heartbeat", "Overlap", "PrefillTimeline", "Step", "StepFacts"]
