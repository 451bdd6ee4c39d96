"""From where on something counts. Those that the alert rules have too are the same there (alerts/source.yml)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from prefillwatch.analysis.settings import StallRule

#: Fewer gaps than this carry no verdict, and fewer give no 99th percentile.
FEWEST_GAPS: Final = 200
#: Fewer gaps beside prompts than this do not show that prompts do no harm.
FEWEST_BESIDE: Final = 20
#: Fewer first tokens than this carry no verdict.
FEWEST_REQUESTS: Final = 10
#: A prompt or step of more tokens is worth calling long: the edge of the smallest bucket of prompts.
LONG_TOKENS: Final = 512
#: A shorter watch shows by chance another load than the time before.
COMPARABLE_S: Final = 59.0
#: Before and now differ when they lie in different buckets and by so much.
BETTER: Final = 0.8
WORSE: Final = 1.25
MORE_THROUGHPUT: Final = 1.1
#: Culprits with a smaller share of an incident are not named.
SHARED_BLAME: Final = 0.1
#: Looks at the gauges that make a habit of what one look may have hit by chance.
FEWEST_MOMENTS: Final = 3

STALL: Final = StallRule()

ITL_PROMISE: Final = 0.2
FIRST_TOKEN_PROMISES: Final[Mapping[str, float]] = MappingProxyType(
    {"0-512": 2.5, "512-2k": 2.5, "2k-8k": 5, "8k-32k": 20, "32k-128k": 80, "128k+": 320}
)
SHORT_PROMPTS: Final = ("0-512", "512-2k")
SHORT_TOKENS: Final = 2048
SHORT_QUEUE_P90: Final = 1.0
LONG_WORK_SHARE: Final = 0.5
OPEN_GAP: Final = 5.0
FIRST_TOKEN_WAIT: Final = 120.0
WAITING_REQUESTS: Final = 10
KV_USAGE: Final = 0.9
PREEMPTIONS_PER_REQUEST: Final = 0.3
#: Fewer are not again and again.
FEWEST_PREEMPTIONS: Final = 3
DROPPED_SHARE: Final = 0.01
LOOP_LAG: Final = 0.05
LAGGING_SHARE: Final = 0.01
