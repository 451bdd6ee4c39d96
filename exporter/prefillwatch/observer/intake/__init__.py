"""What comes in beside the taps: the steps that plugins inside engines report, and figures of our own processes."""

from prefillwatch.observer.intake.engine_link import MAX_LINKS, EngineLink
from prefillwatch.observer.intake.procfs import ProcessFigures, read_process

__all__ = ["MAX_LINKS", "EngineLink", "ProcessFigures", "read_process"]
