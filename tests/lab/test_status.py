"""The status line, from a page of metrics."""

from __future__ import annotations

from prefillwatch.lab.status import HEADING, Status, aligned, clock, read_status, status_line

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
        " 0:14    68 ms   352 ms        –          8          1    4%  0-512 0.09 s  2k-8k 0.95 s  128k+ 61 s"
    )
    columns = HEADING.splitlines()[-1]
    assert columns.index("KV") + 2 == line.index("4%") + 2
    assert columns.index("p99 first") == line.index("0-512")


def test_a_page_without_figures_gives_dashes() -> None:
    assert status_line(read_status("")).split() == ["–", "–", "–", "0", "0", "–", "–"]


def test_clock_and_columns() -> None:
    assert [clock(5.9), clock(75), clock(3700)] == ["0:05", "1:15", "61:40"]
    assert aligned([("a", "1"), ("long", "2")]) == ["  a     1", "  long  2"]
