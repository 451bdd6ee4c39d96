"""Looks that several panels of lines have. Without one of these, lines begin at zero and the legend has the most."""

from __future__ import annotations

from grafana.generator import limits
from grafana.generator.palette import BAD
from grafana.generator.panels import Look

AT_ITL_TARGET: limits.Steps = ((None, "transparent"), (limits.ITL_TARGET_S, BAD))
AT_TTFT_TARGET: limits.Steps = ((None, "transparent"), (limits.TTFT_TARGET_S, BAD))
#: A promise that is just kept.
AT_ONE: limits.Steps = ((None, "transparent"), (limits.PRESSURE, BAD))

#: What happens so often: its mean says something, its most is chance.
MEANS = Look(low=0, calcs=("mean",))
#: What hurts when it is small.
LEAST = Look(low=0, calcs=("min",))
#: Parts that add up.
AREAS = Look(low=0, stacked=True, calcs=("mean",))
#: The same of what happens now and then.
BARS = Look(low=0, stacked=True, bars=True)
#: Milliseconds and minutes on one scale.
WIDE = Look(log=True)
#: Percentiles of what happens now and then, from histograms.
QUANTILES = Look(log=True, joined=True)
OF_THE_CACHE = Look(low=0, high=1, limit=((None, "transparent"), *limits.KV_USAGE[1:]))
