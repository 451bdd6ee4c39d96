"""The row about ourselves: whether what the other rows show can be believed."""

from __future__ import annotations

from grafana.generator import limits
from grafana.generator.board import Section, even
from grafana.generator.looks import MEANS, WIDE
from grafana.generator.metric import in_range, metric, quantile, rate
from grafana.generator.palette import ALL, BAD, CLEAR
from grafana.generator.panels import Answer, Face, Query, Style, answer, lines, now, over_time

NO_REPORT = "prefillwatch does not report"


def trust() -> Section:
    alive = even(
        4,
        _is_so(
            "Upstream answers",
            "The health check of every upstream. Any that does not answer makes this 0.",
            now(f"min ({metric('up')})", "up"),
        ),
        _is_so(
            "Relays serve",
            "Whether every relay process lives and accepts connections. 0: one starts, hangs or has no free "
            "descriptors; clients wait or go to the others.",
            now(f"min ({metric('relay_serving')})", "serving"),
        ),
        answer(
            "Relays ended",
            "Relay processes that ended and were started again in the time shown, and the requests that were in "
            "flight in them.",
            now(f"sum ({in_range('relay_restarts_total')})", "ended"),
            now(f"sum ({in_range('relay_lost_streams_total')})", "lost"),
            unit="none",
            steps=limits.ANY_IS_BAD,
            empty="None",
            face=Face(zero="None", decimals=0, named=True),
        ),
        _is_so(
            "KV signal",
            "Whether upstream's metrics report the use of the KV cache. 0: renamed or unreadable, and KV panels "
            "are blind.",
            now(f"min ({metric('kv_signal_present')})", "signal"),
            no="Lost",
            yes="There",
        ),
    )
    measured = even(
        4,
        answer(
            "Age of upstream's metrics",
            "Time since upstream's metrics could last be read. Old ones are no evidence for or against anything.",
            now(f"max ({metric('upstream_scrape_age_seconds')})", "age"),
            unit="s",
            steps=limits.SCRAPE_AGE,
            empty="Never read",
        ),
        _share_lost(
            "Observations dropped",
            "Share of the packets between relay and observer that were dropped because the observer did not "
            "keep up. Tokens are not lost, but not timed.",
            now(
                f"sum ({in_range('tap_dropped_total')}) / (sum ({in_range('tap_packets_total')}) > 0)",
                "dropped",
            ),
            "No traffic",
        ),
        _share_lost(
            "Gaps that are our own fault",
            "Share of gaps during which the relay itself was held up. "
            f"Above {limits.OWN_LOSS_SHARE * 100:g} %: give it a core before you blame the engine.",
            now(
                f"(sum ({in_range('lagged_gaps_total')}) or vector (0)) "
                f"/ (sum ({in_range('inter_token_latency_seconds_count')}) > 0)",
                "lagged",
            ),
            "No gaps",
        ),
        answer(
            "Events not understood",
            "Events or bodies passed on without being counted, in the time shown.",
            now(f"sum ({in_range('unparsed_events_total')})", "events"),
            unit="none",
            steps=limits.ANY_IS_BAD,
            empty="None",
            face=Face(zero="None", decimals=0),
        ),
    )
    delays = lines(
        "Our own delay, p99",
        "How late the relay's loop woke up: delay that we add. And the age of observations when they were taken "
        "up: delay of the figures only.",
        Query(quantile(0.99, "relay_loop_lag_seconds"), "relay loop lag"),
        Query(quantile(0.99, "observer_delay_seconds"), "observer delay"),
        unit="s",
        empty=NO_REPORT,
        look=WIDE,
        series={"relay loop lag": Style(BAD), "observer delay": Style(ALL)},
    )
    cores = lines(
        "CPU of our processes",
        "Cores used, and cores wanted but not given (dashed): a starved machine measures badly.",
        over_time(f"sum by (process) ({rate('process_cpu_seconds_total')})", "{{process}}"),
        over_time(f"sum ({rate('process_core_wait_seconds_total')})", "waiting for a core"),
        unit="none",
        empty=NO_REPORT,
        look=MEANS,
        series={"waiting for a core": Style(BAD, dashed=True)},
    )
    scrape = lines(
        "Reading upstream's metrics",
        "Time that a scrape and a health check took, and age of the last good scrape. Failures by reason are counted "
        "beside it.",
        over_time(f"max ({metric('upstream_scrape_duration_seconds')})", "duration"),
        over_time(f"max ({metric('upstream_health_check_duration_seconds')})", "health check"),
        over_time(f"max ({metric('upstream_scrape_age_seconds')})", "age"),
        unit="s",
        empty="Never read",
        series={"duration": Style(CLEAR), "health check": Style(CLEAR, dashed=True), "age": Style(ALL)},
    )
    return Section("Can these figures be trusted?", (alive, measured, even(7, delays, cores, scrape)))


def _is_so(title: str, text: str, query: Query, no: str = "No", yes: str = "Yes") -> Answer:
    """Something that is 1 or 0, and should be 1."""
    face = Face(zero=no, one=yes)
    return answer(title, text, query, unit="none", steps=limits.MUST_BE_ONE, empty=NO_REPORT, face=face)


def _share_lost(title: str, text: str, query: Query, empty: str) -> Answer:
    """A share of what is measured that is lost or spoilt."""
    face = Face(zero="None", decimals=2)
    return answer(title, text, query, unit="percentunit", steps=limits.OWN_LOSS, empty=empty, face=face)
