"""Where figures begin to hurt: the exporter's own defaults, so that panels turn red where users would."""

from __future__ import annotations

from grafana.generator.palette import BAD, GOOD, WARN

from prefillwatch.settings.declared import Settings

Steps = tuple[tuple[float | None, str], ...]

#: Promised gap between tokens (--slo-itl), and the gap that counts as a stall whatever the baseline (--stall-always).
ITL_TARGET_S: float = Settings.model_fields["slo_itl"].default
ALWAYS_A_STALL_S: float = Settings.model_fields["stall_always"].default
#: Promised time to first token (--slo-ttft), and the time after which people give up.
TTFT_TARGET_S: float = Settings.model_fields["slo_ttft"].default
TTFT_LOST_S = 10.0
#: Below it no advice is given; alerts have the same (thresholds.cost_fit in alerts/source.yml).
FIT_TO_ACT_ON = 0.5


def rising(warn: float, bad: float) -> Steps:
    return ((None, GOOD), (warn, WARN), (bad, BAD))


def falling(bad: float, warn: float) -> Steps:
    return ((None, BAD), (bad, WARN), (warn, GOOD))


def only(color: str) -> Steps:
    return ((None, color),)


GAP = rising(ITL_TARGET_S, ALWAYS_A_STALL_S)
FIRST_TOKEN = rising(TTFT_TARGET_S, TTFT_LOST_S)
ANY_IS_BAD: Steps = ((None, GOOD), (1, BAD))
INTERFERENCE = rising(3, 10)
STALL_SHARE = rising(0.01, 0.05)
KV_USAGE = rising(0.8, 0.9)
OWN_LOSS: Steps = ((None, GOOD), (0.000001, WARN), (0.01, BAD))
MUST_BE_ONE: Steps = ((None, BAD), (1, GOOD))
FIT = falling(FIT_TO_ACT_ON, 0.8)
SCRAPE_AGE = rising(5, 15)
