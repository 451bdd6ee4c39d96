"""The status line, from a page of metrics."""

from __future__ import annotations

from prefillwatch.lab.status import HEADING, Status, clock, incident_line, newly_over, read_status, status_line
from prefillwatch.report import aligned

PAGE = """\
# TYPE prefillwatch_inter_token_latency_p99_seconds gauge
prefillwatch_inter_token_latency_p99_seconds{model="a",population="all",window="10s"} 0.068
prefillwatch_inter_token_latency_p99_seconds{model="b",population="all",window="10s"} 0.021
prefillwatch_inter_token_latency_p99_seconds{model="a",population="all",window="5m"} 9.0
prefillwatch_inter_token_latency_p99_seconds{model="a",population="prefill",window="10s"} 0.3523
prefillwatch_inter_token_latency_p99_seconds{model="a",population="clear",window="10s"} NaN
# TYPE prefillwatch_time_to_first_token_p99_seconds gauge
prefillwatch_time_to_first_token_p99_seconds{model="a",prompt_bucket="2k-8k",window="10s"} 0.951
prefillwatch_time_to_first_token_p99_seconds{model="a",prompt_bucket="0-512",window="10s"} 0.09
prefillwatch_time_to_first_token_p99_seconds{model="a",prompt_bucket="128k+",window="10s"} 61.2
# TYPE prefillwatch_decoding_streams gauge
prefillwatch_decoding_streams{model="a"} 6.0
prefillwatch_decoding_streams{model="b"} 2.0
# TYPE prefillwatch_prefilling_requests gauge
prefillwatch_prefilling_requests{model="a"} 1.0
# TYPE prefillwatch_kv_cache_usage_ratio gauge
prefillwatch_kv_cache_usage_ratio{engine="0"} 0.043
"""


def test_reads_the_last_ten_seconds_the_worst_model_for_times_and_the_sum_for_counts() -> None:
    assert read_status(PAGE) == Status(
        gap_p99={"all": 0.068, "prefill": 0.3523},
        first_token_p99={"2k-8k": 0.951, "0-512": 0.09, "128k+": 61.2},
        decoding=8,
        prefilling=1,
        kv_usage=0.043,
    )


def test_the_line_stands_under_its_heading_and_orders_buckets_by_size() -> None:
    line = f" 0:14 {status_line(read_status(PAGE))}"
    assert line == (
        " 0:14    68 ms   352 ms        –          8          1   4.3 %  0-512 90 ms  2k-8k 951 ms  128k+ 61.2 s"
    )
    columns = HEADING.splitlines()[-1]
    assert columns.index("KV") + 2 == line.index("4.3 %") + 5
    assert columns.index("p99 first") == line.index("0-512")


def test_a_page_without_figures_gives_dashes() -> None:
    assert status_line(read_status("")).split() == ["–", "–", "–", "0", "0", "–", "–"]


def test_clock_and_columns() -> None:
    assert [clock(5.9), clock(75), clock(3700)] == ["0:05", "1:15", "61:40"]
    assert aligned([("a", "1"), ("long", "2")]) == ["  a     1", "  long  2"]


def incident(**more: object) -> dict[str, object]:
    return {
        "kind": "freeze",
        "cause": "prefill",
        "victims": 6,
        "decoding": 8,
        "worst_gap_seconds": 0.987,
        "culprit_count": 1,
        "culprit_tokens": 6900,
        **more,
    }


def test_an_incident_in_a_line() -> None:
    assert incident_line(incident()) == (
        "6 of 8 streams froze for up to 987 ms; cause: prefill of a prompt with 6,900 tokens"
    )
    assert incident_line(incident(culprit_count=3, culprit_tokens=20_000)).endswith(
        "cause: prefill of 3 prompts with 20,000 tokens"
    )
    assert incident_line(incident(cause="engine_pause", culprit_count=0, victims=1, decoding=1)) == (
        "1 of 1 stream froze for up to 987 ms; cause: engine pause"
    )
    assert incident_line(incident(kind="wait", cause="queueing", victims=2, culprit_count=0)) == (
        "2 requests waited up to 987 ms for a first token; cause: queueing"
    )
    assert incident_line(incident(victims=9)).startswith("9 of 9 streams froze")


def test_an_incident_is_told_once_and_only_when_it_is_over() -> None:
    told: set[str] = set()
    first = incident(id="1", started_at=10.0, ongoing=False)
    second = incident(id="2", started_at=20.0, ongoing=True)
    assert newly_over([second, first], told) == [first]
    ended = {**second, "ongoing": False}
    third = incident(id="3", started_at=30.0, ongoing=False)
    assert newly_over([third, ended, first], told) == [ended, third]
    assert newly_over([third, ended, first], told) == []
