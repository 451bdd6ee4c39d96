"""For every test: a machine that is busy with something else is no fault of the code, and examples stay the same."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

#: Examples are the same in each run: a new one that fails is a finding of who looks for one, not of whoever comes by.
#: ``PWTEST_SEARCH=1`` makes new ones.
SEARCH = "PWTEST_SEARCH"

settings.register_profile(
    "busy machine",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=SEARCH not in os.environ,
)
settings.load_profile("busy machine")
