"""Panels that both dashboards have, of one deployment and of all."""

from __future__ import annotations

from grafana.generator import limits
from grafana.generator.metric import in_range, metric, quantile_in_range
from grafana.generator.palette import ALL
from grafana.generator.panels import Answer, Face, Ranking, answer, now, ranking
from grafana.generator.series import NO_GAPS, NO_STALLS, OF_CAUSES, OF_SIZES


def frozen_streams() -> Answer:
    return answer(
        "Frozen streams now",
        "Answers that stand still at this moment: their open gap already counts as a stall. Not those that their own "
        "reader holds up.",
        now(f"sum ({metric('frozen_streams')})", "frozen"),
        unit="none",
        steps=limits.ANY_IS_BAD,
        empty="No streams seen",
        face=Face(zero="None"),
    )


def silence() -> Answer:
    return answer(
        "Longest silence",
        "How long the quietest streaming answer has been silent so far, and the longest gap that ended within the last "
        f"minute: freezes are over before one looks. Yellow from the promised gap ({limits.ITL_TARGET_S * 1000:g} ms), "
        f"red from the gap that is always a stall ({limits.ALWAYS_A_STALL_S:g} s).",
        now(f"max ({metric('open_gap_seconds')})", "now"),
        now(f"max ({metric('inter_token_latency_max_seconds', window='1m', population='all')})", "last minute"),
        unit="s",
        steps=limits.GAP,
        empty="Nothing streams",
        face=Face(named=True),
    )


def dose_and_response() -> Ranking:
    return ranking(
        "Dose and response: ITL p99 by concurrent prompt (tokens)",
        "Over all the time shown, longest gaps first: how much longer a gap is while a prompt of that size is read, by "
        "the largest other prompt in service.",
        now(
            f"sort_desc ({quantile_in_range(0.99, 'inter_token_latency_seconds', 'concurrent_prompt')} >= 0)",
            "{{concurrent_prompt}}",
        ),
        "s",
        NO_GAPS,
        limits.only(ALL),
        OF_SIZES,
    )


def culprits() -> Ranking:
    return ranking(
        "Who causes it: stall seconds by prompt size (tokens)",
        "All the time shown, by the prompt tokens of the request that inflicted them, most first.",
        now(f"sort_desc (sum by (prompt_bucket) ({in_range('prefill_blame_seconds_total')}) > 0)", "{{prompt_bucket}}"),
        "s",
        "No prompt to blame",
        limits.only(ALL),
        OF_SIZES,
    )


def sufferers() -> Ranking:
    return ranking(
        "Who suffers: stall seconds by cause",
        "All the time shown, summed over streams, most first.",
        now(f"sort_desc (sum by (cause) ({in_range('stall_seconds_total')}) > 0)", "{{cause}}"),
        "s",
        NO_STALLS,
        limits.only(ALL),
        OF_CAUSES,
    )
