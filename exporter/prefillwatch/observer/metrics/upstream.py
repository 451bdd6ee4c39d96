"""What upstream reports of itself, and the memory of the GPUs, as metrics. What is unknown or stale vanishes."""

from __future__ import annotations

from collections.abc import Mapping

from prefillwatch.engine.gpu_memory import GpuMemory
from prefillwatch.engine.upstream import EngineState, UpstreamSnapshot
from prefillwatch.export import table
from prefillwatch.export.registry import Labels, Registry
from prefillwatch.export.spec import window_name

Values = dict[Labels, float | None]


def publish_upstream(registry: Registry, upstream: UpstreamSnapshot) -> None:
    registry.gauge(table.UP).set((), upstream.up)
    registry.gauge(table.UPSTREAM_INFO).replace({(upstream.server,): 1.0} if upstream.server is not None else {})
    registry.gauge(table.UPSTREAM_SCRAPE_SUCCESS).set((), upstream.scrape_success)
    registry.gauge(table.UPSTREAM_SCRAPE_DURATION).set((), upstream.scrape_duration)
    registry.gauge(table.UPSTREAM_SCRAPE_AGE).set((), upstream.scrape_age)
    registry.gauge(table.KV_SIGNAL_PRESENT).set((), upstream.kv_signal_present)
    for reason, count in upstream.scrape_failures.items():
        registry.counter(table.UPSTREAM_SCRAPE_FAILURES).set_total((reason,), count)
    _publish_engines(registry, upstream.engines)


def _publish_engines(registry: Registry, engines: tuple[EngineState, ...]) -> None:
    """Engines are never averaged: one full cache behind a page of idle ones is what matters."""
    samples = {(state.engine,): state.sample for state in engines if state.sample is not None}
    requests: Values = {}
    for (engine,), sample in samples.items():
        requests[(engine, "running")] = sample.running
        requests[(engine, "waiting")] = sample.waiting
    peaks: Values = {
        (state.engine, window_name(window_s)): peak for state in engines for window_s, peak in state.kv_peaks.items()
    }
    registry.gauge(table.KV_CACHE_USAGE).replace({labels: sample.kv_usage for labels, sample in samples.items()})
    registry.gauge(table.KV_CACHE_USAGE_MAX).replace(peaks)
    registry.gauge(table.KV_CACHE_CAPACITY).replace({labels: s.capacity_tokens for labels, s in samples.items()})
    registry.gauge(table.KV_CACHE_FREE).replace({labels: sample.free_tokens for labels, sample in samples.items()})
    registry.gauge(table.UPSTREAM_REQUESTS).replace(requests)
    for state in engines:
        if state.preemptions_total is not None:
            registry.counter(table.PREEMPTIONS).set_total((state.engine,), state.preemptions_total)
        registry.counter(table.UPSTREAM_RESTARTS).set_total((state.engine,), state.restarts)


def publish_gpus(registry: Registry, gpus: Mapping[str, GpuMemory]) -> None:
    registry.gauge(table.GPU_MEMORY_USED).replace({(gpu,): memory.used for gpu, memory in gpus.items()})
    registry.gauge(table.GPU_MEMORY_FREE).replace({(gpu,): memory.free for gpu, memory in gpus.items()})
