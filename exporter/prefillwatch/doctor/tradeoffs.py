"""One figure that gets better while another gets worse, and tests that cannot show it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from prefillwatch.doctor import thresholds as limits
from prefillwatch.doctor import wording
from prefillwatch.doctor.figures import ANY_SIZE, Figures, Level
from prefillwatch.doctor.finding import Finding, Number, Seen, Sort
from prefillwatch.doctor.histogram import Estimate, Histogram

FIRST_TOKENS_TITLE: Final = "First tokens come sooner while streaming gets less even"
THROUGHPUT_TITLE: Final = "Throughput rises while the tail gets worse"
SINGLE_TITLE: Final = "Only one stream at a time: such a test looks excellent"
ONE_LOOK: Final = (
    "Totals since the start hold no change; watch for a while (--watch 5m) to compare with the time before."
)
TRADE_REMEDY: Final = (
    "no malfunction but a choice: --max-num-batched-tokens lower for even streams, higher for quick first tokens"
)


# --- Time to first token against gaps -----------------------------------------------------------------------------


def first_tokens_for_gaps(figures: Figures) -> Finding:
    """The second symptom: before the watch against during it, for prompts of the same size."""
    symptom = "first_tokens_for_gaps"
    before = figures.before
    if before is None or before.gaps is None or figures.gaps is None:
        return Finding(symptom, FIRST_TOKENS_TITLE, Seen.UNKNOWN, _nothing_to_compare(figures))
    if not figures.is_sidecar:
        return Finding(
            symptom,
            FIRST_TOKENS_TITLE,
            Seen.UNKNOWN,
            "First tokens of all prompt sizes are in one histogram, so another mix of prompts looks like a change.",
            unknown="first tokens by prompt size",
        )
    lacking = _lacking(before.gaps, figures.gaps)
    pairs = list(_first_token_pairs(figures, before.first_tokens))
    if lacking or not pairs:
        return Finding(symptom, FIRST_TOKENS_TITLE, Seen.UNKNOWN, lacking or _few_first_tokens(figures))
    gaps = _change(before.gaps, figures.gaps, 0.99)
    sooner = [(size, then, now) for size, then, now in pairs if _is_better(then, now)]
    numbers: dict[str, Number] = _change_numbers("gap_p99", gaps)
    for size, then, now in pairs:
        numbers |= _change_numbers(f"first_token_p90_{size}", (then, now))
    if sooner and _is_worse(*gaps):
        size, then, now = sooner[0]
        words = (
            f"Prompts of {size} tokens: p90 first token {wording.duration(then.value)} before, "
            f"{wording.duration(now.value)} now; the p99 gap went from {_from_to(gaps)}."
        )
        return Finding(symptom, FIRST_TOKENS_TITLE, Seen.YES, words, numbers, TRADE_REMEDY, "PrefillInterference")
    return Finding(symptom, FIRST_TOKENS_TITLE, Seen.NO, f"The p99 gap went from {_from_to(gaps)}.", numbers)


def _first_token_pairs(figures: Figures, before: Mapping[str, Histogram]) -> Iterator[tuple[str, Estimate, Estimate]]:
    """p90 before and now, for sizes with enough of both."""
    for size, now in figures.first_tokens.items():
        then = before.get(size)
        if size != ANY_SIZE and then and min(then.count, now.count) >= limits.FEWEST_REQUESTS:
            yield size, *_change(then, now, 0.9)


def _few_first_tokens(figures: Figures) -> str:
    count = sum(histogram.count for histogram in figures.first_tokens.values())
    return (
        f"Too few first tokens ({count} while watching): {limits.FEWEST_REQUESTS} of one size are needed, before and "
        "now; watch longer (--watch 5m)."
    )


# --- Throughput against the tail ----------------------------------------------------------------------------------


def throughput_for_tail(figures: Figures) -> Finding:
    """The third symptom: tokens per second of the time in which anything decoded, against the p95 gap."""
    symptom = "throughput_for_tail"
    before = figures.before
    if before is None or before.gaps is None or figures.gaps is None:
        return Finding(symptom, THROUGHPUT_TITLE, Seen.UNKNOWN, _nothing_to_compare(figures))
    if figures.levels is None or not before.levels:
        unknown = "the rate before the watch, because idle time hides in it"
        words = _throughput_words(figures)
        return Finding(symptom, THROUGHPUT_TITLE, Seen.UNKNOWN, words, unknown=unknown)
    lacking = _lacking(before.gaps, figures.gaps)
    then, now = busy_rate(before.levels), busy_rate(figures.levels)
    if lacking or then is None or now is None:
        return Finding(symptom, THROUGHPUT_TITLE, Seen.UNKNOWN, lacking or "Nothing was decoded while watching.")
    gaps = _change(before.gaps, figures.gaps, 0.95)
    numbers: dict[str, Number] = {"tokens_per_second_before": then, "tokens_per_second": now}
    numbers |= _change_numbers("gap_p95", gaps)
    words = f"{then:,.0f} tokens/s before, {now:,.0f} now; the p95 gap went from {_from_to(gaps)}."
    seen = Seen.YES if now > limits.MORE_THROUGHPUT * then and _is_worse(*gaps) else Seen.NO
    remedy = "--max-num-seqs or --max-num-batched-tokens lower trades throughput back for an even tail"
    return Finding(symptom, THROUGHPUT_TITLE, seen, words, numbers, remedy if seen is Seen.YES else "", "ITLBudgetBurn")


def busy_rate(levels: Mapping[str, Level]) -> float | None:
    """Tokens per second of the time in which at least one stream decoded."""
    busy = [level for name, level in levels.items() if name != "0"]
    seconds = sum(level.seconds for level in busy)
    return sum(level.tokens for level in busy) / seconds if seconds > 0 else None


def _throughput_words(figures: Figures) -> str:
    if not figures.generated or not figures.seconds:
        return "There is no rate to compare with."
    return f"{figures.generated / figures.seconds:,.0f} tokens/s while watching, and no rate to compare with."


# --- One at a time ------------------------------------------------------------------------------------------------


def single_user(figures: Figures) -> Finding:
    """The fourth symptom: no competing work, so that nothing can interfere."""
    most = figures.most_streams()
    busy, shared = _time_shared(figures)
    numbers: dict[str, Number] = {"most_streams": most, "busy_seconds": busy, "shared_seconds": shared}
    if shared:
        words = f"{wording.share(shared / busy)} of the decoding time was shared by two streams or more."
        return Finding("single_user", SINGLE_TITLE, Seen.NO, words, numbers)
    if most is not None and most > 1:
        return Finding("single_user", SINGLE_TITLE, Seen.NO, f"Up to {most} streams at once.", numbers)
    if busy or (most == 1 and figures.gap_count):
        return Finding(
            "single_user",
            SINGLE_TITLE,
            Seen.YES,
            "No concurrency was seen, so the effect cannot show, whatever the settings. "
            "Repeat it while others are being answered.",
            numbers,
            sort=Sort.NOTE,
        )
    words = "Nothing was being answered." if not figures.gap_count else "How many there were at once is not told."
    return Finding("single_user", SINGLE_TITLE, Seen.UNKNOWN, words, numbers)


def _time_shared(figures: Figures) -> tuple[float, float]:
    """Seconds with any stream, and with two or more."""
    levels = figures.levels or {}
    busy = sum(level.seconds for name, level in levels.items() if name != "0")
    return busy, sum(level.seconds for name, level in levels.items() if name not in ("0", "1"))


# --- Before and now -----------------------------------------------------------------------------------------------


def _nothing_to_compare(figures: Figures) -> str:
    if figures.restarted:
        return "The server was restarted while watching, so there is nothing to compare with."
    return ONE_LOOK if figures.seconds is None else "There is no time before to compare with."


def _lacking(before: Histogram, now: Histogram) -> str:
    if min(before.count, now.count) >= limits.FEWEST_GAPS:
        return ""
    return (
        f"Too few gaps to compare: {before.count:,} before and {now.count:,} now; {limits.FEWEST_GAPS} of each are "
        "needed."
    )


def _change(before: Histogram, now: Histogram, q: float) -> tuple[Estimate, Estimate]:
    then, later = before.quantile(q), now.quantile(q)
    assert then is not None
    assert later is not None
    return then, later


def _is_better(then: Estimate, now: Estimate) -> bool:
    return now.high <= then.low and now.value <= limits.BETTER * then.value


def _is_worse(then: Estimate, now: Estimate) -> bool:
    return now.low >= then.high and now.value >= limits.WORSE * then.value


def _from_to(pair: tuple[Estimate, Estimate]) -> str:
    return f"{wording.duration(pair[0].value)} before to {wording.duration(pair[1].value)} now"


def _change_numbers(name: str, pair: tuple[Estimate, Estimate]) -> dict[str, Number]:
    return {f"{name}_before_seconds": pair[0].value, f"{name}_seconds": pair[1].value}
