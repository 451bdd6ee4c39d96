"""Why streams freeze, and why first tokens are late. A new cause is a name and a row here, a rule in
`analysis.verdicts`, a section in ``docs/verdicts.md`` and a place in a runbook."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from prefillwatch.contract.runbooks import Runbook

PREFILL: Final = "prefill"
PREEMPTION: Final = "preemption"
FRONTEND: Final = "frontend"
BUFFERING: Final = "buffering"
CLIENT: Final = "client"
ENGINE_PAUSE: Final = "engine_pause"
QUEUEING: Final = "queueing"
WARMUP: Final = "warmup"
STUCK: Final = "stuck"
BEFORE_ENGINE: Final = "before_engine"
UNATTRIBUTED: Final = "unattributed"


@dataclass(frozen=True, slots=True)
class NotPrefill:
    """What an alert on stalls of this cause says. Its name is that of the cause's runbook."""

    summary: str
    explanation: str  # goes on after "readers stood still because of"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """``name`` is the label value in metrics and the word in JSON; ``words`` say it in a clause. ``freezes`` and
    ``waits`` say of which kind of incident it can be the cause.

    ``title`` and ``remedy`` are the doctor's, of causes of freezes. ``runbook`` is the page that says what to do; a
    cause with an ``alert`` of its own has that alert's page. ``harmless``: no trouble of the server.
    """

    name: str
    freezes: bool = False
    waits: bool = False
    words: str
    colour: str  # in dashboards
    legend: str = ""  # in dashboards, where the name alone would not do
    title: str = ""
    remedy: str = ""
    runbook: Runbook
    alert: NotPrefill | None = None
    harmless: bool = False


#: In the order in which label values are declared and legends are shown.
CAUSES: Final = (
    Cause(
        name=PREFILL,
        freezes=True,
        waits=True,
        words="a prompt was being read",
        colour="#FF9830",
        title="Streams pause when a long prompt arrives",
        remedy="chunked prefill on (--enable-chunked-prefill), --max-num-batched-tokens or "
        "--long-prefill-token-threshold lower, or long prompts on a replica of their own",
        runbook="PrefillInterference",
    ),
    Cause(
        name=PREEMPTION,
        freezes=True,
        words="left out while others went on, most likely preempted",
        colour="#8F3BB8",
        title="Streams pause because they are thrown out of the batch",
        remedy="make room in the KV cache: --max-num-seqs lower, --gpu-memory-utilization higher, or --kv-cache-dtype "
        "fp8; leave --max-num-batched-tokens alone",
        runbook="NotPrefillPreemption",
        alert=NotPrefill(
            "Answers stall because the KV cache is full, not because of prefill.",
            "preemption: the KV cache ran out and requests were thrown out of the batch. Chunking prompts finer does "
            "not help; more KV cache or fewer sequences at once does.",
        ),
    ),
    Cause(
        name=FRONTEND,
        freezes=True,
        words="the API server was busy",
        colour="#F2CC0C",
        title="Streams pause because the API server is busy",
        remedy="--api-server-count N, more CPU for it, or tokenise elsewhere; --max-num-batched-tokens changes nothing "
        "here",
        runbook="NotPrefillFrontend",
        alert=NotPrefill(
            "Answers stall in the API server, not because of prefill.",
            "the API server process: tokens had been made in time and were handed on late and bunched. Step budgets do "
            "not help; more API server processes, or work taken off them, does.",
        ),
    ),
    Cause(
        name=BUFFERING,
        freezes=True,
        words="bytes were held back on the way",
        colour="#37872D",
        title="Something before prefillwatch hands tokens out in bursts",
        remedy="put prefillwatch next to the engine; no buffering or compression of streams in between; "
        "--stream-interval 1",
        runbook="MeasurementUnreliable",
    ),
    Cause(
        name=CLIENT,
        freezes=True,
        words="the client read too slowly",
        colour="#8AB8FF",
        title="Clients do not read what is there for them",
        remedy="nothing to do on the server",
        runbook="StreamFreeze",
        harmless=True,
    ),
    Cause(
        name=ENGINE_PAUSE,
        freezes=True,
        words="the engine paused",
        colour="#C4162A",
        legend="engine pause",
        title="The whole engine pauses, and no prompt explains it",
        remedy="look at its log and host at those times: compilation, rebalancing of experts, garbage collection, "
        "memory",
        runbook="NotPrefillEnginePause",
        alert=NotPrefill(
            "The engine stops for reasons other than prefill.",
            "pauses of the whole engine that no prompt in flight explains. Step budgets do not help; look at the "
            "engine's host: garbage collection, compilation, expert rebalancing, a hung rank.",
        ),
    ),
    Cause(
        name=QUEUEING,
        waits=True,
        words="in line behind other requests",
        colour="#B877D9",
        runbook="QueueSaturation",
    ),
    Cause(
        name=WARMUP,
        waits=True,
        words="the server has just started",
        colour="#FFCB7D",
        runbook="TTFTHigh",
    ),
    Cause(
        name=STUCK,
        waits=True,
        words="nothing came from the engine",
        colour="#F2495C",
        runbook="FirstTokenStuck",
    ),
    Cause(
        name=BEFORE_ENGINE,
        waits=True,
        words="not handed to the engine yet",
        colour="#37872D",
        legend="before the engine",
        runbook="NotPrefillFrontend",
    ),
    Cause(
        name=UNATTRIBUTED,
        freezes=True,
        waits=True,
        words="cause unknown",
        colour="#9FA7B3",
        title="Streams pause, and what for is not known",
        remedy="/api/incidents has the evidence; with the plugin inside vLLM there is more of it",
        runbook="StreamFreeze",
    ),
)

BY_NAME: Final = {cause.name: cause for cause in CAUSES}
FREEZE_CAUSES: Final = tuple(cause.name for cause in CAUSES if cause.freezes)
WAIT_CAUSES: Final = tuple(cause.name for cause in CAUSES if cause.waits)
