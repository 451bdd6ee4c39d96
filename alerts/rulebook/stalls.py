"""Alerts about gaps between tokens: that users are stalled, and which cause the sidecar's verdicts name."""

from __future__ import annotations

from textwrap import indent

from alerts.rulebook.names import Names
from alerts.rulebook.rule import (
    VALUE_AS_RATE,
    VALUE_AS_SECONDS,
    VALUE_AS_SHARE,
    Alert,
    asked,
    label,
    number,
    promql,
    share,
)
from alerts.rulebook.source import Source

from prefillwatch.contract.causes import CAUSES, FRONTEND, PREFILL


def dominated_by(n: Names, cause: str) -> str:
    """Stalls take a noticeable share of decoding time, most of it by one cause, and enough is decoded to say so."""
    s = n.source
    return promql(f"""
        {n.stall_share}{{cause="{cause}"}} > {number(s.threshold("stall_share"))}
        and {n.cause_share}{{cause="{cause}"}} > {number(s.threshold("cause_share"))}
        and ignoring (cause) {n.decoding} > {number(s.threshold("min_decoding"))}
    """)


def held_back_by(n: Names, cause: str) -> str:
    """As above, or readers stand still again and again and get all they missed in one go. Then hardly a second is lost
    beyond the usual gaps of so many tokens, and stall seconds say nothing; but each such stall is a silence of a second
    or longer, as shorter ones that bring all their tokens are no stalls."""
    s = n.source
    stalls, of_all = n.raw("stalls_total", cause=cause), n.metric("stalls_total")
    return promql(f"""
        (
{indent(dominated_by(n, cause).rstrip(), " " * 10)}
        )
        or (
          clamp_max(
            {number(s.threshold("always_a_stall"))} * rate({stalls}[{n.window}])
            / ignoring (cause) group_left ()
            ({n.decoding} > 0),
            1
          ) > {number(s.threshold("stall_share"))}
          and rate({stalls}[{n.window}])
            > ignoring (cause) group_left ()
            {number(s.threshold("cause_share"))} * sum without (cause) (rate({of_all}[{n.window}]))
          and ignoring (cause) {n.decoding} > {number(s.threshold("min_decoding"))}
        )
    """)


def stall_alerts(source: Source) -> tuple[Alert, ...]:
    names = Names(source)
    return (
        _stream_freeze(names),
        _prefill_interference(names),
        _interference_pressure(names),
        _tenant_stalls_others(names),
        *_not_prefill(names),
    )


def _stream_freeze(n: Names) -> Alert:
    s, name = n.source, "StreamFreeze"
    return Alert(
        name=name,
        severity="critical",
        expr=promql(f"""
            {n.metric("open_gap_seconds")} > {number(s.threshold("open_gap"))}
            or (
              {n.metric("open_gap_seconds")}
              and avg_over_time({n.frozen_share}[{s.freeze}]) > {number(s.threshold("frozen_share"))}
            )
        """),
        hold=s.hold(name),
        keep=s.keep(name),
        summary="Answers have stopped in the middle of being written.",
        description=(
            f"A reader of {label('model')} on {label(s.replica_label)} has seen no token for {VALUE_AS_SECONDS}; "
            f"{n.gauge_here('frozen_streams')} of {n.gauge_here('decoding_streams')} streams are frozen now. "
            f"Waiting for their first token: {n.engine_now('prefilling_requests')} requests with "
            f"{n.engine_now('prefilling_tokens')} prompt tokens."
        ),
    )


def _culprits(n: Names) -> str:
    """Sizes of the prompts to blame, the worst first, with the stall seconds that each inflicted."""
    query = f"sort_desc(topk(3, increase({n.here('prefill_blame_seconds_total')}[{n.window}]) > 0))"
    arguments = " ".join(f"$labels.{name}" for name in n.place)
    return (
        f"{{{{ range $i, $culprit := query (printf `{query}` {arguments}) }}}}"
        '{{ if $i }}, {{ end }}{{ $culprit.Labels.prompt_bucket }} tokens ({{ printf "%.0f" $culprit.Value }} s)'
        "{{ else }}not known yet{{ end }}"
    )


def _advice(n: Names) -> str:
    """Only where the cost model explains the steps that were seen; both metrics have the same labels."""
    query = (
        f"{n.here('advised_max_batched_tokens')}"
        f" and {n.source.metric('prefill_cost_fit_ratio')} > {number(n.source.threshold('cost_fit'))}"
    )
    return asked(
        query,
        n.place,
        '--max-num-batched-tokens {{ . | first | value | printf "%.0f" }} keeps gaps under their target',
        "none yet, what a prompt token costs on this server is not known well enough",
    )


def _prefill_interference(n: Names) -> Alert:
    s, name = n.source, "PrefillInterference"
    return Alert(
        name=name,
        severity="warning",
        expr=dominated_by(n, PREFILL),
        hold=s.hold(name),
        keep=s.keep(name),
        summary="Long prompts freeze other users' answers.",
        description=(
            f"Over {n.window}, readers of {label('model')} on {label(s.replica_label)} lost {VALUE_AS_SHARE} of their "
            f"decoding time (limit {share(s.threshold('stall_share'))}) to the prefill of other requests' prompts. "
            f"Stall seconds by size of the prompt to blame: {_culprits(n)}. Advice: {_advice(n)}."
        ),
    )


def _interference_pressure(n: Names) -> Alert:
    s, name = n.source, "InterferencePressure"
    capacity = asked(
        n.here("capacity_pressure_ratio"), n.place, '{{ . | first | value | printf "%.2f" }}', "not known yet"
    )
    return Alert(
        name=name,
        severity="warning",
        expr=promql(f"{n.metric('interference_pressure_ratio')} > {number(s.threshold('pressure'))}"),
        hold=s.hold(name),
        keep=s.keep(name),
        summary="Prompts in steps break the promise on gaps, which more replicas do not cure.",
        description=(
            f"On {label(s.replica_label)}, what prompts in steps add to the worst of the gaps of {label('model')} (or "
            f"to waits behind one longer prompt) is {VALUE_AS_RATE} times what is promised. The same of too much load, "
            f"which replicas do cure: {capacity}. Advice: {_advice(n)}."
        ),
    )


def _tenant_stalls_others(n: Names) -> Alert:
    """The rest that shares a series is nobody in particular, so it is never named."""
    s, name = n.source, "TenantStallsOthers"
    caused = n.raw("tenant_stall_caused_seconds_total", victim="others", tenant="!other")
    suffered = n.raw("tenant_stall_suffered_seconds_total", culprit="others")
    return Alert(
        name=name,
        severity="warning",
        expr=promql(f"""
            sum without (victim) (rate({caused}[{n.window}]))
            / ignoring (tenant) group_left ()
            (sum without (tenant, culprit) (rate({suffered}[{n.window}])) > 0)
            > {number(s.threshold("tenant_share"))}
            and ignoring (tenant) (
              sum without (tenant, culprit) (rate({suffered}[{n.window}]))
              > {number(s.threshold("stall_share"))} * sum without (model) ({n.decoding})
            )
            and ignoring (tenant) sum without (model) ({n.decoding}) > {number(s.threshold("min_decoding"))}
        """),
        hold=s.hold(name),
        keep=s.keep(name),
        summary="One tenant's prompts freeze the answers of the others.",
        description=(
            f"Over {n.window}, prompts of tenant {label('tenant')} caused {VALUE_AS_SHARE} of the stall seconds that "
            f"streams of other tenants lost on {label(s.replica_label)} to prompts not their own (limit "
            f"{share(s.threshold('tenant_share'))}), and those are more than {share(s.threshold('stall_share'))} of "
            "all decoding time."
        ),
    )


def _not_prefill(n: Names) -> list[Alert]:
    s = n.source
    return [
        Alert(
            name=cause.runbook,
            severity="warning",
            expr=held_back_by(n, cause.name) if cause.name == FRONTEND else dominated_by(n, cause.name),
            hold=s.hold(cause.runbook),
            keep=s.keep(cause.runbook),
            summary=cause.alert.summary,
            description=(
                f"Over {n.window}, readers of {label('model')} on {label(s.replica_label)} stood still for "
                f"{VALUE_AS_SHARE} of their decoding time (limit {share(s.threshold('stall_share'))}) because of "
                f"{cause.alert.explanation}"
            ),
        )
        for cause in CAUSES
        if cause.alert
    ]
