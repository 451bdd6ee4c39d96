"""Where figures begin to hurt, as the contract has it: panels turn red where users would."""

from __future__ import annotations

from grafana.generator.palette import BAD, GOOD, WARN

from prefillwatch.contract import limits

Steps = tuple[tuple[float | None, str], ...]

ITL_TARGET_S = limits.ITL_PROMISE
ALWAYS_A_STALL_S = limits.STALL_ALWAYS
#: Promised time to first token, and the time after which people give up.
TTFT_TARGET_S = limits.FIRST_TOKEN_PROMISE
TTFT_LOST_S = 10.0
#: A promise that is just kept.
PRESSURE = limits.PRESSURE
#: Of what we measure, lost or spoilt.
OWN_LOSS_SHARE = limits.DROPPED_SHARE
#: Below it no advice is given.
FIT_TO_ACT_ON = limits.COST_FIT
TENANT_SHARE = limits.TENANT_SHARE


def rising(warn: float, bad: float) -> Steps:
    return ((None, GOOD), (warn, WARN), (bad, BAD))


def falling(bad: float, warn: float) -> Steps:
    return ((None, BAD), (bad, WARN), (warn, GOOD))


def only(color: str) -> Steps:
    return ((None, color),)


GAP = rising(ITL_TARGET_S, ALWAYS_A_STALL_S)
FIRST_TOKEN = rising(TTFT_TARGET_S, TTFT_LOST_S)
ANY_IS_BAD: Steps = ((None, GOOD), (1, BAD))
INTERFERENCE = rising(limits.INTERFERENCE_NOTICED, limits.INTERFERENCE)
STALL_SHARE = rising(limits.STALL_SHARE_NOTICED, limits.STALL_SHARE)
KV_USAGE = rising(limits.KV_USAGE_NOTICED, limits.KV_USAGE)
OWN_LOSS: Steps = ((None, GOOD), (0.000001, WARN), (OWN_LOSS_SHARE, BAD))
MUST_BE_ONE: Steps = ((None, BAD), (1, GOOD))
FIT = falling(FIT_TO_ACT_ON, limits.COST_FIT_GOOD)
SCRAPE_AGE = rising(5, 15)
