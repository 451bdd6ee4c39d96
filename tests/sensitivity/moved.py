"""A plugin for pytest: the tests run with one tunable moved, as PREFILLWATCH_MOVED says (``group.field factor``).

Tests build what they test with the default tuning. So it is the default that moves, in a process of its own and before
anything else of the analysis is imported.
"""

from __future__ import annotations

import os

from prefillwatch.analysis import tuning

_name, _factor = os.environ["PREFILLWATCH_MOVED"].split()
tuning.DEFAULT = tuning.DEFAULT.moved(_name, float(_factor))  # type: ignore[misc]
