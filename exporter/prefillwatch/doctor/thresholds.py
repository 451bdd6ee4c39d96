"""How much the doctor has to see before it judges, and when two looks differ. What users were promised, and where
trouble begins, is in `contract.limits`."""

from __future__ import annotations

from typing import Final

from prefillwatch.analysis.settings import StallRule

#: Fewer gaps than this carry no verdict, and fewer give no 99th percentile.
FEWEST_GAPS: Final = 200
#: Fewer gaps beside prompts than this do not show that prompts do no harm.
FEWEST_BESIDE: Final = 20
#: Fewer first tokens than this carry no verdict.
FEWEST_REQUESTS: Final = 10
#: A shorter watch may show a different load from the time before by chance.
COMPARABLE_S: Final = 59.0
#: Before and now differ when they lie in different buckets and by at least this factor.
BETTER: Final = 0.8
WORSE: Final = 1.25
MORE_THROUGHPUT: Final = 1.1
#: Culprits with a smaller share of an incident are not named.
SHARED_BLAME: Final = 0.1
#: So many looks must show something before it counts as lasting; one look may have caught it by chance.
FEWEST_MOMENTS: Final = 3

STALL: Final = StallRule()
#: Fewer than this is not "again and again".
FEWEST_PREEMPTIONS: Final = 3
