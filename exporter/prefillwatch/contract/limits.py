"""What users are promised, and from where on something is trouble. Times are in seconds, shares go from 0 to 1.

Alert rules take these by name (``alerts/source.yml``), where an operator may write a number of his own instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from prefillwatch.contract.buckets import PROMPT_EDGES

# --- Promises ---
# Each is an edge of its histogram, so that every reader of a histogram counts the same gaps and requests as broken.

#: A gap between two tokens; the setting slo_itl.
ITL_PROMISE: Final = 0.2
#: Share of gaps that keep it. One freeze per thousand tokens spends all that 0.999 allows.
ITL_OBJECTIVE: Final = 0.999
#: Mean time per output token of a request; the setting slo_tpot.
PER_TOKEN_PROMISE: Final = 0.1
#: First token of a prompt that nobody knows to be long; the setting slo_ttft.
FIRST_TOKEN_PROMISE: Final = 2.5
#: 99th percentile of the time to first token, by prompt size: people wait longer for what they know to be long.
FIRST_TOKEN_PROMISES: Final[Mapping[str, float]] = MappingProxyType(
    {
        "0-512": FIRST_TOKEN_PROMISE,
        "512-2k": FIRST_TOKEN_PROMISE,
        "2k-8k": 5.0,
        "8k-32k": 20.0,
        "32k-128k": 80.0,
        "128k+": 320.0,
    }
)

# --- What counts as a stall, and as a wait: defaults of settings ---

STALL_MIN_GAP: Final = 0.1
STALL_FACTOR: Final = 4.0
STALL_ALWAYS: Final = 1.0
WAIT_MIN: Final = 2.0
WAIT_FACTOR: Final = 4.0
#: Model names with series of their own; the setting max_models.
MAX_MODELS: Final = 32
#: Tenants with series of their own; the setting max_tenants.
MAX_TENANTS: Final = 20

# --- Stalls and who causes them ---

#: Seconds that stalls last beyond usual gaps, over the seconds that streams were decoding: noticed, and trouble.
STALL_SHARE_NOTICED: Final = 0.01
STALL_SHARE: Final = 0.05
#: A cause with a larger share of the stall time than this dominates.
CAUSE_SHARE: Final = 0.5
#: A tenant whose prompts cause more than this share of what streams of all others lose does it to them.
TENANT_SHARE: Final = 0.5
#: How many times as long gaps beside a prompt are (p99 over p99): seen, noticed, and trouble.
INTERFERENCE_SEEN: Final = 2.0
INTERFERENCE_NOTICED: Final = 3.0
INTERFERENCE: Final = 10.0
#: Share of the variance of steps that the cost model explains: enough to advise by, and good.
COST_FIT: Final = 0.5
COST_FIT_GOOD: Final = 0.8
#: Silence of a decoding stream that is a freeze by itself.
OPEN_GAP: Final = 5.0
#: Share of decoding streams that is frozen.
FROZEN_SHARE: Final = 0.5

#: A prompt of so many tokens or more, or such a step, may hold others up: the edge of the smallest bucket.
LONG_TOKENS: Final = PROMPT_EDGES[0]

# --- Pressures ---

#: From here on a promise is not kept any more.
PRESSURE: Final = 1.0
#: To scale for, with room for what comes while another replica starts: docs/autoscaling.md has what that is worth.
PRESSURE_TARGET: Final = 0.5

# --- First tokens ---

SHORT_PROMPTS: Final = ("0-512", "512-2k")
#: The upper edge of those, in tokens.
SHORT_TOKENS: Final = 2048
#: A short prompt that waits longer than this stands behind something.
SHORT_QUEUE_P90: Final = 1.0
#: Seconds of prefill of other sizes per second: they keep the engine busy.
LONG_WORK_SHARE: Final = 0.5
#: Requests waiting inside the engine.
WAITING_REQUESTS: Final = 10
FIRST_TOKEN_WAIT: Final = 120.0

# --- KV cache ---

KV_USAGE_NOTICED: Final = 0.8
KV_USAGE: Final = 0.9
#: One in thirteen requests preempted is what a well used cache looks like; this is several times that.
PREEMPTIONS_PER_REQUEST: Final = 0.3
#: Servers that never report the use of their KV cache, or report something else by that name.
SERVERS_WITHOUT_KV: Final = ("llamacpp", "tgi")

# --- Ourselves ---

#: Of tap packets, and of requests whose beginning or end was lost.
DROPPED_SHARE: Final = 0.01
#: A wake-up of a relay later than this is late; an edge of its histogram.
LOOP_LAG: Final = 0.05
#: Of wake-ups.
LAGGING_SHARE: Final = 0.01
#: Reasons to refuse requests that are limits of prefillwatch itself, or an upstream that leads back to it.
WANT_OF_ROOM: Final = ("bodies_full", "clients_full", "no_descriptors", "loop")
