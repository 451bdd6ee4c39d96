"""From pages to figures: one reader for a sidecar, one for a server that stands alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prefillwatch.doctor.figures import ANY_SIZE, Comparison, Figures, Level, Moment, Stalls, Trust
from prefillwatch.doctor.histogram import Histogram, together
from prefillwatch.doctor.look import Look
from prefillwatch.doctor.page import OURS, PLUGIN_GAPS, PLUGIN_STEPS, Page
from prefillwatch.doctor.servers import SERVERS
from prefillwatch.doctor.span import Span, span_of
from prefillwatch.engine.kinds import EngineSample
from prefillwatch.export import table
from prefillwatch.export.spec import window_name


def read(look: Look) -> Figures:
    """What was read, as figures."""
    span = span_of(look.first, look.last)
    return _of_sidecar(look, span) if look.last.namespace == OURS else _of_server(look, span)


def moment_of(page: Page) -> Moment:
    """The gauges of a page, to be read at every look."""
    return _sidecar_moment(page) if page.namespace == OURS else _server_moment(page)


# --- A sidecar ---


def _of_sidecar(look: Look, span: Span) -> Figures:
    page = span.after
    beside = span.histograms(table.INTER_TOKEN_LATENCY.name, "concurrent_prompt")
    prompts = span.histogram(table.PROMPT_LENGTH.name)
    return Figures(
        server=OURS,
        engine=next((labels["server"] for labels, _ in page.series(table.UPSTREAM_INFO.name)), ""),
        seconds=look.seconds or None,
        restarted=span.restarted,
        moments=look.moments,
        before=_sidecar_before(span),
        gaps=together(beside.values()),
        longest_gap=_longest_gap(look, together(beside.values())),
        gaps_beside=beside,
        stalls=_stalls(span),
        incidents=look.incidents,
        advice=look.advice,
        first_tokens=span.histograms(table.TIME_TO_FIRST_TOKEN.name, "prompt_bucket"),
        queue=span.histograms(table.QUEUE.name, "prompt_bucket"),
        prefill=span.histograms(table.PREFILL.name, "prompt_bucket"),
        prompts=prompts,
        longest_prompt=_whole(_exact(prompts, _windowed(page, table.PROMPT_LENGTH_MAX.name, look.seconds))),
        steps_beside=span.histograms(table.STEP_TIME.name, "step_prefill_tokens"),
        levels=_levels(span),
        finished=span.total(table.REQUESTS.name),
        generated=span.total(table.GENERATED_TOKENS.name),
        preemptions=span.total(table.PREEMPTIONS.name),
        kv_capacity=page.total(table.KV_CACHE_CAPACITY.name),
        kv_free=page.total(table.KV_CACHE_FREE.name),
        caused_by_tenant=span.totals(table.TENANT_STALL_CAUSED.name, "tenant", victim="others"),
        suffered_by_tenant=span.totals(table.TENANT_STALL_SUFFERED.name, "tenant", culprit="others"),
        trust=_trust(span),
        capacity_pressure=page.highest(table.CAPACITY_PRESSURE.name),
        interference_pressure=page.highest(table.INTERFERENCE_PRESSURE.name),
        advised_queue=_whole(page.highest(table.ADVISED_MAX_QUEUED_TOKENS.name)),
    )


def _sidecar_moment(page: Page) -> Moment:
    return Moment(
        decoding=_whole(page.total(table.DECODING_STREAMS.name)) or 0,
        in_prefill=_whole(page.total(table.PREFILLING_REQUESTS.name)) or 0,
        running=_whole(page.total(table.UPSTREAM_REQUESTS.name, state="running")),
        waiting=_whole(page.total(table.UPSTREAM_REQUESTS.name, state="waiting")),
        kv_usage=page.highest(table.KV_CACHE_USAGE.name),
        open_gap=page.highest(table.OPEN_GAP.name),
        frozen=_whole(page.total(table.FROZEN_STREAMS.name)),
        oldest_wait=page.highest(table.OLDEST_FIRST_TOKEN_WAIT.name),
    )


def _sidecar_before(span: Span) -> Comparison | None:
    if span.before is None:
        return None
    earlier = Span(None, span.before)
    beside = earlier.histograms(table.INTER_TOKEN_LATENCY.name, "concurrent_prompt")
    return Comparison(
        gaps=together(beside.values()),
        gaps_beside=beside,
        first_tokens=earlier.histograms(table.TIME_TO_FIRST_TOKEN.name, "prompt_bucket"),
        levels=_levels(earlier),
    )


def _longest_gap(look: Look, gaps: Histogram | None) -> float | None:
    """Its exact length, from an incident or a sliding window."""
    over = [each.worst_gap for each in look.incidents if each.kind == "freeze"]
    window = _windowed(look.last, table.INTER_TOKEN_LATENCY_MAX.name, look.seconds, population="all")
    return _exact(gaps, max(over, default=None), window)


def _exact(histogram: Histogram | None, *known: float | None) -> float | None:
    """The largest sample, if one of those known elsewhere can be it: they may be of a time before the watch, and then
    most likely lie in another bucket."""
    bucket = histogram.longest() if histogram else None
    return next((value for value in known if value and bucket and bucket.low < value <= bucket.high), None)


def _windowed(page: Page, name: str, seconds: float, **labels: str) -> float | None:
    """A gauge of the shortest sliding window that holds all that was watched; None where none is so long."""
    lengths = {_window_seconds(have.get("window", "")) for have, _ in page.series(name, **labels)}
    fitting = [length for length in lengths if length >= seconds > 0]
    return page.highest(name, window=window_name(min(fitting)), **labels) if fitting else None


def _window_seconds(name: str) -> int:
    """10 for ``10s``, 300 for ``5m``; 0 for what is no window."""
    digits, unit = name[:-1], name[-1:]
    return int(digits) * {"s": 1, "m": 60}.get(unit, 0) if digits.isdigit() else 0


def _stalls(span: Span) -> dict[str, Stalls]:
    counts = span.totals(table.STALLS.name, "cause")
    seconds = span.totals(table.STALL_SECONDS.name, "cause")
    return {cause: Stalls(round(count), seconds.get(cause, 0.0)) for cause, count in counts.items() if count}


def _levels(span: Span) -> dict[str, Level]:
    seconds = span.totals(table.CONCURRENCY_SECONDS.name, "concurrency")
    tokens = span.totals(table.CONCURRENCY_TOKENS.name, "concurrency")
    requests = span.totals(table.CONCURRENCY_REQUESTS.name, "concurrency")
    order = {label: position for position, label in enumerate(table.CONCURRENCY.values)}
    return {
        label: Level(seconds[label], tokens.get(label, 0.0), requests.get(label, 0.0))
        for label in sorted(seconds, key=lambda label: order.get(label, len(order)))
        if seconds[label] > 0
    }


def _trust(span: Span) -> Trust:
    page = span.after
    return Trust(
        up=_truth(page.total(table.UP.name)),
        scrape_success=_truth(page.total(table.UPSTREAM_SCRAPE_SUCCESS.name)),
        scrape_failures={
            reason: count
            for reason, count in span.totals(table.UPSTREAM_SCRAPE_FAILURES.name, "reason").items()
            if count
        },
        kv_signal=_truth(page.total(table.KV_SIGNAL_PRESENT.name)),
        tap_packets=span.total(table.TAP_PACKETS.name) or 0.0,
        tap_dropped=span.total(table.TAP_DROPPED.name) or 0.0,
        lag=span.histogram(table.RELAY_LOOP_LAG.name),
        usage_reported=_usage_reported(page),
        usage_rests=bool(page.total(table.RELAY_USAGE_RESTS.name)),
        unparsed={
            reason: count for reason, count in span.totals(table.UNPARSED_EVENTS.name, "reason").items() if count
        },
        upstream_restarts=span.total(table.UPSTREAM_RESTARTS.name) or 0.0,
        refused={
            reason: count for reason, count in span.totals(table.REFUSED_REQUESTS.name, "reason").items() if count
        },
        health_failures={
            reason: count
            for reason, count in span.totals(table.UPSTREAM_HEALTH_FAILURES.name, "reason").items()
            if count
        },
        relays_away=tuple(
            relay for relay, serves in page.totals(table.RELAY_SERVING.name, "relay").items() if not serves
        ),
        relay_restarts=span.total(table.RELAY_RESTARTS.name) or 0.0,
        lost_streams=span.total(table.RELAY_LOST_STREAMS.name) or 0.0,
        repaired_streams=span.total(table.TAP_REPAIRED_STREAMS.name) or 0.0,
        unread={
            reason: count for reason, count in span.totals(table.REQUEST_BODIES_UNREAD.name, "reason").items() if count
        },
        endpoints=span.totals(table.REQUESTS.name, "endpoint", outcome="ok"),
    )


def _usage_reported(page: Page) -> bool | None:
    """Whether any answer reported how many tokens it took and gave; of those that ended well, since the start."""
    if not page.total(table.REQUESTS.name, outcome="ok"):
        return None
    reported = page.histogram(table.TOKENS_PER_EVENT.name)
    return reported is not None and reported.count > 0


# --- A server that stands alone ---


def _of_server(look: Look, span: Span) -> Figures:
    server = SERVERS[span.after.namespace]
    beside = span.histograms(PLUGIN_GAPS, "step_prefill_tokens", OURS) or None
    engines = span.after.engines.engines
    first_tokens = _first(span, server.first_tokens)
    return Figures(
        server=span.after.namespace,
        seconds=look.seconds or None,
        restarted=span.restarted,
        moments=look.moments,
        gaps=_first(span, server.gaps) or together((beside or {}).values()),
        gaps_beside=beside,
        by_step=beside is not None,
        first_tokens={ANY_SIZE: first_tokens} if first_tokens and first_tokens.count else {},
        queue=_any_size(_first(span, server.queue)),
        prefill=_any_size(_first(span, server.prefill)),
        prompts=_first(span, server.prompts),
        step_tokens=_first(span, server.step_tokens),
        steps_beside=span.histograms(PLUGIN_STEPS, "step_prefill_tokens", OURS),
        finished=_first_total(span, server.finished),
        generated=_first_total(span, server.generated),
        preemptions=_preemptions(span),
        kv_capacity=_sum(engine.capacity_tokens for engine in engines),
        kv_free=_sum(engine.free_tokens for engine in engines),
    )


def _server_moment(page: Page) -> Moment:
    engines = page.engines.engines
    usages = [engine.kv_usage for engine in engines if engine.kv_usage is not None]
    return Moment(
        running=_whole(_sum(engine.running for engine in engines)),
        waiting=_whole(_sum(engine.waiting for engine in engines)),
        kv_usage=max(usages, default=None),
    )


def _first(span: Span, names: Iterable[str]) -> Histogram | None:
    """The first of some names that the page has."""
    return next((found for found in map(span.histogram, names) if found is not None), None)


def _first_total(span: Span, names: Iterable[str]) -> float | None:
    return next((found for found in map(span.total, names) if found is not None), None)


def _any_size(histogram: Histogram | None) -> Mapping[str, Histogram]:
    return {ANY_SIZE: histogram} if histogram and histogram.count else {}


def _preemptions(span: Span) -> float | None:
    now = _preempted(span.after.engines.engines)
    before = _preempted(span.before.engines.engines) if span.before else None
    return now if now is None or before is None else max(now - before, 0.0)


def _preempted(engines: Iterable[EngineSample]) -> float | None:
    return _sum(engine.preemptions_total for engine in engines)


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _truth(value: float | None) -> bool | None:
    return None if value is None else value > 0
