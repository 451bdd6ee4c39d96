"""Streams that pause: beside long prompts, and for other reasons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from prefillwatch.contract import limits
from prefillwatch.contract.causes import BY_NAME, CAUSES, PREFILL
from prefillwatch.doctor import thresholds, wording
from prefillwatch.doctor.figures import CLEAR, Culprit, Figures, Incident, Stalls, size_order
from prefillwatch.doctor.finding import Finding, Number, Seen, Sort
from prefillwatch.doctor.histogram import Histogram, together
from prefillwatch.doctor.remedies import budget_advice
from prefillwatch.report import counted, duration, share

_PREFILL: Final = BY_NAME[PREFILL]
SYMPTOM: Final = "streams_pause"
#: Steps of which vLLM does not report what they carried.
UNTOLD: Final = "unknown"


def prompt_pauses(figures: Figures) -> Finding:
    """The first symptom: do streams pause when a long prompt arrives?"""
    if figures.stalls is not None and figures.is_sidecar:
        return _seen_by_us(figures)
    if figures.gaps_beside and any(size != UNTOLD for size in figures.gaps_beside):
        return _by_step(figures)
    if figures.gaps is not None:
        return _guessed(figures)
    return Finding(
        SYMPTOM,
        _PREFILL.title,
        Seen.UNKNOWN,
        "This server reports nothing of the time between tokens.",
        unknown="anything of single tokens",
    )


def other_pauses(figures: Figures) -> Iterator[Finding]:
    """Pauses that are not prefill; only those that were seen. Causes are known only from a sidecar."""
    for cause in CAUSES:
        stalls = figures.stalled(cause.name)
        if cause is not _PREFILL and stalls.count:
            yield Finding(
                f"pauses_{cause.name}",
                cause.title,
                Seen.YES,
                f"{_lost(stalls, figures)}{_worst(_incidents(figures, cause.name))}.",
                _stall_numbers(stalls, figures),
                cause.remedy,
                "" if cause.harmless else cause.runbook,
                sort=Sort.NOTE if cause.harmless else Sort.SYMPTOM,
                weight=stalls.seconds,
            )


def slow_for_all(figures: Figures) -> Iterator[Finding]:
    """Long gaps without any prompt in service: a slow engine, which chunked prefill does not help."""
    clear = (figures.gaps_beside or {}).get(CLEAR)
    p99 = clear.quantile(0.99) if clear and clear.count >= thresholds.FEWEST_GAPS else None
    if clear is None or p99 is None or p99.low < limits.ITL_PROMISE:
        return
    yield Finding(
        "slow_for_all",
        "Tokens come slowly even without any prompt in service",
        Seen.YES,
        f"Without a prompt in service the p99 gap is {wording.roughly(p99)}. That is no interference.",
        wording.spread(clear),
        "--max-num-seqs lower makes shorter steps (and a queue earlier); else more replicas",
        "ITLBudgetBurn",
        weight=clear.above(limits.ITL_PROMISE)[0] * limits.ITL_PROMISE,
    )


# --- As a sidecar sees it ---


def _seen_by_us(figures: Figures) -> Finding:
    stalls = figures.stalled(PREFILL)
    numbers = {**_stall_numbers(stalls, figures), **_dose(figures)}
    if not stalls.count:
        seen, words = _none_seen(figures)
        return Finding(SYMPTOM, _PREFILL.title, seen, words, numbers)
    incidents = _incidents(figures, PREFILL)
    culprits = _culprits(incidents)
    numbers |= _culprit_numbers(incidents, culprits)
    words = f"{_lost(stalls, figures)}{_worst(incidents)}. {_blame(culprits)}{_curve(figures)}{_hidden(figures)}"
    return Finding(
        SYMPTOM,
        _PREFILL.title,
        Seen.YES,
        words.strip(),
        numbers,
        budget_advice(figures) or _PREFILL.remedy,
        _PREFILL.runbook,
        weight=stalls.seconds,
        aside=f"The largest was request {culprits[0].request_id}." if culprits and culprits[0].request_id else "",
    )


def _none_seen(figures: Figures) -> tuple[Seen, str]:
    if figures.gap_count < thresholds.FEWEST_GAPS:
        return Seen.UNKNOWN, _too_few(figures)
    if (figures.most_streams() or 0) == 1:
        return Seen.UNKNOWN, "Only one stream at a time was seen, so it could not show."
    long = together(each for size, each in (figures.gaps_beside or {}).items() if _is_long(size))
    if long is None or long.count < thresholds.FEWEST_BESIDE:
        gaps = counted(long.count if long else 0, "gap")
        few = f"Hardly any prompt above {limits.LONG_TOKENS} tokens arrived while others read"
        return Seen.UNKNOWN, f"{few} ({gaps} beside one), so it could not show."
    return (
        Seen.NO,
        f"{counted(long.count, 'gap')} beside long prompts, and none of them was a stall. {_curve(figures)}",
    )


def _is_long(size: str) -> bool:
    known, lower = size_order(size)
    return known == 1 and lower >= limits.LONG_TOKENS


def _lost(stalls: Stalls, figures: Figures) -> str:
    reading = figures.gaps.sum if figures.gaps else 0.0
    part = f", {share(stalls.seconds / reading)} of their time" if reading > 0 else ""
    return f"{counted(stalls.count, 'stall')} cost the readers {duration(stalls.seconds)}{part}"


def _worst(incidents: list[Incident]) -> str:
    """Only what the totals count as well: an incident that began before them or still lasts is left out."""
    worst = _worst_of(incidents)
    if worst is None:
        return ""
    usual = f" where {duration(worst.baseline_gap)} is usual" if worst.baseline_gap else ""
    streams = counted(worst.victims, "stream")
    gap = f"the worst gap was {duration(worst.worst_gap)}{usual}, of {streams} at once"
    return f"; {gap}" if worst.whole else f". In an incident that is not all within these totals, {gap}"


def _worst_of(incidents: list[Incident]) -> Incident | None:
    return max(incidents, key=lambda each: (each.whole, each.worst_gap), default=None)


def _blame(culprits: list[Culprit]) -> str:
    if not culprits:
        return ""
    largest = culprits[0]
    about = "about " if largest.estimated else ""
    what = counted(len(culprits), "prompt")
    return f"To blame: {what}, the largest of {about}{wording.tokens(largest.prompt_tokens)} tokens. "


def _curve(figures: Figures, by: str = "the largest prompt in service") -> str:
    """Dose and response, in words."""
    parts = [
        f"{'no prompt' if size == CLEAR else size} {duration(figures.capped(p99), 2)}"
        for size, histogram in _by_size(figures)
        if (p99 := histogram.quantile(0.99)) is not None
    ]
    return f"p99 gap by {by}: {', '.join(parts)}." if len(parts) > 1 else ""


def _hidden(figures: Figures) -> str:
    """Thousands of calm gaps hide the few that people noticed."""
    p99 = figures.gaps.quantile(0.99) if figures.gaps and figures.gap_count >= thresholds.FEWEST_GAPS else None
    if p99 is None or p99.high >= limits.ITL_PROMISE:
        return ""
    return f" The p99 over all gaps, {wording.roughly(p99)}, does not show it."


def _dose(figures: Figures) -> dict[str, Number]:
    numbers: dict[str, Number] = {}
    for size, histogram in _by_size(figures):
        p50, p99 = histogram.quantile(0.5), histogram.quantile(0.99)
        numbers[f"gaps_beside_{size}"] = histogram.count
        numbers[f"p50_seconds_beside_{size}"] = p50.value if p50 else None
        numbers[f"p99_seconds_beside_{size}"] = figures.capped(p99) if p99 else None
    return numbers


def _by_size(figures: Figures) -> list[tuple[str, Histogram]]:
    """Without prompts first, then by size: pages list label values in any order."""
    return sorted((figures.gaps_beside or {}).items(), key=lambda pair: size_order(pair[0]))


def _incidents(figures: Figures, cause: str) -> list[Incident]:
    return [each for each in figures.incidents if each.cause == cause and each.kind == "freeze"]


def _culprits(incidents: list[Incident]) -> list[Culprit]:
    """Each request once, the largest first; requests that were merely present are left out."""
    found = {
        culprit.request_id or id(culprit): culprit
        for each in incidents
        for culprit in each.culprits
        if culprit.share >= thresholds.SHARED_BLAME
    }
    return sorted(found.values(), key=lambda culprit: -culprit.prompt_tokens)


def _culprit_numbers(incidents: list[Incident], culprits: list[Culprit]) -> dict[str, Number]:
    worst = _worst_of(incidents)
    return {
        "incidents": len(incidents),
        "worst_gap_seconds": worst.worst_gap if worst else None,
        "culprits": len(culprits),
        "largest_culprit_tokens": culprits[0].prompt_tokens if culprits else None,
    }


def _stall_numbers(stalls: Stalls, figures: Figures) -> dict[str, Number]:
    return {
        "stalls": stalls.count,
        "stall_seconds": stalls.seconds,
        "decoding_seconds": figures.gaps.sum if figures.gaps else None,
        "gaps": figures.gap_count,
    }


# --- As the plugin inside vLLM reports it ---


def _by_step(figures: Figures) -> Finding:
    beside = figures.gaps_beside or {}
    clear = beside.get(CLEAR)
    long = together(each for size, each in beside.items() if size not in (CLEAR, UNTOLD))
    numbers = _dose(figures)
    if long is None or long.count < thresholds.FEWEST_BESIDE or clear is None:
        gaps = counted(long.count if long else 0, "gap")
        words = f"Hardly any engine step carried a prompt while others read ({gaps}), so it could not show."
        return Finding(SYMPTOM, _PREFILL.title, Seen.UNKNOWN, words, numbers)
    if long.beyond(_stall_from(clear))[0]:
        return _too_coarse(long, _stall_from(clear), numbers)
    stalls, bound = long.above(_stall_from(clear))
    numbers |= {"pauses": stalls, "pauses_from_seconds": bound}
    if not stalls:
        words = f"No gap in {counted(long.count, 'gap')} with prompts in their step was above {bound:g} s."
        return Finding(SYMPTOM, _PREFILL.title, Seen.NO, words, numbers)
    return Finding(
        SYMPTOM,
        _PREFILL.title,
        Seen.YES,
        f"{stalls:,} of {counted(long.count, 'gap')} with prompts in their engine step were above "
        f"{duration(bound)}. {_curve(figures, 'prompt tokens in the step')}",
        numbers,
        _PREFILL.remedy,
        _PREFILL.runbook,
        "which requests they were",
        weight=stalls * bound,
    )


def _stall_from(histogram: Histogram) -> float:
    """From which length a gap counts as a stall, by the upper bound of the bucket that holds the median."""
    median = histogram.quantile(0.5)
    return thresholds.STALL.least_seconds(median.high if median else None)


# --- As histograms without causes let one guess ---


def _guessed(figures: Figures) -> Finding:
    gaps = figures.gaps
    assert gaps is not None
    least = max(limits.ITL_PROMISE, _stall_from(gaps))
    if gaps.beyond(least)[0] and gaps.count >= thresholds.FEWEST_GAPS:
        return _too_coarse(gaps, least, wording.spread(gaps))
    pauses, bound = gaps.above(least)
    numbers: dict[str, Number] = {**wording.spread(gaps), "pauses": pauses, "pauses_from_seconds": bound}
    long_steps = figures.step_tokens.above(limits.LONG_TOKENS)[0] if figures.step_tokens else None
    numbers["engine_steps_with_prompts"] = long_steps
    if not pauses:
        seen, words = _none_guessed(figures, bound, long_steps)
        return Finding(SYMPTOM, _PREFILL.title, seen, words, numbers, unknown=_not_known(seen, long_steps))
    p50, longest = gaps.quantile(0.5), gaps.longest()
    assert p50 is not None
    assert longest is not None
    words = (
        f"{pauses:,} of {counted(gaps.count, 'gap')} were longer than {duration(bound)}, the longest "
        f"{wording.between(longest)}; the median is {wording.roughly(p50)}.{_hidden(figures)}"
    )
    words = f"{words} {_evidence(figures, long_steps)}".strip()
    runbook = _PREFILL.runbook if long_steps != 0 else "StreamFreeze"
    remedy = _PREFILL.remedy if long_steps != 0 else ""
    title = "Streams pause"
    return Finding(
        SYMPTOM,
        title,
        Seen.YES,
        words,
        numbers,
        remedy,
        runbook,
        _not_known(Seen.YES, long_steps),
        weight=pauses * bound,
    )


def _too_coarse(gaps: Histogram, least: float, numbers: Mapping[str, Number]) -> Finding:
    """Some gaps lie above the last bound of their histogram, and that bound is below what counts as a pause. Only their
    mean length can show that there were pauses."""
    beyond, mean = gaps.beyond(least)
    where = f"{duration(gaps.bounds[-1])}, where this histogram ends" if gaps.bounds else "0 s"
    words = f"{beyond:,} of {counted(gaps.count, 'gap')} were longer than {where}"
    numbers = {**numbers, "pauses": None, "gaps_beyond": beyond, "mean_beyond_seconds": mean}
    if mean < least:
        return Finding(SYMPTOM, _PREFILL.title, Seen.UNKNOWN, f"{words}; how long is not reported.", numbers)
    words = f"{words}, and took {duration(mean)} on average, or more."
    unknown = "how many of them were pauses, and what made them"
    return Finding(
        SYMPTOM, "Streams pause", Seen.YES, words, numbers, "", "StreamFreeze", unknown, weight=beyond * mean
    )


def _none_guessed(figures: Figures, bound: float, long_steps: int | None) -> tuple[Seen, str]:
    if figures.gap_count < thresholds.FEWEST_GAPS:
        return Seen.UNKNOWN, _too_few(figures)
    if (figures.most_streams() or 0) == 1:
        return Seen.UNKNOWN, "Only one stream at a time was seen, so it could not show."
    if long_steps == 0:
        few = f"No engine step carried more than {limits.LONG_TOKENS} tokens: no long prompt came"
        return Seen.UNKNOWN, f"{few}, so it could not show."
    return Seen.NO, f"None of {counted(figures.gap_count, 'gap')} was above {duration(bound)}."


def _evidence(figures: Figures, long_steps: int | None) -> str:
    if long_steps is None or figures.step_tokens is None:
        return ""
    if long_steps == 0:
        return f"No engine step carried more than {limits.LONG_TOKENS} tokens, so long prompts did not do it."
    of = counted(figures.step_tokens.count, "engine step")
    return f"{long_steps:,} of {of} carried more than {limits.LONG_TOKENS} tokens, as those with long prompts do."


def _not_known(seen: Seen, long_steps: int | None) -> str:
    if seen is not Seen.YES:
        return ""
    return "what did" if long_steps == 0 else "whether long prompts made these very gaps, and whose"


def _too_few(figures: Figures) -> str:
    return f"Too few tokens to tell: {counted(figures.gap_count, 'gap')}, and {thresholds.FEWEST_GAPS} are needed."
