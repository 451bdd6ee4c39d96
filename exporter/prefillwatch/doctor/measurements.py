"""The six measurements that tell prefill interference from a slow server, each with what cannot be known from here."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Final

from prefillwatch.doctor import thresholds, wording
from prefillwatch.doctor.figures import CLEAR, Figures, size_order
from prefillwatch.doctor.finding import Measurement, Number
from prefillwatch.doctor.histogram import Estimate, Histogram, together
from prefillwatch.doctor.tradeoffs import busy_rate
from prefillwatch.report import counted, duration, share

#: A rate of a shorter time at one level of concurrency is chance.
_LONG_ENOUGH_S: Final = 1.0
NOTHING: Final = "nothing to measure yet"


def measure(figures: Figures) -> Iterator[Measurement]:
    yield _prompt_lengths(figures)
    yield _first_tokens(figures)
    yield _gaps(figures)
    yield _queue_and_prefill(figures)
    yield _throughput(figures)
    yield _cache(figures)


def _prompt_lengths(figures: Figures) -> Measurement:
    prompts = figures.prompts
    if prompts is None and not figures.is_sidecar:
        return Measurement("prompt lengths", "not reported", unknown="anything of prompts")
    if prompts is None or not prompts.count:
        return Measurement("prompt lengths", NOTHING)
    p50, p99, longest = prompts.quantile(0.5), prompts.quantile(0.99), prompts.longest()
    assert p50 is not None
    assert p99 is not None
    assert longest is not None
    top = figures.longest_prompt
    most = wording.tokens(top) if top else wording.token_estimate(longest)
    count = counted(prompts.count, "prompt")
    words = f"median {wording.token_estimate(p50)}, p99 {wording.token_estimate(p99)}, longest {most} tokens; {count}"
    numbers: dict[str, Number] = {
        "prompts": prompts.count,
        "p50_tokens": p50.value,
        "p99_tokens": p99.value,
        "longest_tokens": top or longest.value,
    }
    unknown = "" if figures.is_sidecar else "prompts of requests that have not finished yet"
    return Measurement("prompt lengths", words, numbers, unknown)


def _first_tokens(figures: Figures) -> Measurement:
    name = "first token by size"
    if not figures.first_tokens:
        return Measurement(
            name, NOTHING if figures.is_sidecar else "none came, or not reported", unknown=_by_size(figures)
        )
    numbers: dict[str, Number] = {}
    parts = []
    for size, histogram in sorted(figures.first_tokens.items(), key=lambda pair: size_order(pair[0])):
        p50, p90 = histogram.quantile(0.5), histogram.quantile(0.9)
        if p50 and p90:
            suffix = f"_{size}" if size else ""
            numbers |= {f"first_tokens{suffix}": histogram.count, f"p50_seconds{suffix}": p50.value}
            numbers |= {f"p90_seconds{suffix}": p90.value}
            parts.append(f"{size or 'all sizes'}: {_first_token_words(histogram)}")
    return Measurement(name, "; ".join(parts), numbers, _by_size(figures))


def _first_token_words(histogram: Histogram) -> str:
    p50, p90, longest = histogram.quantile(0.5), histogram.quantile(0.9), histogram.longest()
    assert p50 is not None
    assert p90 is not None
    assert longest is not None
    if histogram.count < thresholds.FEWEST_REQUESTS:
        return f"{histogram.count} within {duration(longest.high)}"
    return f"median {_near(p50)}, p90 {_near(p90)} of {histogram.count:,}"


def _near(estimate: Estimate) -> str:
    """Without its bounds, for where there are many: the bucket is the error."""
    if estimate.low == 0 or not math.isfinite(estimate.high):
        return wording.between(estimate)
    return f"~{duration(estimate.value, 2)}"


def _by_size(figures: Figures) -> str:
    return "" if figures.is_sidecar else "by prompt size"


def _gaps(figures: Figures) -> Measurement:
    name = "gaps between tokens"
    if figures.gaps is None or not figures.gaps.count:
        unknown = "" if figures.is_sidecar or figures.gaps else "anything of single tokens"
        return Measurement(name, NOTHING if figures.is_sidecar or figures.gaps else "not reported", unknown=unknown)
    words = _spread(figures.gaps, figures.longest_gap)
    beside = together(each for size, each in (figures.gaps_beside or {}).items() if size != CLEAR)
    clear = (figures.gaps_beside or {}).get(CLEAR)
    if beside and clear and beside.count and clear.count:
        words += f"; p99 beside prompts {_p99(beside, figures)}, without {_p99(clear, figures)}"
    unknown = "" if figures.gaps_beside else "which of them were beside a prompt"
    return Measurement(name, words, dict(wording.spread(figures.gaps)), unknown)


def _spread(gaps: Histogram, exact: float | None) -> str:
    p50, p99, longest = gaps.quantile(0.5), gaps.quantile(0.99), gaps.longest()
    assert p50 is not None
    assert p99 is not None
    assert longest is not None
    tail = f"p99 {wording.roughly(p99)}, " if gaps.count >= thresholds.FEWEST_GAPS else "too few for a p99, "
    top = duration(exact) if exact is not None else wording.between(longest)
    return f"median {wording.roughly(p50)}, {tail}longest {top}; {counted(gaps.count, 'gap')}"


def _p99(histogram: Histogram, figures: Figures) -> str:
    p99 = histogram.quantile(0.99)
    return f"~{duration(figures.capped(p99), 2)}" if p99 else "–"


def _queue_and_prefill(figures: Figures) -> Measurement:
    name = "queue and prefill"
    queue, prefill = together(figures.queue.values()), together(figures.prefill.values())
    parts = [f"{what} {_part(histogram)}" for what, histogram in (("queue", queue), ("prefill", prefill)) if histogram]
    if not parts:
        return Measurement(
            name, NOTHING if figures.is_sidecar else "none came, or not reported", unknown=_by_size(figures)
        )
    numbers: dict[str, Number] = {}
    for what, histogram in (("queue", queue), ("prefill", prefill)):
        if histogram:
            p50, p90 = histogram.quantile(0.5), histogram.quantile(0.9)
            numbers |= {f"{what}_p50_seconds": p50.value if p50 else None, f"{what}_requests": histogram.count}
            numbers |= {f"{what}_p90_seconds": p90.value if p90 else None}
    unknown = _by_size(figures)
    if queue and not figures.is_sidecar:
        unknown = f"waiting before the engine's queue, and {unknown}"
    return Measurement(name, "; ".join(parts), numbers, unknown)


def _part(histogram: Histogram) -> str:
    p50, p90 = histogram.quantile(0.5), histogram.quantile(0.9)
    if p50 is None or p90 is None:
        return "–"
    return f"median {_near(p50)}, p90 {_near(p90)}"


def _throughput(figures: Figures) -> Measurement:
    name = "throughput"
    if figures.levels is not None:
        busy = {
            label: level for label, level in figures.levels.items() if label != "0" and level.seconds >= _LONG_ENOUGH_S
        }
        rate = busy_rate(busy)
        parts = [f"{label}: {level.tokens / level.seconds:,.0f}/s" for label, level in busy.items()]
        words = f"tokens by streams at once: {', '.join(parts)}" if parts else NOTHING
        rates: Mapping[str, Number] = {
            f"tokens_per_second_at_{label}": level.tokens / level.seconds for label, level in busy.items()
        }
        requests: Mapping[str, Number] = {
            f"requests_per_second_at_{label}": level.requests / level.seconds for label, level in busy.items()
        }
        return Measurement(name, words, {"busy_tokens_per_second": rate, **rates, **requests})
    unknown = "at each concurrency"
    if figures.generated is None or figures.seconds is None:
        return Measurement(
            name, "no rate from one look" if figures.generated is not None else "not reported", unknown=unknown
        )
    rate = figures.generated / figures.seconds
    finished = (figures.finished or 0.0) / figures.seconds
    running = _range(figures, "running")
    words = f"{rate:,.0f} tokens/s, {finished:.2g} requests/s" + (f"; {running} running" if running else "")
    return Measurement(name, words, {"tokens_per_second": rate, "requests_per_second": finished}, unknown)


def _range(figures: Figures, what: str) -> str:
    values = [getattr(moment, what) for moment in figures.moments]
    known = [value for value in values if value is not None]
    if not known:
        return ""
    return f"{min(known)}" if min(known) == max(known) else f"{min(known)} to {max(known)}"


def _cache(figures: Figures) -> Measurement:
    peak = figures.highest("kv_usage")
    parts = [f"{share(peak)} used at the most" if peak is not None else "use not reported"]
    if figures.kv_free is not None and figures.kv_capacity is not None:
        parts.append(f"{wording.tokens(figures.kv_free)} of {wording.tokens(figures.kv_capacity)} tokens free")
    preemptions = figures.preemptions
    parts.append("preemptions not reported" if preemptions is None else counted(preemptions, "preemption"))
    numbers: dict[str, Number] = {
        "kv_usage_peak_ratio": peak,
        "kv_free_tokens": figures.kv_free,
        "kv_capacity_tokens": figures.kv_capacity,
        "preemptions": preemptions,
    }
    looks = "" if figures.is_sidecar else "peaks between the looks at it, once a second"
    return Measurement("KV cache", ", ".join(parts), numbers, looks)
