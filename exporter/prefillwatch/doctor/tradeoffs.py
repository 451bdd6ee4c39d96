"""One figure that gets better while another gets worse, and tests that cannot show it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from prefillwatch.doctor import thresholds
from prefillwatch.doctor.figures import Comparison, Figures, Level, size_order
from prefillwatch.doctor.finding import Finding, Number, Seen, Sort
from prefillwatch.doctor.histogram import Estimate, Histogram
from prefillwatch.report import duration, share

FIRST_TOKENS_TITLE: Final = "First tokens come sooner while streaming gets less even"
THROUGHPUT_TITLE: Final = "Throughput rises while the tail gets worse"
SINGLE_TITLE: Final = "Only one stream at a time: such a test looks excellent"
ONE_LOOK: Final = (
    "Totals since the start hold no change; watch for a while (--watch 5m) to compare with the time before."
)
NO_GAPS: Final = "Nothing was decoded, before or now."
TRADE_REMEDY: Final = (
    "no malfunction but a choice: --max-num-batched-tokens lower for even streams, higher for quick first tokens"
)


# --- Time to first token against gaps ---


@dataclass(frozen=True, slots=True)
class _Size:
    """Before and now, for prompts of one size: their own first tokens, and others' gaps beside them; p90 of both."""

    size: str
    first_token: tuple[Estimate, Estimate]
    gap: tuple[Estimate, Estimate]

    @property
    def is_traded(self) -> bool:
        return _is_better(*self.first_token) and _is_worse(*self.gap)

    @property
    def words(self) -> str:
        return (
            f"Prompts of {self.size} tokens: the p90 first token went from {_from_to(self.first_token)}, the p90 gap "
            f"beside them from {_from_to(self.gap)}."
        )

    @property
    def numbers(self) -> dict[str, Number]:
        gaps = _change_numbers(f"gap_p90_beside_{self.size}", self.gap)
        return {**_change_numbers(f"first_token_p90_{self.size}", self.first_token), **gaps}


def first_tokens_for_gaps(figures: Figures) -> Finding:
    """The second symptom: before the watch against during it. Like is compared with like, size by size: otherwise
    another mix of prompts would look like a change."""
    symptom = "first_tokens_for_gaps"
    if not figures.is_sidecar:
        words = "First tokens of all prompt sizes are in one histogram, so another mix of prompts looks like a change."
        return Finding(
            symptom,
            FIRST_TOKENS_TITLE,
            Seen.UNKNOWN,
            words,
            unknown="first tokens, and gaps beside them, by prompt size",
        )
    before = figures.before
    incomparable = _incomparable(figures)
    if incomparable or before is None:
        return Finding(symptom, FIRST_TOKENS_TITLE, Seen.UNKNOWN, incomparable)
    sizes = sorted(_sizes(figures, before), key=lambda each: (each.is_traded, size_order(each.size)))
    if not sizes:
        return Finding(symptom, FIRST_TOKENS_TITLE, Seen.UNKNOWN, _few_first_tokens(figures))
    numbers = {name: value for each in sizes for name, value in each.numbers.items()}
    seen = Seen.YES if sizes[-1].is_traded else Seen.NO
    remedy = TRADE_REMEDY if seen is Seen.YES else ""
    return Finding(symptom, FIRST_TOKENS_TITLE, seen, sizes[-1].words, numbers, remedy, "PrefillInterference")


def _sizes(figures: Figures, before: Comparison) -> Iterator[_Size]:
    """The sizes with enough samples of everything."""
    for size, first_now in figures.first_tokens.items():
        first_then = before.first_tokens.get(size)
        gaps_then, gaps_now = before.gaps_beside.get(size), (figures.gaps_beside or {}).get(size)
        if first_then is None or gaps_then is None or gaps_now is None:
            continue
        enough = min(first_then.count, first_now.count) >= thresholds.FEWEST_REQUESTS
        if enough and min(gaps_then.count, gaps_now.count) >= thresholds.FEWEST_BESIDE:
            yield _Size(size, _change(first_then, first_now, 0.9), _change(gaps_then, gaps_now, 0.9))


def _few_first_tokens(figures: Figures) -> str:
    count = sum(histogram.count for histogram in figures.first_tokens.values())
    return (
        f"Too few first tokens ({count} while watching): {thresholds.FEWEST_REQUESTS} of one size are needed, and "
        f"{thresholds.FEWEST_BESIDE} gaps of others beside them, before and now; watch longer."
    )


# --- Throughput against the tail ---


def throughput_for_tail(figures: Figures) -> Finding:
    """The third symptom: tokens per second of the time in which anything decoded, against the p95 gap."""
    symptom = "throughput_for_tail"
    if figures.levels is None:
        unknown = "the rate before the watch, because idle time hides in it"
        words = "There is no rate to compare with."
        if figures.generated and figures.seconds:
            rate = figures.generated / figures.seconds
            words = f"{rate:,.0f} tokens/s while watching, and no rate to compare with."
        return Finding(symptom, THROUGHPUT_TITLE, Seen.UNKNOWN, words, unknown=unknown)
    before = figures.before
    incomparable = _incomparable(figures)
    if incomparable or before is None or before.gaps is None or figures.gaps is None:
        return Finding(symptom, THROUGHPUT_TITLE, Seen.UNKNOWN, incomparable or NO_GAPS)
    lacking = _lacking(before.gaps, figures.gaps)
    then, now = busy_rate(before.levels), busy_rate(figures.levels)
    if lacking or then is None or now is None:
        return Finding(symptom, THROUGHPUT_TITLE, Seen.UNKNOWN, lacking or "Nothing was decoded while watching.")
    gaps = _change(before.gaps, figures.gaps, 0.95)
    numbers: dict[str, Number] = {"tokens_per_second_before": then, "tokens_per_second": now}
    numbers |= _change_numbers("gap_p95", gaps)
    words = f"{then:,.0f} tokens/s before, {now:,.0f} now; the p95 gap went from {_from_to(gaps)}."
    seen = Seen.YES if now > thresholds.MORE_THROUGHPUT * then and _is_worse(*gaps) else Seen.NO
    remedy = "--max-num-seqs or --max-num-batched-tokens lower trades throughput back for an even tail"
    return Finding(symptom, THROUGHPUT_TITLE, seen, words, numbers, remedy if seen is Seen.YES else "", "ITLBudgetBurn")


def busy_rate(levels: Mapping[str, Level]) -> float | None:
    """Tokens per second of the time in which at least one stream decoded."""
    busy = [level for name, level in levels.items() if name != "0"]
    seconds = sum(level.seconds for level in busy)
    return sum(level.tokens for level in busy) / seconds if seconds > 0 else None


# --- One at a time ---


def single_user(figures: Figures) -> Finding:
    """The fourth symptom: no competing work, so that nothing can interfere."""
    most = figures.most_streams()
    busy, shared = _time_shared(figures)
    numbers: dict[str, Number] = {"most_streams": most, "busy_seconds": busy, "shared_seconds": shared}
    if shared:
        words = f"{share(shared / busy)} of the decoding time was shared by two streams or more."
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
    words = "Nothing was being answered." if not figures.gap_count else "How many there were at once is not reported."
    return Finding("single_user", SINGLE_TITLE, Seen.UNKNOWN, words, numbers)


def _time_shared(figures: Figures) -> tuple[float, float]:
    """Seconds with any stream, and with two or more."""
    levels = figures.levels or {}
    busy = sum(level.seconds for name, level in levels.items() if name != "0")
    return busy, sum(level.seconds for name, level in levels.items() if name not in ("0", "1"))


# --- Before and now ---


def _incomparable(figures: Figures) -> str:
    """Why this watch cannot be compared with the time before it; empty where it can."""
    if figures.restarted:
        return "The server was restarted while watching, so there is nothing to compare with."
    if figures.seconds is None or figures.before is None:
        return ONE_LOOK
    if figures.seconds < thresholds.COMPARABLE_S:
        return (
            f"{figures.seconds:.0f} s are too short to compare with the time before; watch for a minute or more "
            "(--watch 5m)."
        )
    return ""


def _lacking(before: Histogram, now: Histogram) -> str:
    if min(before.count, now.count) >= thresholds.FEWEST_GAPS:
        return ""
    return (
        f"Too few gaps to compare: {before.count:,} before and {now.count:,} now; {thresholds.FEWEST_GAPS} of each are "
        "needed."
    )


def _change(before: Histogram, now: Histogram, q: float) -> tuple[Estimate, Estimate]:
    then, later = before.quantile(q), now.quantile(q)
    assert then is not None
    assert later is not None
    return then, later


def _is_better(then: Estimate, now: Estimate) -> bool:
    return now.high <= then.low and now.value <= thresholds.BETTER * then.value


def _is_worse(then: Estimate, now: Estimate) -> bool:
    return now.low >= then.high and now.value >= thresholds.WORSE * then.value


def _from_to(pair: tuple[Estimate, Estimate]) -> str:
    return f"{duration(pair[0].value, 2)} before to {duration(pair[1].value, 2)} now"


def _change_numbers(name: str, pair: tuple[Estimate, Estimate]) -> dict[str, Number]:
    return {f"{name}_before_seconds": pair[0].value, f"{name}_seconds": pair[1].value}
