"""The engines behind one door: each stream is assigned to one by how it moves, and each has a step clock of its own."""

from prefillwatch.analysis.engines.engines import Engines

__all__ = ["Engines"]
