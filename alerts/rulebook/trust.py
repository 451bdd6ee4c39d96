"""Alerts about what is watched with: is upstream there, are we, and can the figures be believed."""

from __future__ import annotations

from functools import partial

from alerts.rulebook.names import Names
from alerts.rulebook.rule import VALUE_AS_COUNT, VALUE_AS_SECONDS, VALUE_AS_SHARE, Alert, label, number, promql, share
from alerts.rulebook.source import Source
from alerts.rulebook.stalls import held_back_by


def trust_alerts(source: Source) -> tuple[Alert, ...]:
    names = Names(source)
    return (
        _upstream_down(names),
        *_exporter_down(names),
        *_relay_unstable(names),
        _requests_refused(names),
        *_certificate_expires(names),
        _kv_signal_lost(names),
        *_measurement_unreliable(names),
    )


def _upstream_down(n: Names) -> Alert:
    """A sidecar starts before its server, which then loads its model: a replica that is new and has never been up is
    given its time. One that was up, or has been known for longer, is not."""
    s, name = n.source, "UpstreamDown"
    up = n.metric("up")
    return Alert(
        name=name,
        severity="critical",
        expr=promql(f"""
            {up} == 0
            unless (
              max_over_time({up}[{s.start}]) == 0
              unless present_over_time({up}[{n.window}] offset {s.start})
            )
        """),
        hold=s.hold(name),
        keep=s.keep(name),
        summary="The server behind prefillwatch does not answer its health check.",
        description=(
            f"The server behind {label(s.replica_label)} has not answered its health check for {s.hold(name)}. "
            f"Requests that reach it there fail."
        ),
    )


def _exporter_down(n: Names) -> list[Alert]:
    s, name = n.source, "ExporterDown"
    alert = partial(Alert, name=name, severity="critical", hold=s.hold(name), keep=s.keep(name))
    return [
        alert(
            expr=promql(f'up{{job="{s.job}"}} == 0'),
            summary="prefillwatch cannot be scraped.",
            description=(
                f"Prometheus has had no answer from prefillwatch at {label(s.replica_label)} for {s.hold(name)}. It "
                f"stands in the path of the tokens: where it is down, so are its users, and nothing else here can fire "
                f"for it."
            ),
            labels={"reason": "scrape_failed"},
        ),
        alert(
            expr=promql(f'absent(up{{job="{s.job}"}})'),
            summary="No prefillwatch is scraped at all.",
            description=(
                f"Prometheus knows no target of the job {s.job}: it was removed, renamed or is no longer discovered. "
                f"None of the other alerts of prefillwatch can fire."
            ),
            labels={"reason": "no_target"},
        ),
    ]


def _relay_unstable(n: Names) -> list[Alert]:
    """One that is mute is killed and started again within seconds; the alert is for what does not pass, what comes
    back, and what somebody lost by it."""
    s, name = n.source, "RelayUnstable"
    alert = partial(
        Alert,
        name=name,
        hold=s.hold(name),
        keep=s.keep(name),
        summary="A relay of prefillwatch does not serve, or ends again and again.",
    )
    replica, window = label(s.replica_label), s.restarts
    restarts, lost = n.metric("relay_restarts_total"), n.metric("relay_lost_streams_total")
    return [
        alert(
            severity="critical",
            expr=promql(f"min without (relay) ({n.metric('relay_serving')}) == 0"),
            description=(
                f"A relay process at {replica} has not taken new connections for {s.hold(name)}: it hangs, has no free "
                f"descriptors, or does not come up. The others of that replica, if there are any, take its clients; "
                f"/readyz says which one and why."
            ),
            labels={"reason": "not_serving"},
        ),
        alert(
            severity="warning",
            expr=promql(f"increase({restarts}[{window}]) > {number(s.threshold('relay_restarts'))}"),
            description=(
                f"Relay processes at {replica} ended {VALUE_AS_COUNT} times in {window} and were started again. Every "
                f"time the answers in flight there are cut off. Its log says of what."
            ),
            labels={"reason": "restarts"},
        ),
        alert(
            severity="warning",
            expr=promql(f"sum without (relay) (increase({lost}[{window}])) > 0"),
            description=(
                f"{VALUE_AS_COUNT} requests at {replica} were cut off in {window} because the relay process that "
                f"carried them ended."
            ),
            labels={"reason": "lost_streams"},
        ),
    ]


def _requests_refused(n: Names) -> Alert:
    """Only for want of room: what is refused because it is wrong is the client's to mend."""
    s, name = n.source, "RequestsRefused"
    reasons = "|".join(s.words("refused_for_want_of_room"))
    refused = n.raw("refused_requests_total", reason=f"~{reasons}")
    return Alert(
        name=name,
        severity="warning",
        hold=s.hold(name),
        keep=s.keep(name),
        expr=promql(f"increase({refused}[{s.diagnosis}]) > 0"),
        summary="prefillwatch refuses requests for want of room.",
        description=(
            f"prefillwatch at {label(s.replica_label)} refused {VALUE_AS_COUNT} requests in {s.diagnosis} "
            f"({label('reason')}). vLLM never saw them. The runbook says which limit that is."
        ),
    )


def _certificate_expires(n: Names) -> list[Alert]:
    """Certificates that live for hours are renewed within the day, and never have a week left: those are well."""
    s, name = n.source, "CertificateExpires"
    expiry = n.metric("certificate_expiry_timestamp_seconds")
    alert = partial(
        Alert,
        name=name,
        hold=s.hold(name),
        keep=s.keep(name),
        summary="A certificate of prefillwatch is not renewed.",
    )
    listener, replica = label("listener"), label(s.replica_label)
    return [
        alert(
            severity="warning",
            expr=promql(f"""
                0 < {expiry} - time() < {number(s.threshold("certificate_left"))}
                unless max_over_time({expiry}[{s.renewals}]) > min_over_time({expiry}[{s.renewals}])
            """),
            description=(
                f"The certificate that the {listener} listener at {replica} serves is good for {VALUE_AS_SECONDS}, and "
                f"was not renewed in the last {s.renewals}. prefillwatch takes a new one from its files by itself."
            ),
            labels={"reason": "soon"},
        ),
        alert(
            severity="critical",
            expr=promql(f"{expiry} - time() <= 0"),
            description=(
                f"The certificate that the {listener} listener at {replica} serves has expired. Clients that verify it "
                f"do not connect any more."
            ),
            labels={"reason": "expired"},
        ),
    ]


def _kv_signal_lost(n: Names) -> Alert:
    """Lost is only what was there: a server that never reported it, whatever its kind, has lost nothing."""
    s, name = n.source, "KVSignalLost"
    without = "~" + "|".join(s.words("servers_without_kv"))
    return Alert(
        name=name,
        severity="warning",
        expr=promql(f"""
            {n.metric("kv_signal_present")} == 0
            and max_over_time({n.metric("kv_signal_present")}[{s.signal}]) == 1
            and {n.metric("up")} == 1
            unless ignoring (server) {n.raw("upstream_info", server=without)} == 1
        """),
        hold=s.hold(name),
        keep=s.keep(name),
        summary="The server answers but no longer reports the use of its KV cache.",
        description=(
            f"prefillwatch at {label(s.replica_label)} has found no KV cache usage in the metrics of its server for "
            f"{s.hold(name)}: the metric was renamed, its page is broken or cannot be reached. KVCacheNearlyFull and "
            f"PreemptionStorm cannot fire, and verdicts are made without that evidence."
        ),
    )


def _measurement_unreliable(n: Names) -> list[Alert]:
    s, name = n.source, "MeasurementUnreliable"
    alert = partial(
        Alert,
        name=name,
        severity="warning",
        hold=s.hold(name),
        keep=s.keep(name),
        summary="The figures of this replica are distorted by how they are measured.",
    )
    return [
        alert(
            expr=_dropped(n),
            description=(
                f"prefillwatch at {label(s.replica_label)} dropped {VALUE_AS_SHARE} of its observations over "
                f"{n.window} (limit {share(s.threshold('dropped_share'))}): its observer process does not keep up. "
                f"Clients lose nothing, but gaps across a drop are not measured."
            ),
            labels={"reason": "tap_dropped"},
        ),
        alert(
            expr=_repaired(n),
            description=(
                f"Of {VALUE_AS_SHARE} of the requests at {label(s.replica_label)} over {n.window} (limit "
                f"{share(s.threshold('dropped_share'))}) prefillwatch lost the beginning or the end: its observer "
                f"process stood still for longer than its relays can keep that for it. They were closed or taken in by "
                f"comparison with what is in flight; how they ended is not known."
            ),
            labels={"reason": "lost_records"},
        ),
        alert(
            expr=_lagging(n),
            description=(
                f"{VALUE_AS_SHARE} of the time checks of the relay at {label(s.replica_label)} over {n.window} were "
                f"more than {number(1000 * s.threshold('loop_lag'))} ms late (limit "
                f"{share(s.threshold('lagging_share'))}): it lacks CPU, so part of what it measures is its own delay."
            ),
            labels={"reason": "loop_lag"},
        ),
        alert(
            expr=held_back_by(n, "buffering"),
            description=(
                f"Over {n.window}, readers of {label('model')} on {label(s.replica_label)} stood still for "
                f"{VALUE_AS_SHARE} of their decoding time (limit {share(s.threshold('stall_share'))}) because "
                f"something between the engine and prefillwatch holds tokens back and releases them in bursts. Gaps "
                f"seen here are not the engine's."
            ),
            labels={"reason": "buffering"},
        ),
    ]


def _dropped(n: Names) -> str:
    dropped = f"sum without (relay) (rate({n.metric('tap_dropped_total')}[{n.window}]))"
    packets = f"sum without (relay) (rate({n.metric('tap_packets_total')}[{n.window}]))"
    return promql(f"""
        {dropped}
        / ({dropped} + {packets} > 0)
        > {number(n.source.threshold("dropped_share"))}
    """)


def _repaired(n: Names) -> str:
    repaired = f"sum without (relay, repair) (rate({n.metric('tap_repaired_streams_total')}[{n.window}]))"
    requests = f"sum without (model, endpoint, outcome) (rate({n.metric('requests_total')}[{n.window}]))"
    return promql(f"""
        {repaired}
        / ({repaired} + {requests} > 0)
        > {number(n.source.threshold("dropped_share"))}
    """)


def _lagging(n: Names) -> str:
    bound = n.raw("relay_loop_lag_seconds_bucket", le=repr(n.source.threshold("loop_lag")))
    return promql(f"""
        1
        - sum without (relay, le) (rate({bound}[{n.window}]))
        / (sum without (relay) (rate({n.metric("relay_loop_lag_seconds_count")}[{n.window}])) > 0)
        > {number(n.source.threshold("lagging_share"))}
    """)
