"""The dashboard of many replicas: which one is worst, and a way down to it."""

from __future__ import annotations

from dataclasses import replace

from grafana.generator import interference, limits, series
from grafana.generator.board import Board, Section, even, target_variables
from grafana.generator.looks import AT_ITL_TARGET, AT_ONE, AT_TTFT_TARGET, MEANS, OF_THE_CACHE, QUANTILES, WIDE
from grafana.generator.metric import SCRAPED, in_range, increase, metric, quantile, quantile_in_range, rate
from grafana.generator.palette import ALL, BAD, CLEAR, GOOD, PREFILL
from grafana.generator.panels import FROM_ZERO, Column, Face, Lines, Look, Style, answer, lines, listing, now, over_time
from grafana.generator.shared import culprits, dose_and_response, frozen_streams, silence, sufferers

UID = "prefillwatch-fleet"
REPLICA = "job, instance"
WORST = 10
NOT_REPORTED = "Upstreams do not report it"


def _down(job: str, instance: str) -> dict[str, str]:
    """A link to the dashboard of one replica; the two are Grafana's variables that name it."""
    return {
        "title": f"Prefill interference on {instance}",
        "url": f"/d/{interference.UID}?var-datasource=${{datasource}}&var-job={job}&var-instance={instance}"
        "&var-window=${window}&${__url_time_range}",
    }


DOWN = _down("${__data.fields.job}", "${__value.raw}")
DOWN_FROM_LINE = _down("${__field.labels.job}", "${__field.labels.instance}")


def fleet() -> Board:
    return Board(
        UID,
        "Prefill interference: fleet",
        "All replicas, the worst first. Click a replica to see what happens on it.",
        (_overview(), _replicas(), _who(), _load()),
        target_variables(),
        # One replica's freeze is no news in a fleet; as many as there are replicas is.
        freezes=f"sum by (cause) ({increase('freezes_total')}) > on () group_left () count ({metric('up')})",
        time="1h",
    )


def _stall_share(by: str) -> str:
    stalls = f"sum by ({by}) ({in_range('stall_seconds_total')})"
    return f"{stalls} / (sum by ({by}) ({in_range('inter_token_latency_seconds_sum')}) > 0)"


def _overview() -> Section:
    stats = even(
        5,
        answer(
            "Replicas",
            "Sidecars that report, and how many of their upstreams answer the health check. Silent: Prometheus knows "
            "them and gets no answer; they are in no other panel here.",
            now(f"count ({metric('up')})", "report"),
            now(f"sum ({metric('up')})", "upstream up"),
            now(f"count (({SCRAPED}) == 0)", "silent"),
            unit="none",
            steps=limits.only(ALL),
            empty="None reports",
            series={"report": Style(ALL), "upstream up": Style(GOOD), "silent": Style(BAD)},
            face=Face(named=True, filled=False),
        ),
        answer(
            "Replicas with frozen streams",
            "Replicas on which at least one answer stands still at this moment.",
            now(f"sum (max by ({REPLICA}) ({metric('frozen_streams')}) > bool 0)", "replicas"),
            unit="none",
            steps=limits.ANY_IS_BAD,
            empty="No streams seen",
            face=Face(zero="None"),
        ),
        frozen_streams(),
        silence(),
        answer(
            "ITL p99 of the fleet",
            "Over all gaps of all replicas in the time shown, from the histogram: gaps during a prefill against "
            "clear ones.",
            now(quantile_in_range(0.99, "inter_token_latency_seconds", concurrent_prompt="!=none"), "in prefill"),
            now(quantile_in_range(0.99, "inter_token_latency_seconds", concurrent_prompt="none"), "clear"),
            unit="s",
            steps=limits.GAP,
            empty="No gaps",
            series={"in prefill": Style(PREFILL), "clear": Style(CLEAR)},
            face=Face(named=True, filled=False),
        ),
        answer(
            "Streaming time lost to stalls",
            "Stall seconds over the time that answers streamed, all replicas, in the time shown.",
            now(
                f"sum ({in_range('stall_seconds_total')}) / (sum ({in_range('inter_token_latency_seconds_sum')}) > 0)",
                "lost",
            ),
            unit="percentunit",
            steps=limits.STALL_SHARE,
            empty="No stalls",
            face=Face(decimals=1),
        ),
    )
    return Section("Is anybody frozen?", (stats,))


def _replicas() -> Section:
    def most(name: str, **matchers: str) -> str:
        return f"max by ({REPLICA}) ({metric(name, **matchers)})"

    columns = [
        (Column("stalled", "percentunit", limits.STALL_SHARE, decimals=1), _stall_share(REPLICA)),
        (
            Column("by prefill", "s", decimals=1),
            f"sum by ({REPLICA}) ({in_range('stall_seconds_total', cause='prefill')})",
        ),
        (
            Column("other causes", "s", decimals=1),
            f"sum by ({REPLICA}) ({in_range('stall_seconds_total', cause='!=prefill')})",
        ),
        (
            Column("p99 in prefill", "s", limits.GAP),
            most("inter_token_latency_p99_seconds", window="$window", population="prefill"),
        ),
        (
            Column("p99 clear", "s", limits.GAP),
            most("inter_token_latency_p99_seconds", window="$window", population="clear"),
        ),
        (
            Column("longest gap", "s", limits.GAP),
            most("inter_token_latency_max_seconds", window="$window", population="all"),
        ),
        (
            Column("frozen now", "none", limits.ANY_IS_BAD, decimals=0),
            f"sum by ({REPLICA}) ({metric('frozen_streams')})",
        ),
        (Column("streams", "none", decimals=0), f"sum by ({REPLICA}) ({metric('decoding_streams')})"),
        (Column("prompt max", "short"), most("prompt_length_max_tokens", window="$window")),
        (
            Column("KV peak", "percentunit", limits.KV_USAGE, decimals=0),
            most("kv_cache_usage_max_ratio", window="$window"),
        ),
        (Column("upstream up", "none", limits.MUST_BE_ONE, decimals=0), f"min by ({REPLICA}) ({metric('up')})"),
    ]
    table = listing(
        "Replicas, worst first",
        "By the share of streaming time lost to stalls in the time shown. Figures of the window: its p99, "
        "longest gap and "
        "prompt, KV peak. Click a replica for its own dashboard.",
        columns,
        "No replica reports",
        {"instance": Column("replica", width=190, links=(DOWN,)), "job": Column("job", width=110)},
        sort_by="stalled",
    )
    return Section("Which replica is worst?", (even(8, table),))


def _worst(title: str, text: str, expr: str, unit: str, empty: str, look: Look = FROM_ZERO) -> Lines:
    """A line for each of the replicas with the most of something, which leads to its own dashboard. ``{}`` in the title
    stands for how many."""
    query = over_time(f"topk ({WORST}, {expr})", "{{instance}}")
    return lines(title.format(f"{WORST} replicas"), text, query, unit=unit, empty=empty, look=look, link=DOWN_FROM_LINE)


def _who() -> Section:
    worst_gaps = _worst(
        "ITL p99 during a prefill, worst {}, window $window",
        "Each replica's own p99 of the gaps that overlapped a prefill. One line far above the rest: look at its "
        "prompts. All high: look at the step budget.",
        f"max by ({REPLICA}) ({metric('inter_token_latency_p99_seconds', window='$window', population='prefill')})",
        "s",
        "No gaps during a prefill",
        replace(WIDE, limit=AT_ITL_TARGET),
    )
    stalled = _worst(
        "Streaming time lost to stalls, worst {}",
        "Stall seconds over the time that answers streamed, whatever the cause.",
        f"sum by ({REPLICA}) ({rate('stall_seconds_total')}) "
        f"/ (sum by ({REPLICA}) ({rate('inter_token_latency_seconds_sum')}) > 0)",
        "percentunit",
        "No stalls",
        MEANS,
    )
    return Section(
        "Why?", (even(8, worst_gaps, stalled, marked=True), even(7, culprits(), sufferers(), dose_and_response()))
    )


def _load() -> Section:
    first_tokens = lines(
        "TTFT p99 of the fleet by prompt size (tokens)",
        "From the histogram over all replicas. Short prompts near the long ones' line wait behind them.",
        over_time(quantile(0.99, "time_to_first_token_seconds", "prompt_bucket"), "{{prompt_bucket}}"),
        unit="s",
        empty="No requests",
        look=replace(QUANTILES, limit=AT_TTFT_TARGET),
        series=series.OF_SIZES,
    )
    waiting = _worst(
        "Requests waiting in the engine, worst {}",
        "By the engine's own account. Waiting on some replicas only: the balancer does not see prompt sizes.",
        f"sum by ({REPLICA}) ({metric('upstream_requests', state='waiting')})",
        "none",
        NOT_REPORTED,
    )
    cache = _worst(
        "KV cache peak, fullest {}, window $window",
        "Highest share of the KV cache in use within the window.",
        f"max by ({REPLICA}) ({metric('kv_cache_usage_max_ratio', window='$window')})",
        "percentunit",
        NOT_REPORTED,
        OF_THE_CACHE,
    )
    preempted = _worst(
        "Preemptions per minute, worst {}",
        "Requests thrown out of the batch for lack of KV cache and computed again later.",
        f"60 * sum by ({REPLICA}) ({rate('preemptions_total')})",
        "none",
        NOT_REPORTED,
        MEANS,
    )
    return Section("Load", (even(8, _pressures()), even(8, first_tokens, waiting), even(8, cache, preempted)))


def _pressures() -> Lines:
    return lines(
        "More replicas, or a smaller step?",
        "1 is a promise that is just kept. Capacity, in the mean of the replicas: what more of them take away, so that "
        "replicas times this is how many there should be. Interference, of the worst replica: what prompts in steps do "
        "to others, which replicas do not take away; the step to set is in the alert InterferencePressure and on the "
        "replica's dashboard.",
        over_time(f"avg by (model) ({metric('capacity_pressure_ratio')})", "capacity, {{model}}"),
        over_time(f"max by (model) ({metric('interference_pressure_ratio')})", "interference, {{model}}"),
        unit="none",
        empty="Nobody was served yet",
        look=replace(FROM_ZERO, limit=AT_ONE),
    )
