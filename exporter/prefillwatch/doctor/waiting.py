"""Requests that wait for their first token: in the queue, behind another's long prompt, or for their own."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Final

from prefillwatch.contract import limits
from prefillwatch.doctor import thresholds, wording
from prefillwatch.doctor.figures import ANY_SIZE, Figures
from prefillwatch.doctor.finding import Finding, Number, Seen
from prefillwatch.doctor.histogram import Histogram, together
from prefillwatch.report import counted, duration, listed

QUEUE_TITLE: Final = "More requests arrive than the engine takes in"
LATE_TITLE: Final = "First tokens come late for the size of the prompt"
LINE_TITLE: Final = "Short prompts wait behind long ones"
#: A median wait in the queue that is too long for any prompt.
_LONG_QUEUE: Final = 1.0
_FEWEST_QUEUED: Final = 5
_QUEUE_REMEDY: Final = "they waited for their turn: --max-num-seqs higher, or more replicas"
_PREFILL_REMEDY: Final = (
    "they waited for their own prompts: --enable-prefix-caching where prompts begin alike, or --max-num-batched-tokens "
    "higher (which makes gaps longer)"
)


def queue_saturation(figures: Figures) -> Finding:
    waiting = [moment.waiting for moment in figures.moments if moment.waiting is not None]
    queue = together(figures.queue.values())
    p50 = queue.quantile(0.5) if queue else None
    numbers: dict[str, Number] = {
        "waiting_median": statistics.median(waiting) if waiting else None,
        "waiting_most": max(waiting, default=None),
        "queue_p50_seconds": p50.value if p50 else None,
        "queued_requests": queue.count if queue else 0,
    }
    if not waiting:
        words = "How many requests wait in the engine is not reported."
        return Finding("queue_saturation", QUEUE_TITLE, Seen.UNKNOWN, words, numbers)
    words = f"{statistics.median(waiting):g} waiting in the engine (median), {max(waiting)} at the most"
    if p50 and queue:
        words += f"; median time in the queue {wording.roughly(p50)}, of {counted(queue.count, 'request')}"
    seen = Seen.YES if _is_saturated(waiting, queue) else Seen.NO
    remedy = (
        "look at what is full: --max-num-seqs higher while the KV cache has room and gaps are short; else more "
        "replicas, or refuse earlier"
    )
    return Finding(
        "queue_saturation",
        QUEUE_TITLE,
        seen,
        words + ".",
        numbers,
        remedy if seen is Seen.YES else "",
        "QueueSaturation",
        weight=float(statistics.median(waiting)),
    )


def _is_saturated(waiting: list[int], queue: Histogram | None) -> bool:
    if statistics.median(waiting) > limits.WAITING_REQUESTS:
        return True
    p50 = queue.quantile(0.5) if queue and queue.count >= _FEWEST_QUEUED else None
    return len(waiting) >= thresholds.FEWEST_MOMENTS and min(waiting) > 0 and p50 is not None and p50.low >= _LONG_QUEUE


def late_first_tokens(figures: Figures) -> Finding:
    """Judged by what was promised for each size. Where sizes are not known, a late prompt may have been a long one."""
    symptom = "late_first_tokens"
    count = sum(histogram.count for histogram in figures.first_tokens.values())
    if not figures.first_tokens:
        return Finding(symptom, LATE_TITLE, Seen.UNKNOWN, "No first token came, or none is reported.")
    late = {size: histogram.above(_promise(size)) for size, histogram in figures.first_tokens.items()}
    numbers: dict[str, Number] = {"first_tokens": count}
    for size, (number, promise) in late.items():
        numbers |= {
            f"late{'_' + size if size else ''}": number,
            f"promise{'_' + size if size else ''}_seconds": promise,
        }
    found = [(size, number, promise) for size, (number, promise) in late.items() if number]
    beyond = sum(each.beyond(_promise(size))[0] for size, each in figures.first_tokens.items())
    if not found and beyond:
        words = (
            f"{beyond:,} of {counted(count, 'first token')} took longer than their histogram shows, which ends "
            f"before what was promised."
        )
        return Finding(symptom, LATE_TITLE, Seen.UNKNOWN, words, numbers)
    if not found:
        few = count < thresholds.FEWEST_REQUESTS
        words = f"None of {counted(count, 'first token')} was late" + (" (few to judge by)." if few else ".")
        return Finding(symptom, LATE_TITLE, Seen.UNKNOWN if few else Seen.NO, words, numbers)
    sizes = [size for size, _, _ in found]
    words = f"{listed(_late_words(figures, *each) for each in found)}. {_parts(figures, sizes)}"
    if ANY_SIZE in late and not _all_short(figures.prompts):
        unknown = "whether these prompts were long enough to deserve it"
        return Finding(symptom, LATE_TITLE, Seen.UNKNOWN, words, numbers, unknown=unknown)
    return Finding(
        symptom,
        LATE_TITLE,
        Seen.YES,
        words,
        numbers,
        _QUEUE_REMEDY if _is_queue(figures, sizes[-1]) else _PREFILL_REMEDY,
        "TTFTHigh",
        weight=float(sum(number for _, number, _ in found)),
    )


def _all_short(prompts: Histogram | None) -> bool:
    """Whether every prompt was so short that it should not have taken longer."""
    longest = prompts.longest() if prompts else None
    return longest is not None and longest.high <= limits.SHORT_TOKENS


def _promise(size: str) -> float:
    return limits.FIRST_TOKEN_PROMISES.get(size, min(limits.FIRST_TOKEN_PROMISES.values()))


def _late_words(figures: Figures, size: str, number: int, promise: float) -> str:
    what = f"prompts of {size} tokens" if size else "requests"
    count = figures.first_tokens[size].count
    return f"{number} of {count} {what} waited longer than {duration(promise)}"


def _parts(figures: Figures, sizes: list[str]) -> str:
    """Time in the queue and in prefill, for the largest of the sizes."""
    queue, prefill = figures.queue.get(sizes[-1]), figures.prefill.get(sizes[-1])
    if queue is None or prefill is None or queue.mean is None or prefill.mean is None:
        return ""
    return f"On average {duration(queue.mean)} in the queue and {duration(prefill.mean)} in prefill."


def _is_queue(figures: Figures, size: str) -> bool:
    """Whether requests of a size waited for their turn longer than for their prompt."""
    queue, prefill = figures.queue.get(size), figures.prefill.get(size)
    return queue is not None and (prefill is None or (queue.mean or 0.0) > (prefill.mean or 0.0))


def head_of_line(figures: Figures) -> Finding:
    symptom = "head_of_line"
    if not figures.is_sidecar:
        return Finding(
            symptom,
            LINE_TITLE,
            Seen.UNKNOWN,
            "Queue times of all prompt sizes are in one histogram, or not reported.",
            unknown="who waited behind whom",
        )
    short = together(figures.queue[size] for size in limits.SHORT_PROMPTS if size in figures.queue)
    if short is None or short.count < thresholds.FEWEST_REQUESTS:
        words = f"Too few short prompts: {short.count if short else 0}, and {thresholds.FEWEST_REQUESTS} are needed."
        return Finding(symptom, LINE_TITLE, Seen.UNKNOWN, words)
    p90 = short.quantile(0.9)
    assert p90 is not None
    work = sum(each.sum for size, each in figures.prefill.items() if size not in limits.SHORT_PROMPTS)
    numbers: dict[str, Number] = {
        "short_prompts": short.count,
        "short_queue_p90_seconds": p90.value,
        "long_prefill_seconds": work,
    }
    busy = figures.seconds is None or work >= limits.LONG_WORK_SHARE * figures.seconds
    seen = Seen.YES if p90.low >= limits.SHORT_QUEUE_P90 and work > 0 and busy else Seen.NO
    return Finding(
        symptom,
        LINE_TITLE,
        seen,
        f"p90 queue of {counted(short.count, 'short prompt')}: {wording.roughly(p90)}; "
        f"long prompts were worked on for {duration(work)}.",
        numbers,
        "--long-prefill-token-threshold N leaves room in each step for the others" if seen is Seen.YES else "",
        "PrefillHeadOfLine",
        weight=p90.value,
    )


def now(figures: Figures) -> Iterator[Finding]:
    """Requests that are waiting at this moment; only a sidecar sees them."""
    last = figures.moments[-1] if figures.moments else None
    if last is None:
        return
    if last.open_gap is not None and last.open_gap >= limits.OPEN_GAP:
        yield Finding(
            "frozen_now",
            "A stream stands still right now",
            Seen.YES,
            f"Silent for {duration(last.open_gap)}; {last.frozen or 0} of {last.decoding} streams are frozen.",
            {"open_gap_seconds": last.open_gap, "frozen_streams": last.frozen, "decoding_streams": last.decoding},
            "/api/incidents?limit=5 says what for; if it is a prompt, cancelling that request ends it",
            "StreamFreeze",
            weight=1e6,
        )
    if last.oldest_wait is not None and last.oldest_wait > limits.FIRST_TOKEN_WAIT:
        yield Finding(
            "stuck_now",
            "A request gets no first token",
            Seen.YES,
            f"One has waited for {duration(last.oldest_wait)}.",
            {"oldest_first_token_wait_seconds": last.oldest_wait},
            "/api/state says which; see whether the engine knows it",
            "FirstTokenStuck",
            weight=1e5,
        )
