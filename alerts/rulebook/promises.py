"""Alerts about what users were promised, over the whole fleet: the budget of slow gaps, and times to first token."""

from __future__ import annotations

from alerts.rulebook.names import Names
from alerts.rulebook.rule import VALUE_AS_SECONDS, VALUE_AS_SHARE, Alert, label, number, promql, share
from alerts.rulebook.source import BurnRate, Source


def budget_alerts(source: Source) -> tuple[Alert, ...]:
    names = Names(source)
    return tuple(_burn(names, rate) for rate in source.burn_rates)


def _burn(n: Names, rate: BurnRate) -> Alert:
    s, name = n.source, "ITLBudgetBurn"
    objective = float(s.promises["itl_objective"])
    limit = number(round(rate.factor * (1 - objective), 9))
    itl = number(1000 * float(s.promises["itl"]))
    return Alert(
        name=name,
        severity=rate.severity,
        expr=promql(f"""
            {n.slow_share(rate.long)} > {limit}
            and {n.slow_share(rate.short)} > {limit}
            and avg_over_time({n.gaps}[{rate.long}]) > {number(s.threshold("min_gap_rate"))}
        """),
        hold=rate.hold,
        keep=s.keep(name),
        summary="Gaps between tokens are longer than promised too often.",
        description=(
            f"Over {rate.long.name}, {VALUE_AS_SHARE} of the gaps between tokens of {label('model')} (job "
            f"{label('job')}) were longer than {itl} ms; {share(round(1 - objective, 9))} may be. At this rate, "
            f"{number(rate.factor)} times the sustainable one or more, the budget of 30 days is gone early."
        ),
        labels={"long": rate.long.name, "short": rate.short.name},
    )


def first_token_alerts(source: Source) -> tuple[Alert, ...]:
    names = Names(source)
    return tuple(_ttft_high(names, size, float(limit)) for size, limit in source.promises["ttft_p99"].items())


def _ttft_high(n: Names, size: str, limit: float) -> Alert:
    s, name = n.source, "TTFTHigh"
    buckets = n.fleet_by_size_buckets("time_to_first_token_seconds")
    per_second = number(round(s.threshold("min_requests") / n.window.seconds, 6))
    return Alert(
        name=name,
        severity="warning",
        expr=promql(f"""
            {n.fleet_by_size("time_to_first_token_seconds", "p99")}{{prompt_bucket="{size}"}} > {number(limit)}
            and ignoring (le) {buckets}{{prompt_bucket="{size}", le="+Inf"}} > {per_second}
        """),
        hold=s.hold(name),
        keep=s.keep(name),
        summary="First tokens come later than promised for prompts of this size.",
        description=(
            f"The 99th percentile of the time to first token for prompts of {label('prompt_bucket')} tokens to "
            f"{label('model')} (job {label('job')}) over {n.window} is {VALUE_AS_SECONDS}; promised are "
            f"{number(limit)} s."
        ),
        labels={"prompt_bucket": size},
    )
