"""Rows about the engine's room and its traffic."""

from __future__ import annotations

from dataclasses import replace

from grafana.generator.board import Section, even
from grafana.generator.looks import AREAS, LEAST, MEANS, OF_THE_CACHE, QUANTILES
from grafana.generator.metric import in_range, increase, metric, quantile, rate
from grafana.generator.palette import ALL, BAD, CAUSES, CLEAR, GOOD, PREFILL, QUEUE
from grafana.generator.panels import Column, Style, density, lines, listing, over_time
from grafana.generator.series import (
    NO_REQUESTS,
    WINDOW,
)

from prefillwatch.wire.routes import WRITING

#: Endpoints that have targets; scrapes of the engine's metrics and the like are requests too.
FOR_TEXT = "|".join(sorted(WRITING))


def kv_cache() -> Section:
    usage = lines(
        "KV cache in use",
        "Share of the cache that holds tokens: newest sample and highest of the window. Near 100 % requests "
        "wait or are preempted.",
        over_time(f"max ({metric('kv_cache_usage_ratio')})", "now"),
        over_time(f"max ({metric('kv_cache_usage_max_ratio', window=WINDOW)})", "peak of the window"),
        unit="percentunit",
        empty="Upstream does not report it",
        look=OF_THE_CACHE,
        series={"now": Style(CLEAR), "peak of the window": Style(QUEUE, dashed=True)},
    )
    free = lines(
        "KV cache room",
        "Tokens that still fit, in the fullest engine, and what one engine can hold. A prompt longer than the "
        "room has to wait.",
        over_time(f"min ({metric('kv_cache_free_tokens')})", "free"),
        over_time(f"min ({metric('kv_cache_capacity_tokens')})", "capacity"),
        unit="short",
        empty="Upstream does not report it",
        look=LEAST,
        series={"free": Style(GOOD), "capacity": Style(ALL, dashed=True)},
    )
    preemptions = lines(
        "Preemptions per minute",
        "Requests thrown out of the batch for lack of KV cache and computed again later: their readers see a "
        "freeze that is no prefill's.",
        over_time(f"60 * sum ({rate('preemptions_total')})", "preemptions"),
        unit="none",
        empty="Upstream does not report it",
        look=replace(MEANS, bars=True),
        series={"preemptions": Style(CAUSES["preemption"])},
    )
    requests = lines(
        "Requests inside the engine",
        "By the engine's own account. Waiting ones have no place in the batch yet.",
        over_time(f"sum by (state) ({metric('upstream_requests')})", "{{state}}"),
        unit="none",
        empty="Upstream does not report it",
        series={"running": Style(CLEAR), "waiting": Style(QUEUE)},
    )
    memory = lines(
        "GPU memory",
        "VRAM in use and free, by NVML, where prefillwatch runs beside a GPU. vLLM takes its KV cache at the "
        "start, so this hardly moves.",
        over_time(f"sum by (gpu) ({metric('gpu_memory_used_bytes')})", "used, GPU {{gpu}}"),
        over_time(f"sum by (gpu) ({metric('gpu_memory_free_bytes')})", "free, GPU {{gpu}}"),
        unit="bytes",
        empty="No GPU visible to prefillwatch",
    )
    return Section("KV cache and memory", (even(8, usage, free, preemptions), even(7, requests, memory)))


def traffic() -> Section:
    heat = density(
        "Prompt lengths",
        "Requests by tokens of their prompt. A few dots far above the band are enough to freeze everybody.",
        f"sum by (le) ({increase('prompt_length_tokens_bucket')})",
        "short",
        NO_REQUESTS,
    )
    lengths = lines(
        "Prompt length: median, p99 and longest",
        "In tokens. The average hides the document that one user pasted.",
        over_time(quantile(0.5, "prompt_length_tokens"), "median"),
        over_time(quantile(0.99, "prompt_length_tokens"), "p99"),
        over_time(f"max ({metric('prompt_length_max_tokens', window=WINDOW)})", "longest of the window"),
        unit="short",
        empty=NO_REQUESTS,
        look=QUANTILES,
        series={"median": Style(CLEAR), "p99": Style(PREFILL), "longest of the window": Style(BAD)},
    )
    tokens = lines(
        "Tokens per second",
        "Generated, read as prompts, and taken from the prefix cache instead of being read.",
        over_time(f"sum ({rate('generated_tokens_total')})", "generated"),
        over_time(f"sum ({rate('prompt_tokens_total')}) - sum ({rate('cached_prompt_tokens_total')})", "prompt"),
        over_time(f"sum ({rate('cached_prompt_tokens_total')})", "prompt, cached"),
        unit="short",
        empty="No tokens",
        look=MEANS,
        series={"generated": Style(CLEAR), "prompt": Style(PREFILL), "prompt, cached": Style(PREFILL, dashed=True)},
    )
    seconds = f"sum by (concurrency) ({in_range('concurrency_seconds_total')}) > 1"
    columns = [
        (Column("time", "s", decimals=0), seconds),
        (
            Column("tokens/s", "none", decimals=0),
            f"sum by (concurrency) ({in_range('concurrency_tokens_total')}) / ({seconds})",
        ),
        (
            Column("requests/s", "none", decimals=2),
            f"sum by (concurrency) ({in_range('concurrency_requests_total')}) / ({seconds})",
        ),
    ]
    concurrency = listing(
        "Throughput by concurrency",
        "Tokens and requests per second while so many streams were decoding. Where tokens/s stops rising, more "
        "streams only slow each other.",
        columns,
        "Nothing streamed",
        {"concurrency": Column("streams")},
        sort_by="streams",
        descending=False,
    )
    promises = lines(
        "Promises kept",
        "Requests for text within both targets (TTFT and time per token), and token deadlines met, where early tokens "
        "build slack.",
        over_time(
            f"(sum ({rate('requests_within_slo_total')}) or vector (0)) "
            f"/ (sum ({rate('requests_total', endpoint=f'=~{FOR_TEXT}')}) > 0)",
            "requests within SLO",
        ),
        over_time(
            f"1 - sum ({rate('token_deadline_misses_total')}) / (sum ({rate('token_deadlines_total')}) > 0)",
            "token deadlines met",
        ),
        unit="percentunit",
        empty=NO_REQUESTS,
        look=replace(LEAST, high=1),
        series={"requests within SLO": Style(GOOD), "token deadlines met": Style(CLEAR)},
    )
    outcomes = lines(
        "Requests per second by outcome",
        "As the client saw it. client_closed: the reader left, often because nothing came.",
        over_time(f"sum by (outcome) ({rate('requests_total')})", "{{outcome}}"),
        unit="reqps",
        empty=NO_REQUESTS,
        look=AREAS,
        series={"ok": Style(GOOD), "error": Style(BAD), "client_closed": Style(ALL)},
    )
    return Section(
        "Prompts, throughput and promises", (even(8, heat, lengths, tokens), even(8, concurrency, promises, outcomes))
    )
