"""Rows about why: causes and culprits, first tokens, and the cost model."""

from __future__ import annotations

from dataclasses import replace

from grafana.generator import limits
from grafana.generator.board import Section, even
from grafana.generator.looks import AREAS, AT_TTFT_TARGET, BARS, QUANTILES, WIDE
from grafana.generator.metric import in_range, metric, quantile, quantile_in_range, rate
from grafana.generator.palette import CAUSES, CLEAR, GOOD, PREFILL, QUEUE
from grafana.generator.panels import Answer, Column, Face, Query, Style, answer, lines, listing, now, over_time
from grafana.generator.series import (
    NO_REQUESTS,
    NO_STALLS,
    OF_CAUSES,
    OF_SIZES,
    WINDOW,
)
from grafana.generator.shared import culprits, sufferers

# Seconds that answers were streaming: what stalls are a share of.
DECODE_SECONDS = f"sum ({rate('inter_token_latency_seconds_sum')})"


def causes() -> Section:
    share = lines(
        "Share of streaming time lost to stalls, by cause",
        "Stall seconds over the time that answers streamed. Orange is prefill; any other colour is another problem. A "
        "verdict comes a moment after its gap, so a short peak can pass 100 %.",
        over_time(
            f"(sum by (cause) ({rate('stall_seconds_total')}) > 0) / on () group_left () ({DECODE_SECONDS} > 0)",
            "{{cause}}",
        ),
        unit="percentunit",
        empty=NO_STALLS,
        look=BARS,
        series=OF_CAUSES,
    )
    blame = lines(
        "Stall seconds inflicted per minute, by prompt size (tokens)",
        "Seconds that other streams lost within a minute, by the prompt tokens of the request that cost them; the sums "
        "are below.",
        over_time(f"60 * sum by (prompt_bucket) ({rate('prefill_blame_seconds_total')}) > 0", "{{prompt_bucket}}"),
        unit="s",
        empty="No prompt to blame",
        look=BARS,
        series=OF_SIZES,
    )
    incidents = lines(
        "Freezes and waits per minute",
        "Incidents: streams that stalled together (freeze), first tokens that took longer than the prompt "
        "deserves (wait).",
        over_time(f"60 * sum by (cause) ({rate('freezes_total')}) > 0", "freeze: {{cause}}"),
        over_time(f"60 * sum by (cause) ({rate('waits_total')}) > 0", "wait: {{cause}}"),
        unit="none",
        empty="No incidents",
        look=BARS,
        series={
            **{f"freeze: {cause}": Style(color) for cause, color in CAUSES.items()},
            **{f"wait: {cause}": Style(color, dashed=True) for cause, color in CAUSES.items()},
        },
    )
    return Section(
        "Who causes it, and who suffers?", (even(8, share, blame), even(8, culprits(), sufferers(), incidents))
    )


def first_tokens() -> Section:
    exact = lines(
        "TTFT p99 by prompt size (tokens), window $window",
        "Time to first token of one in a hundred requests is longer. Short prompts near the long ones' line "
        "wait behind them.",
        over_time(
            f"max by (prompt_bucket) ({metric('time_to_first_token_p99_seconds', window=WINDOW)})", "{{prompt_bucket}}"
        ),
        unit="s",
        empty=NO_REQUESTS,
        look=replace(WIDE, limit=AT_TTFT_TARGET),
        series=OF_SIZES,
    )
    parts = lines(
        "Mean time to first token: queue and prefill",
        "Purple: waiting before the prompt was worked on. Orange: reading it. Purple grows with load, orange "
        "with prompts.",
        over_time(f"sum ({rate('prefill_seconds_sum')}) / (sum ({rate('prefill_seconds_count')}) > 0)", "prefill"),
        over_time(f"sum ({rate('queue_seconds_sum')}) / (sum ({rate('queue_seconds_count')}) > 0)", "queue"),
        unit="s",
        empty=NO_REQUESTS,
        look=AREAS,
        series={"prefill": Style(PREFILL), "queue": Style(QUEUE)},
    )
    quantiles = [
        lines(
            f"{what} p99 by prompt size",
            text,
            over_time(quantile(0.99, name, "prompt_bucket"), "{{prompt_bucket}}"),
            unit="s",
            empty=NO_REQUESTS,
            look=QUANTILES,
            series=OF_SIZES,
        )
        for what, name, text in (
            ("Queue", "queue_seconds", "The part of TTFT before the prompt was worked on, in the engine or before it."),
            (
                "Prefill",
                "prefill_seconds",
                "The part of TTFT in which the prompt was worked on, as inferred from the steps.",
            ),
        )
    ]
    columns = [
        (
            Column("requests", "none", decimals=0),
            f"sum by (prompt_bucket) ({in_range('time_to_first_token_seconds_count')})",
        ),
        *(
            (Column(f"{what} p99", "s", steps), f"{quantile_in_range(0.99, name, 'prompt_bucket')} >= 0")
            for what, name, steps in (
                ("TTFT", "time_to_first_token_seconds", limits.FIRST_TOKEN),
                ("queue", "queue_seconds", None),
                ("prefill", "prefill_seconds", None),
            )
        ),
    ]
    table = listing(
        "First tokens by prompt size",
        "All the time shown. Percentiles of parts do not add up to the percentile of the whole; they come from "
        "buckets.",
        columns,
        NO_REQUESTS,
        {"prompt_bucket": Column("prompt")},
        sort_by="TTFT p99",
    )
    return Section("First tokens: queue or prefill?", (even(8, exact, parts), even(8, table, *quantiles)))


def cost_model() -> Section:
    stats = even(
        5,
        _learned(
            "Cost of 1,000 prompt tokens",
            "Time that 1,000 uncached prompt tokens add to the steps of this server, learned from its own traffic. "
            "Slowest replica.",
            now(f"1000 * max ({metric('prefill_cost_seconds_per_token')})", "cost"),
            "s",
            limits.only(PREFILL),
        ),
        _learned(
            "Step without prefill",
            "What a decode-only step takes by the cost model: the gap that readers could have. Slowest replica.",
            now(f"max ({metric('baseline_step_seconds')})", "step"),
            "s",
            limits.only(CLEAR),
        ),
        _learned(
            "Fit of the model",
            "Share of the variance of step times that the model explains. "
            f"Below {limits.FIT_TO_ACT_ON * 100:g} %: do not act on the advice. Worst replica.",
            now(f"min ({metric('prefill_cost_fit_ratio')})", "fit"),
            "percentunit",
            limits.FIT,
        ),
        _learned(
            "Advised --max-num-batched-tokens",
            f"Largest step budget that keeps gaps under {limits.ITL_TARGET_S * 1000:g} ms by the model. Smaller "
            "budgets smooth answers and make long prompts' first tokens later. Smallest of the replicas, of those "
            "whose model fits.",
            now(
                f"min ({metric('advised_max_batched_tokens')} and {metric('prefill_cost_fit_ratio')} "
                f"> {limits.FIT_TO_ACT_ON:g})",
                "tokens",
            ),
            "none",
            limits.only(GOOD),
            decimals=0,
        ),
    )
    return Section("Cost model and advice", (stats,))


def _learned(
    title: str, text: str, query: Query, unit: str, steps: limits.Steps, decimals: int | None = None
) -> Answer:
    """A figure of the cost model, which may not be known yet."""
    face = Face(filled=False, decimals=decimals)
    return answer(title, text, query, unit=unit, steps=steps, empty="Still learning", face=face)
