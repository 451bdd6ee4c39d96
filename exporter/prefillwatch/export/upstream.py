"""Writes what the upstream server says about itself into the registry."""

from __future__ import annotations

from collections.abc import Mapping

from prefillwatch.engine.nvml import GpuMemory
from prefillwatch.engine.poller import EngineState, UpstreamSnapshot
from prefillwatch.export import table
from prefillwatch.export.registry import Labels, Registry
from prefillwatch.export.spec import window_name


def export_upstream(registry: Registry, upstream: UpstreamSnapshot) -> None:
    """Show this snapshot and nothing else: engines that are gone and figures that are unknown vanish."""
    _export_link(registry, upstream)
    samples = {(state.engine,): state.sample for state in upstream.engines if state.sample is not None}
    registry.gauge(table.KV_CACHE_USAGE).replace({labels: sample.kv_usage for labels, sample in samples.items()})
    registry.gauge(table.KV_CACHE_CAPACITY).replace(
        {labels: sample.capacity_tokens for labels, sample in samples.items()}
    )
    registry.gauge(table.KV_CACHE_FREE).replace({labels: sample.free_tokens for labels, sample in samples.items()})
    registry.gauge(table.UPSTREAM_REQUESTS).replace(_requests(upstream.engines))
    registry.gauge(table.KV_CACHE_USAGE_MAX).replace(_peaks(upstream.engines))
    for state in upstream.engines:
        if state.preemptions_total is not None:
            registry.counter(table.PREEMPTIONS).set_total((state.engine,), state.preemptions_total)
        registry.counter(table.UPSTREAM_RESTARTS).set_total((state.engine,), state.restarts)


def export_gpu_memory(registry: Registry, memory: Mapping[str, GpuMemory]) -> None:
    registry.gauge(table.GPU_MEMORY_USED).replace({(gpu,): found.used for gpu, found in memory.items()})
    registry.gauge(table.GPU_MEMORY_FREE).replace({(gpu,): found.free for gpu, found in memory.items()})


def _export_link(registry: Registry, upstream: UpstreamSnapshot) -> None:
    registry.gauge(table.UP).set((), upstream.up)
    registry.gauge(table.UPSTREAM_INFO).replace({(upstream.server,): 1.0} if upstream.server is not None else {})
    registry.gauge(table.UPSTREAM_SCRAPE_SUCCESS).set((), upstream.scrape_success)
    registry.gauge(table.UPSTREAM_SCRAPE_DURATION).set((), upstream.scrape_duration)
    registry.gauge(table.UPSTREAM_SCRAPE_AGE).set((), upstream.scrape_age)
    registry.gauge(table.KV_SIGNAL_PRESENT).set((), upstream.kv_signal_present)
    for reason, count in upstream.scrape_failures.items():
        registry.counter(table.UPSTREAM_SCRAPE_FAILURES).set_total((reason,), count)


def _requests(engines: tuple[EngineState, ...]) -> dict[Labels, float | None]:
    requests: dict[Labels, float | None] = {}
    for state in engines:
        if state.sample is not None:
            requests[state.engine, "running"] = state.sample.running
            requests[state.engine, "waiting"] = state.sample.waiting
    return requests


def _peaks(engines: tuple[EngineState, ...]) -> dict[Labels, float | None]:
    return {(state.engine, window_name(window)): peak for state in engines for window, peak in state.kv_peaks.items()}
