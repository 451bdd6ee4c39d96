from __future__ import annotations

from prefillwatch.doctor.page import Page
from prefillwatch.doctor.span import span_of


def page(started: float, generated: int, gaps: int, more: str = "") -> Page:
    return Page(
        f"process_start_time_seconds {started}\nvllm:generation_tokens_total {generated}\n"
        f'vllm:inter_token_latency_seconds_bucket{{le="0.1"}} {gaps}\n'
        f'vllm:inter_token_latency_seconds_bucket{{le="+Inf"}} {gaps}\n'
        f"vllm:inter_token_latency_seconds_count {gaps}\nvllm:num_requests_running 0\n{more}".encode()
    )


def test_increases_between_two_pages() -> None:
    span = span_of(page(100.0, 50, 40), page(100.2, 80, 65))
    assert not span.restarted
    assert span.total("generation_tokens_total") == 30
    found = span.histogram("inter_token_latency_seconds")
    assert found is not None
    assert found.count == 25


def test_one_page_tells_totals_since_the_start() -> None:
    span = span_of(None, page(100.0, 50, 40))
    assert not span.restarted
    assert span.total("generation_tokens_total") == 50


def test_another_start_time_is_a_restart_and_counts_from_it() -> None:
    span = span_of(page(100.0, 50, 40), page(900.0, 80, 65))
    assert span.restarted
    assert span.total("generation_tokens_total") == 80


def test_a_counter_that_fell_is_a_restart_too() -> None:
    span = span_of(page(100.0, 50, 40), page(100.0, 8, 6))
    assert span.restarted
    assert span.total("generation_tokens_total") == 8


def test_what_appeared_in_between_counts_from_nothing() -> None:
    span = span_of(page(100.0, 50, 40), page(100.0, 50, 40, 'vllm:request_success_total{finished_reason="stop"} 3\n'))
    assert span.total("request_success_total") == 3
    assert span.totals("request_success_total", "finished_reason") == {"stop": 3}


def test_what_is_not_there_is_not_known() -> None:
    assert span_of(None, page(100.0, 50, 40)).total("request_success_total") is None
    assert span_of(None, page(100.0, 50, 40)).histogram("request_prompt_tokens") is None
