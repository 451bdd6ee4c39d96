"""Rows about what users feel: frozen now, gaps between tokens, and how gaps grow with prompts."""

from __future__ import annotations

from dataclasses import replace

from grafana.generator import limits
from grafana.generator.board import Section, even, split
from grafana.generator.looks import AT_ITL_TARGET, BARS, QUANTILES, WIDE
from grafana.generator.metric import in_range, increase, metric, quantile, rate
from grafana.generator.palette import ALL, BAD, CLEAR, PREFILL
from grafana.generator.panels import Column, Face, Look, Query, Style, answer, density, lines, listing, now, over_time
from grafana.generator.series import (
    NO_GAPS,
    NO_STALLS,
    OF_CAUSES,
    OF_POPULATIONS,
    OF_SIZES,
    OF_STEPS,
    WINDOW,
)
from grafana.generator.shared import dose_and_response as dose_ranking
from grafana.generator.shared import frozen_streams, silence

from prefillwatch.export.table import WINDOW as WINDOWS

# One scale for median, p99 and longest gap, so that one sees which of them moves; wide enough to hide nothing. Soft
# bounds would do as well, but Grafana does not heed them on logarithmic scales.
SHORTEST_S, LONGEST_S = 0.001, 100


def frozen_now() -> Section:
    stats = even(
        5,
        frozen_streams(),
        silence(),
        answer(
            "Oldest wait for a first token",
            "Age of the oldest request that has no token yet. Yellow from the promised time to first token "
            f"({limits.TTFT_TARGET_S:g} s), red from {limits.TTFT_LOST_S:g} s.",
            now(f"max ({metric('oldest_first_token_wait_seconds')})", "wait"),
            unit="s",
            steps=limits.FIRST_TOKEN,
            empty="Nobody waits",
        ),
        answer(
            "ITL p99, last minute",
            "Gaps between tokens that overlapped a prefill against gaps clear of any. Far apart: prompts are "
            "freezing answers. "
            "Both high: something else is slow. Worst replica.",
            *(
                now(
                    f"max ({metric('inter_token_latency_p99_seconds', window='1m', population=population)})", population
                )
                for population in ("prefill", "clear")
            ),
            unit="s",
            steps=limits.GAP,
            empty=NO_GAPS,
            series={"prefill": Style(PREFILL, "in prefill"), "clear": Style(CLEAR, "clear")},
            face=Face(named=True, filled=False),
        ),
        answer(
            "Main cause of stall time",
            "The cause with the most stall seconds in the time shown, and its share of them. Stall seconds are what "
            "gaps lasted beyond the stream's usual gap, summed over streams. Unattributed means: nothing "
            "could be shown to explain them.",
            _most_of("stall_seconds_total", "cause"),
            unit="percentunit",
            steps=limits.only(ALL),
            empty=NO_STALLS,
            face=Face(decimals=0, named=True),
            series=OF_CAUSES,
        ),
        answer(
            "Prompts to blame (tokens)",
            "Size in tokens of the prompts that inflicted the most stall seconds on others in the time shown, and "
            "their share of all that prompts inflicted.",
            _most_of("prefill_blame_seconds_total", "prompt_bucket"),
            unit="percentunit",
            steps=limits.only(ALL),
            empty="No culprit",
            face=Face(decimals=0, named=True),
            series=OF_SIZES,
        ),
    )
    history = split(
        7,
        (
            16,
            lines(
                "Share of time in which streams stood still, by cause",
                "Wall time of freezes over wall time, average of the replicas chosen. 100 %: always somebody frozen.",
                # Models of one replica stand still together: their times must be neither added up nor averaged.
                over_time(
                    f"avg by (cause) (max by (job, instance, cause) ({rate('freeze_seconds_total')})) > 0", "{{cause}}"
                ),
                unit="percentunit",
                empty="No freezes",
                look=BARS,
                series=OF_CAUSES,
            ),
        ),
        (
            8,
            lines(
                "Streams now",
                "Answers that stream, requests that wait for a first token, and answers that stand still.",
                over_time(f"sum ({metric('decoding_streams')})", "streaming"),
                over_time(f"sum ({metric('prefilling_requests')})", "waiting for a first token"),
                over_time(f"sum ({metric('frozen_streams')})", "frozen"),
                unit="none",
                empty="No streams",
                series={
                    "streaming": Style(CLEAR),
                    "waiting for a first token": Style(PREFILL),
                    "frozen": Style(BAD),
                },
            ),
        ),
    )
    return Section("Are users frozen now?", (stats, history))


def _most_of(name: str, label: str) -> Query:
    """The value of a label that has the most of a counter, and its share."""
    total = in_range(name)
    return now(
        f"topk (1, sum by ({label}) ({total}) > 0) / on () group_left () sum ({total})",
        f"{{{{{label}}}}}",
    )


def gaps() -> Section:
    texts = {
        "p50": ("ITL median", "The median hardly moves while prompts freeze answers: do not judge by it."),
        "p99": (
            "ITL p99",
            "One in a hundred gaps is longer. A rare freeze can hide below p99 of all gaps; look at the prefill line.",
        ),
        "max": ("Longest gap", "The longest gap that ended in the window: what the unluckiest reader felt."),
    }
    panels = [
        lines(
            f"{title}, window $window",
            f"{text} Worst replica. Dashed: the promised gap, {limits.ITL_TARGET_S * 1000:g} ms. The same scale "
            "on all three.",
            over_time(
                f"max by (population) ({metric(f'inter_token_latency_{figure}_seconds', window=WINDOW)})",
                "{{population}}",
            ),
            unit="s",
            empty=NO_GAPS,
            look=replace(WIDE, low=SHORTEST_S, high=LONGEST_S, limit=AT_ITL_TARGET),
            series=OF_POPULATIONS,
        )
        for figure, (title, text) in texts.items()
    ]
    columns = [
        (
            Column(f"{figure} {window}", "s", limits.GAP),
            f"max by (population) ({metric(f'inter_token_latency_{figure}_seconds', window=window)})",
        )
        for figure in texts
        for window in WINDOWS.values
    ]
    table = listing(
        "Gaps by population and window",
        "A percentile means nothing without its population: the same gaps over every window that is kept. Worst "
        "replica.",
        columns,
        NO_GAPS,
        {"population": Column("gaps")},
        sort_by="gaps",
    )
    ratio = lines(
        "p99 during a prefill over p99 clear",
        "Interference. 1: prompts do no harm. 10: one in a hundred gaps during a prefill is ten times as long. "
        "Worst replica.",
        over_time(f"max ({metric('interference_ratio', window=WINDOW)})", "times as long"),
        unit="none",
        empty="Needs gaps of both kinds",
        series={"times as long": Style(PREFILL)},
    )
    correlation = lines(
        "Do long prompts and long gaps go together?",
        "Rank correlation of the worst gap and the prompt tokens in service. Near 1: they rise and fall together. Near "
        "0: look elsewhere.",
        over_time(f"max ({metric('prompt_itl_correlation_ratio', window=WINDOW)})", "rank correlation"),
        unit="none",
        empty="Needs gaps and prompts",
        look=Look(low=-1, high=1, calcs=("lastNotNull",)),
        series={"rank correlation": Style(PREFILL)},
    )
    return Section(
        "How long are the gaps between tokens?",
        (even(8, *panels, marked=True), split(6, (12, table), (6, ratio), (6, correlation))),
    )


def dose_and_response() -> Section:
    empty = "No gaps during a prefill"
    heat = density(
        "Gaps during a prefill",
        "Gaps between tokens that overlapped somebody's prefill. Bands far above the usual gap are engine steps "
        "that carried prompt tokens.",
        f"sum by (le) ({increase('inter_token_latency_seconds_bucket', concurrent_prompt='!=none')})",
        "s",
        empty,
    )
    over = lines(
        "ITL p99 by concurrent prompt (tokens)",
        "By the largest other prompt in service during the gap, in tokens. A fan that opens with size is "
        "prefill interference.",
        over_time(quantile(0.99, "inter_token_latency_seconds", "concurrent_prompt"), "{{concurrent_prompt}}"),
        unit="s",
        empty=NO_GAPS,
        look=replace(QUANTILES, limit=AT_ITL_TARGET),
        series=OF_SIZES,
    )
    steps = lines(
        "Engine step p99 by prompt tokens in the step",
        "The engine's heartbeat as seen from the wire. Steps with more prompt tokens are slower; the step "
        "budget bounds how slow.",
        over_time(quantile(0.99, "step_seconds", "step_prefill_tokens"), "{{step_prefill_tokens}}"),
        unit="s",
        empty="No steps seen",
        look=replace(QUANTILES, limit=AT_ITL_TARGET),
        series=OF_STEPS,
    )
    return Section("The longer the prompt, the longer the gap", (even(8, heat, over), even(8, dose_ranking(), steps)))
