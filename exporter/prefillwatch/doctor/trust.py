"""What keeps the figures from being trusted: blind spots of the sidecar, too little traffic, restarts."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Final

from prefillwatch.contract import limits
from prefillwatch.contract.runbooks import Runbook
from prefillwatch.doctor import thresholds
from prefillwatch.doctor.figures import Figures, Trust, size_order
from prefillwatch.doctor.finding import Finding, Seen, Sort
from prefillwatch.doctor.histogram import Histogram
from prefillwatch.doctor.pauses import UNTOLD
from prefillwatch.report import counted, listed, share
from prefillwatch.wire.routes import GENERATING, OTHER

#: Steps that hold a long prompt, or a large part of one.
LARGE_STEPS: Final = ("2k-8k", "8k+")
#: So large a share of the engine's requests may be missing before the doctor says that some bypass the sidecar.
_MISSING_SHARE: Final = 0.2
#: So large a share of the requests may go to unknown endpoints before that is said: pages, probes and the like.
_UNKNOWN_SHARE: Final = 0.05
#: Limits of the sidecar: symptom, reasons of refused requests, what is the matter, what to do.
_LIMITS: Final = (
    (
        "no_room_for_bodies",
        ("bodies_full", "upload_too_slow"),
        "prefillwatch had no room for some request bodies",
        "--max-bodies higher, where the memory is there, or --max-body lower",
    ),
    (
        "no_room_for_clients",
        ("clients_full", "no_descriptors"),
        "prefillwatch had no room for some clients",
        "a higher limit of open files (ulimit -n, LimitNOFILE=), or --relays 2",
    ),
    (
        "loop",
        ("loop",),
        "Upstream leads back to prefillwatch",
        "--upstream must name the server, not what clients connect to",
    ),
    (
        "clients_take_nothing",
        ("write_timeout",),
        "Some clients took nothing of their answers",
        "look at those clients; --client-write-timeout says how long they may",
    ),
)


def blind_spots(figures: Figures) -> Iterator[Finding]:
    """Only the parts that are not empty."""
    yield from _of_the_watch(figures)
    yield from _of_the_engine(figures)
    if figures.trust is not None:
        yield from _of_upstream(figures, figures.trust)
        yield from _of_the_relays(figures.trust)
        yield from _of_the_sidecar(figures.trust)
        yield from _of_its_limits(figures.trust)
        yield from _bypass(figures)


def _fault(
    symptom: str, title: str, words: str, remedy: str, runbook: Runbook, **numbers: float | int | str | None
) -> Finding:
    return Finding(symptom, title, Seen.YES, words, numbers, remedy, runbook, sort=Sort.FAULT)


def _note(symptom: str, title: str, words: str, remedy: str = "", **numbers: float | int | str | None) -> Finding:
    return Finding(symptom, title, Seen.YES, words, numbers, remedy, sort=Sort.NOTE)


def _of_the_watch(figures: Figures) -> Iterator[Finding]:
    if figures.restarted:
        what = "prefillwatch" if figures.is_sidecar else "The server"
        yield _note("restarted", f"{what} was restarted while watching", "Figures are of the time since.")
    if not (figures.gap_count or figures.generated or figures.most_streams()):
        words = "Nothing was answered" + (" while watching." if figures.seconds else " since the start.")
        yield _note("idle", "No traffic", words + " There is nothing to judge by; try again under load.")


def _of_the_engine(figures: Figures) -> Iterator[Finding]:
    if figures.by_step and figures.gaps_beside and set(figures.gaps_beside) == {UNTOLD}:
        yield _note(
            "steps_untold",
            "vLLM does not report what its steps carry",
            "The plugin's figures cannot be told apart by prompt tokens.",
            "start vLLM with --enable-logging-iteration-details (0.27 or newer)",
        )
    large = [size for size in figures.steps_beside if size in LARGE_STEPS]
    if large and figures.stalled("prefill").count and any(advice.chunked is False for advice in figures.advice):
        sizes = listed(sorted(large, key=size_order))
        yield _note(
            "whole_prompts",
            "Long prompts are taken in whole, in one engine step each",
            f"As far as the steps show: there were some with {sizes} prompt tokens, and no prompt came in parts.",
        )


def _of_upstream(figures: Figures, trust: Trust) -> Iterator[Finding]:
    if trust.up is False:
        yield _fault(
            "upstream_down",
            "The server behind prefillwatch does not answer",
            "It refuses its health check, calls itself ill, or was late too often in a row.",
            "see whether it runs",
            "UpstreamDown",
        )
    elif trust.health_failures:
        yield _note(
            "health_late",
            "The server does not always answer its health check",
            f"{counted(sum(trust.health_failures.values()), 'check')} failed "
            f"({listed(trust.health_failures)}). It counts as up all the same while answers arrive.",
            failed=sum(trust.health_failures.values()),
        )
    if trust.upstream_restarts:
        yield _note(
            "upstream_restarted", "The engine was restarted", f"{trust.upstream_restarts:g} time(s) while watching."
        )
    if trust.scrape_success is False:
        reasons = listed(trust.scrape_failures) or "reason not reported"
        yield _fault(
            "scrape_failing",
            "The engine's own metrics cannot be read",
            f"The last scrape failed ({reasons}): no KV cache, queue and preemptions.",
            "--upstream-api-key where the page needs a key; prefillwatch check says more",
            "KVSignalLost",
        )
    elif trust.kv_signal is False and figures.engine not in limits.SERVERS_WITHOUT_KV:
        yield _fault(
            "no_kv_signal",
            "The engine does not report the use of its KV cache",
            "Preemption and a full cache can be inferred from the wire only.",
            "vLLM must run without --disable-log-stats",
            "KVSignalLost",
        )


def _of_the_relays(trust: Trust) -> Iterator[Finding]:
    if trust.relays_away:
        yield _fault(
            "relay_away",
            "A relay of prefillwatch does not serve",
            f"Relay {listed(trust.relays_away)} takes no new connections.",
            "/readyz and the log say why",
            "RelayUnstable",
        )
    if trust.relay_restarts or trust.lost_streams:
        yield _fault(
            "relay_ended",
            "Relays of prefillwatch ended and were started again",
            f"{trust.relay_restarts:g} time(s); {counted(trust.lost_streams, 'request')} in flight were cut off.",
            "the log names the signal or exit code",
            "RelayUnstable",
            restarts=trust.relay_restarts,
            lost=trust.lost_streams,
        )


def _of_the_sidecar(trust: Trust) -> Iterator[Finding]:
    if trust.repaired_streams:
        yield _fault(
            "records_lost",
            "The observer stood still for longer than relays can wait for it",
            f"Of {counted(trust.repaired_streams, 'request')} the beginning or the end was not seen; they were "
            f"closed or taken in by what is in flight.",
            "find out what stops it; else give it a core of its own",
            "MeasurementUnreliable",
            requests=trust.repaired_streams,
        )
    if trust.tap_dropped > limits.DROPPED_SHARE * trust.tap_packets:
        yield _fault(
            "tap_dropped",
            "The observer does not keep up",
            f"{trust.tap_dropped:,.0f} packets of observations were lost, and {trust.tap_packets:,.0f} arrived.",
            "give it a core of its own",
            "MeasurementUnreliable",
            dropped=trust.tap_dropped,
            packets=trust.tap_packets,
        )
    late = _lagging(trust.lag)
    if late is not None:
        yield _fault(
            "loop_lag",
            "prefillwatch itself gets too little CPU",
            f"{share(late)} of its relay's wake-ups came more than {limits.LOOP_LAG * 1000:g} ms late.",
            "give it a core of its own; --relays 2 where one is busy all the time",
            "MeasurementUnreliable",
            lagging_share=late,
        )
    if trust.unparsed:
        yield _note(
            "not_understood",
            "Some of the traffic was not understood",
            f"It was passed on, but not counted: {counted(sum(trust.unparsed.values()), 'event')} "
            f"({listed(trust.unparsed)}).",
            events=sum(trust.unparsed.values()),
        )
    known = sum(count for endpoint, count in trust.endpoints.items() if endpoint in GENERATING)
    unknown = trust.endpoints.get(OTHER, 0.0)
    if unknown > _UNKNOWN_SHARE * (known + unknown):
        yield _note(
            "unknown_endpoints",
            "Part of the traffic goes to endpoints that prefillwatch does not know",
            f"It was {counted(unknown, 'request')}, {share(unknown / (known + unknown))} of those that may be work for "
            "the engine. Prompts among them are not seen, so what they hold up is nobody's.",
            unknown_requests=unknown,
            known_requests=known,
        )
    # Content that is no prompt is most often a client's mistake, and the server refuses it.
    if unread := {reason: count for reason, count in trust.unread.items() if reason != "content"}:
        bodies = sum(unread.values())
        yield _note(
            "bodies_unread",
            "Some prompts are known by the size of their requests alone",
            f"No more was taken of {counted(bodies, 'request body', 'request bodies')} "
            f"({listed(unread)}), so until usage is known, their prompts are estimates.",
            "if there are more than there is room or time for (memory, time), see who sends so much",
            bodies=bodies,
        )
    if trust.usage_rests:
        yield _note(
            "usage_refused",
            "The server refuses to be asked for usage",
            "It took requests only without what --usage inject adds, so they are left as they are, and tokens are "
            "estimated from the text where clients do not ask themselves.",
            "serve --usage off, or a server that knows stream_options",
        )
    elif trust.usage_reported is False:
        yield _note(
            "no_usage",
            "Prompt sizes are estimates",
            "No answer reports its usage, so tokens are estimated from the text and cached ones are not known.",
            'clients: "stream_options": {"include_usage": true}; or serve --usage inject',
        )


def _of_its_limits(trust: Trust) -> Iterator[Finding]:
    """Requests that the sidecar itself refused for reasons that can be mended."""
    for symptom, reasons, title, remedy in _LIMITS:
        found = {reason: trust.refused[reason] for reason in reasons if reason in trust.refused}
        if found:
            words = f"{counted(sum(found.values()), 'request')} got an error of ours ({listed(found)})."
            yield _note(symptom, title, words, remedy, requests=sum(found.values()))


def _lagging(lag: Histogram | None) -> float | None:
    """The share of late wake-ups, where it is too large."""
    if lag is None or not lag.count:
        return None
    late = lag.above(limits.LOOP_LAG)[0] / lag.count
    return late if late > limits.LAGGING_SHARE else None


def _bypass(figures: Figures) -> Iterator[Finding]:
    """Does the engine run more requests than we pass on? One look may catch a request that has just ended."""
    both = [
        (moment.running + (moment.waiting or 0), (moment.decoding or 0) + (moment.in_prefill or 0))
        for moment in figures.moments
        if moment.running is not None
    ]
    if len(both) < thresholds.FEWEST_MOMENTS:
        return
    theirs, ours = (statistics.median(side) for side in zip(*both, strict=True))
    if theirs - ours >= 1 and theirs - ours > _MISSING_SHARE * theirs:
        yield _fault(
            "bypass",
            "Requests reach the engine past prefillwatch",
            f"The engine has {theirs:g} requests (median), and {ours:g} came through here. Prompts of the others are "
            "not seen, so pauses that they cause have no culprit.",
            "point all clients of this server at prefillwatch; one prefillwatch per server",
            "MeasurementUnreliable",
            engine_requests=theirs,
            own_requests=ours,
        )
