"""The KV cache: how full, and whether requests are thrown out of it."""

from __future__ import annotations

from typing import Final

from prefillwatch.contract import limits
from prefillwatch.doctor import thresholds, wording
from prefillwatch.doctor.figures import Figures
from prefillwatch.doctor.finding import Finding, Number, Seen
from prefillwatch.report import counted, share

FULL_TITLE: Final = "The KV cache is nearly full"
PREEMPTION_TITLE: Final = "Requests are preempted again and again"
ROOM: Final = "--max-num-seqs lower, --gpu-memory-utilization higher, --kv-cache-dtype fp8, or more replicas"


def nearly_full(figures: Figures) -> Finding:
    peak = figures.highest("kv_usage")
    numbers: dict[str, Number] = {
        "kv_usage_peak_ratio": peak,
        "kv_capacity_tokens": figures.kv_capacity,
        "kv_free_tokens": figures.kv_free,
    }
    if peak is None:
        words = "The use of the KV cache is not reported."
        return Finding("kv_nearly_full", FULL_TITLE, Seen.UNKNOWN, words, numbers, runbook="KVSignalLost")
    looks = f" in {counted(len(figures.moments), 'look')}" if len(figures.moments) > 1 else ""
    free = f"; {wording.tokens(figures.kv_free)} tokens are free" if figures.kv_free is not None else ""
    seen = Seen.YES if peak >= limits.KV_USAGE else Seen.NO
    return Finding(
        "kv_nearly_full",
        FULL_TITLE,
        seen,
        f"{share(peak)} used at the most{looks}{free}.",
        numbers,
        ROOM if seen is Seen.YES else "",
        "KVCacheNearlyFull",
        weight=peak,
    )


def preempted(figures: Figures) -> Finding:
    count, finished = figures.preemptions, figures.finished
    numbers: dict[str, Number] = {"preemptions": count, "finished_requests": finished}
    if count is None:
        words = "Preemptions are not reported."
        return Finding("preemptions", PREEMPTION_TITLE, Seen.UNKNOWN, words, numbers)
    often = count >= max(thresholds.FEWEST_PREEMPTIONS, limits.PREEMPTIONS_PER_REQUEST * (finished or 0.0))
    ended = "; how many requests finished is not reported"
    if finished is not None:
        ended = f", {counted(finished, 'request')} finished"
    words = f"{counted(count, 'preemption')}{ended}."
    return Finding(
        "preemptions",
        PREEMPTION_TITLE,
        Seen.YES if often else Seen.NO,
        words,
        numbers,
        f"{ROOM}; leave --max-num-batched-tokens alone" if often else "",
        "PreemptionStorm",
        weight=count,
    )
