"""For every test: a machine that is busy with something else is no fault of the code."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy machine")
