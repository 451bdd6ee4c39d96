"""Stalls and waits, what speaks for and against each cause, and the incidents that come of them."""

from prefillwatch.analysis.verdicts.evidence import EnginePage
from prefillwatch.analysis.verdicts.stalls import Silence, StallWatch
from prefillwatch.analysis.verdicts.tracker import StallTracker

__all__ = [
    "EnginePage",
    "Silence",
    "StallTracker",
    "StallWatch",
]
