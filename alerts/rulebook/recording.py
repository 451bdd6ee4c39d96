"""Recording rules. Two levels: one replica (``instance_…``, which keeps every target label) and the fleet (``job_…``).

Histograms are summed and their quantiles taken afterwards; a quantile is never averaged. Rates over days are made from
recorded rates of minutes, numerator and denominator apart: that gives the same ratio for a hundredth of the samples.
"""

from __future__ import annotations

from alerts.rulebook.names import Names
from alerts.rulebook.rule import Recording, number, promql
from alerts.rulebook.source import Source

QUANTILES = {"p50": 0.5, "p99": 0.99}


def replica_recordings(source: Source) -> tuple[Recording, ...]:
    names = Names(source)
    return (*_replica_gaps(names), *_replica_stalls(names), *_replica_frozen(names))


def fleet_recordings(source: Source) -> tuple[Recording, ...]:
    names = Names(source)
    return (
        *_fleet_gaps(names),
        *_fleet_first_tokens(names),
        *_fleet_stalls(names),
        *_fleet_deadlines(names),
        *_fleet_pressures(names),
    )


def budget_recordings(source: Source) -> tuple[Recording, ...]:
    return tuple(_budget(Names(source)))


def engine_recordings(source: Source) -> tuple[Recording, ...]:
    return tuple(_engine(Names(source)))


# --- One replica ---


def _replica_gaps(n: Names) -> list[Recording]:
    """Quantiles straight from the raw buckets: recording those too would double the series of every replica."""
    return [
        Recording(
            n.replica_itl(name),
            promql(f"""
                histogram_quantile({number(quantile)},
                  sum without (concurrent_prompt) (rate({n.metric("inter_token_latency_seconds_bucket")}[{n.window}]))
                )
            """),
        )
        for name, quantile in QUANTILES.items()
    ]


def _replica_stalls(n: Names) -> list[Recording]:
    return [
        # The sum of all gaps is the time that streams spent decoding; per second, the mean number of them.
        Recording(
            n.decoding,
            promql(f"""
                sum without (concurrent_prompt) (rate({n.metric("inter_token_latency_seconds_sum")}[{n.window}]))
            """),
        ),
        Recording(n.stalls, promql(f"rate({n.metric('stall_seconds_total')}[{n.window}])")),
        Recording(
            n.cause_share,
            promql(f"""
                {n.stalls}
                / ignoring (cause) group_left ()
                (sum without (cause) ({n.stalls}) > 0)
            """),
        ),
        Recording(
            n.stall_share,
            # Without the limit above 1 for a moment: a prompt size seen for the first time brings a new series of gaps,
            # which has no rate before its second scrape, while its stalls have one at once.
            promql(f"""
                clamp_max(
                  {n.stalls}
                  / ignoring (cause) group_left ()
                  ({n.decoding} > 0),
                  1
                )
            """),
        ),
        Recording(
            n.replica_misses,
            promql(f"""
                rate({n.metric("token_deadline_misses_total")}[{n.window}])
                / (rate({n.metric("token_deadlines_total")}[{n.window}]) > 0)
            """),
        ),
    ]


def _replica_frozen(n: Names) -> list[Recording]:
    return [
        Recording(
            n.frozen_share,
            promql(f"{n.metric('frozen_streams')} / ({n.metric('decoding_streams')} > 0)"),
        )
    ]


# --- The fleet ---


def _fleet_gaps(n: Names) -> list[Recording]:
    buckets = n.fleet_itl_buckets
    by_prompt = [
        Recording(n.fleet_itl_by_prompt(name), promql(f"histogram_quantile({number(quantile)}, {buckets})"))
        for name, quantile in QUANTILES.items()
    ]
    overall = [
        Recording(
            n.fleet_itl(name),
            promql(f"histogram_quantile({number(quantile)}, sum without (concurrent_prompt) ({buckets}))"),
        )
        for name, quantile in QUANTILES.items()
    ]
    return [_summed(n, buckets, "inter_token_latency_seconds_bucket"), *by_prompt, *overall]


def _fleet_first_tokens(n: Names) -> list[Recording]:
    rules = []
    for family in ("time_to_first_token_seconds", "queue_seconds", "prefill_seconds"):
        buckets = n.fleet_by_size_buckets(family)
        rules += [
            _summed(n, buckets, f"{family}_bucket"),
            Recording(n.fleet_by_size(family, "p99"), promql(f"histogram_quantile(0.99, {buckets})")),
        ]
    return rules


def _fleet_pressures(n: Names) -> list[Recording]:
    """The load of all replicas, in replicas that it just fills; in the mean; and the worst of the other pressure."""
    replicas, capacity = n.source.replica_labels, n.metric("capacity_pressure_ratio")
    interference = n.metric("interference_pressure_ratio")
    return [
        Recording(n.fleet_capacity_sum, promql(f"sum without ({replicas}) ({capacity})")),
        Recording(n.fleet_capacity, promql(f"avg without ({replicas}) ({capacity})")),
        Recording(n.fleet_interference, promql(f"max without ({replicas}) ({interference})")),
    ]


def _fleet_stalls(n: Names) -> list[Recording]:
    return [
        Recording(n.fleet_stalls, promql(f"sum without ({n.source.replica_labels}) ({n.stalls})")),
        Recording(
            n.fleet_cause_share,
            promql(f"""
                {n.fleet_stalls}
                / ignoring (cause) group_left ()
                (sum without (cause) ({n.fleet_stalls}) > 0)
            """),
        ),
        Recording(
            n.fleet_stall_share,
            promql(f"""
                clamp_max(
                  {n.fleet_stalls}
                  / ignoring (cause) group_left ()
                  (sum without ({n.source.replica_labels}) ({n.decoding}) > 0),
                  1
                )
            """),
        ),
        _summed(n, n.fleet_blame, "prefill_blame_seconds_total"),
    ]


def _fleet_deadlines(n: Names) -> list[Recording]:
    return [
        _summed(n, n.fleet_deadlines, "token_deadlines_total"),
        _summed(n, n.fleet_deadline_misses, "token_deadline_misses_total"),
        Recording(n.fleet_misses, promql(f"{n.fleet_deadline_misses} / ({n.fleet_deadlines} > 0)")),
    ]


def _summed(n: Names, record: str, metric: str) -> Recording:
    return Recording(record, promql(f"sum without ({n.source.replica_labels}) (rate({n.metric(metric)}[{n.window}]))"))


# --- The budget of slow gaps ---


def _budget(n: Names) -> list[Recording]:
    itl = float(n.source.promises["itl"])
    totals = [
        Recording(
            n.gaps,
            promql(f'sum without (concurrent_prompt, le) ({n.fleet_itl_buckets}{{le="+Inf"}})'),
        ),
        Recording(
            n.slow_gaps,
            promql(f"""
                {n.gaps}
                - sum without (concurrent_prompt, le) ({n.fleet_itl_buckets}{{le="{itl!r}"}})
            """),
        ),
    ]
    windows = {w.name: w for rate in n.source.burn_rates for w in (rate.short, rate.long)}
    return totals + [
        Recording(
            n.slow_share(window),
            promql(f"""
                sum_over_time({n.slow_gaps}[{window}])
                / (sum_over_time({n.gaps}[{window}]) > 0)
            """),
        )
        for window in windows.values()
    ]


# --- The engine by its own account ---


def _engine(n: Names) -> list[Recording]:
    """vLLM's own histogram of the same quantity, to compare with; empty where its metrics are not scraped."""
    bucket = n.source.vllm_metric("inter_token_latency_seconds_bucket")
    return [
        Recording(
            n.engine_itl(name),
            promql(f"""
                histogram_quantile({number(quantile)},
                  sum without (engine) (rate({bucket}{{job="{n.source.vllm_job}"}}[{n.window}]))
                )
            """),
        )
        for name, quantile in QUANTILES.items()
    ]
