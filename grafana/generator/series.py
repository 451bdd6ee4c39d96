"""How series look that several panels show, and what an empty panel says."""

from __future__ import annotations

from grafana.generator.palette import CAUSES, POPULATIONS, PROMPT_SIZES, STEP_SIZES
from grafana.generator.panels import styles

from prefillwatch.contract import causes

NO_GAPS = "No tokens streamed"
NO_STALLS = "No stalls"
NO_REQUESTS = "No requests"

OF_POPULATIONS = styles(POPULATIONS, {"prefill": "during a prefill", "clear": "clear of any", "all": "all gaps"})
OF_CAUSES = styles(CAUSES, {cause.name: cause.legend for cause in causes.CAUSES})
OF_SIZES = styles(PROMPT_SIZES, {"none": "no prompt"})
OF_STEPS = styles(STEP_SIZES, {"none": "decode only"})

#: The window that the dashboard's variable chooses.
WINDOW = "$window"
