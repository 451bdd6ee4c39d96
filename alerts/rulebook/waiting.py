"""Alerts about what stands before the first token: prompts behind prompts, full caches, queues, requests that stick."""

from __future__ import annotations

from alerts.rulebook.names import Names
from alerts.rulebook.rule import (
    VALUE_AS_COUNT,
    VALUE_AS_RATE,
    VALUE_AS_SECONDS,
    VALUE_AS_SHARE,
    Alert,
    label,
    number,
    promql,
    share,
)
from alerts.rulebook.source import Source

from prefillwatch.wire.routes import WRITING


def waiting_alerts(source: Source) -> tuple[Alert, ...]:
    names = Names(source)
    return (
        _prefill_head_of_line(names),
        _first_token_stuck(names),
        _kv_cache_nearly_full(names),
        _preemption_storm(names),
        _queue_saturation(names),
    )


def _prefill_head_of_line(n: Names) -> Alert:
    """Long prompts keep the engine busy while short ones queue. Verdicts may veto it but are not waited for: they are
    counted when an incident of waiting is over, and such an incident can last as long as the long prompts come. Work
    is that of all models: adapters share the engine, and short prompts to one wait behind long ones to another."""
    s, name = n.source, "PrefillHeadOfLine"
    short = "|".join(s.words("short_prompts"))
    queue = n.raw("queue_seconds_bucket", prompt_bucket=f"~{short}")
    count = n.raw("queue_seconds_count", prompt_bucket=f"~{short}")
    long_work = n.raw("prefill_seconds_sum", prompt_bucket=f"!~{short}")
    others = n.raw("waits_total", cause="!prefill")
    return Alert(
        name=name,
        severity="warning",
        expr=promql(f"""
            histogram_quantile(0.9, sum without (prompt_bucket) (rate({queue}[{n.window}])))
              > {number(s.threshold("short_queue_p90"))}
            and sum without (prompt_bucket) (increase({count}[{n.window}])) > {number(s.threshold("min_requests"))}
            and ignoring (model) sum without (model, prompt_bucket) (rate({long_work}[{n.window}]))
              > {number(s.threshold("long_work_share"))}
            unless sum without (cause) (increase({others}[{n.window}]))
              > {number(s.threshold("cause_share"))}
              * sum without (cause) (increase({n.metric("waits_total")}[{n.window}]))
        """),
        hold=s.hold(name),
        keep=s.keep(name),
        summary="Short prompts wait behind long ones.",
        description=(
            f"One in ten prompts of {' and '.join(s.words('short_prompts'))} tokens to {label('model')} on "
            f"{label(s.replica_label)} waited {VALUE_AS_SECONDS} or longer before the engine took it up (limit "
            f"{number(s.threshold('short_queue_p90'))} s), while longer prompts kept it busy for "
            f"{share(s.threshold('long_work_share'))} of the time or more. In prefill now: "
            f"{n.engine_now('prefilling_tokens')} prompt tokens."
        ),
    )


def _first_token_stuck(n: Names) -> Alert:
    """Long prompts take long: what their tokens cost on this server is allowed for, where it has been learned. All
    models count, as adapters share the engine: a request waits behind the prompts of the others too."""
    s, name = n.source, "FirstTokenStuck"
    return Alert(
        name=name,
        severity="critical",
        expr=promql(f"""
            {n.metric("oldest_first_token_wait_seconds")} > {number(s.threshold("first_token_wait"))}
            unless {n.metric("oldest_first_token_wait_seconds")}
              <= ignoring (model) group_left ()
              {number(s.threshold("work_factor"))}
              * max without (model) ({n.metric("prefill_cost_seconds_per_token")})
              * sum without (model) ({n.metric("prefilling_tokens")})
        """),
        hold=s.hold(name),
        keep=s.keep(name),
        summary="A request gets no first token although others would have had theirs long ago.",
        description=(
            f"The oldest request to {label('model')} on {label(s.replica_label)} without a first token has waited for "
            f"{VALUE_AS_SECONDS}, over {number(s.threshold('first_token_wait'))} s and over "
            f"{number(s.threshold('work_factor'))} times what all prompts in prefill take on this server. "
            f"Histograms of finished requests do not show it."
        ),
    )


def _kv_cache_nearly_full(n: Names) -> Alert:
    """On average over a few scrapes: use falls and rises with every answer that ends, and a dip is no room. A server
    that has no such gauge, and an older prefillwatch that takes another one for it, say nothing."""
    s, name = n.source, "KVCacheNearlyFull"
    without = "~" + "|".join(s.words("servers_without_kv"))
    return Alert(
        name=name,
        severity="warning",
        expr=promql(f"""
            avg_over_time({n.metric("kv_cache_usage_ratio")}[{s.level}]) > {number(s.threshold("kv_usage"))}
            unless ignoring (engine, server) {n.raw("upstream_info", server=without)} == 1
        """),
        hold=s.hold(name),
        keep=s.keep(name),
        summary="The KV cache is nearly full.",
        description=(
            f"Engine {label('engine')} behind {label(s.replica_label)} uses {VALUE_AS_SHARE} of its KV cache, on "
            f"average over {s.level} (limit {share(s.threshold('kv_usage'))}). When it is full, requests are preempted "
            f"and their readers wait for seconds."
        ),
    )


def _preemption_storm(n: Names) -> Alert:
    """A storm goes on. A count that moves once is that of a sidecar that was restarted: it begins with what the engine
    counts now, which may be less than it had carried over restarts, and then Prometheus takes all of it for new."""
    s, name = n.source, "PreemptionStorm"
    preemptions = f"sum without (engine) (rate({n.metric('preemptions_total')}[{n.window}]))"
    requests = f"rate({n.raw('requests_total', endpoint='~' + '|'.join(sorted(WRITING)))}[{n.window}])"
    return Alert(
        name=name,
        severity="warning",
        expr=promql(f"""
            {preemptions} > {number(s.threshold("min_preemption_rate"))}
            and max without (engine) (changes({n.metric("preemptions_total")}[{n.window}])) \
>= {number(s.threshold("preemption_scrapes"))}
            unless
              {preemptions}
              <= {number(s.threshold("preemptions_per_request"))}
              * sum without (model, endpoint, outcome) ({requests})
        """),
        hold=s.hold(name),
        keep=s.keep(name),
        summary="Requests are preempted again and again.",
        description=(
            f"The engine behind {label(s.replica_label)} preempted {VALUE_AS_RATE} requests per second over "
            f"{n.window}, more than {number(s.threshold('preemptions_per_request'))} for each request that ended. "
            f"Each of them is computed anew, and its reader waits meanwhile; p99 over all gaps can stay calm."
        ),
    )


def _queue_saturation(n: Names) -> Alert:
    """On average over a few scrapes, as a queue is empty for a moment whenever a step takes in all of it."""
    s, name = n.source, "QueueSaturation"
    waiting = n.raw("upstream_requests", state="waiting")
    return Alert(
        name=name,
        severity="warning",
        expr=promql(f"""
            sum without (engine, state) (avg_over_time({waiting}[{s.level}]))
              > {number(s.threshold("waiting_requests"))}
        """),
        hold=s.hold(name),
        keep=s.keep(name),
        summary="More requests arrive than the engine takes in.",
        description=(
            f"{VALUE_AS_COUNT} requests wait inside the engine behind {label(s.replica_label)}, on average over "
            f"{s.level} (limit {number(s.threshold('waiting_requests'))}). Running answers are not slowed by this; new "
            f"ones start late."
        ),
    )
