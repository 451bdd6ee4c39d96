"""The simulated server's `/metrics`: vLLM's names, labels and buckets, filled at the moments when vLLM fills them.

As in vLLM, prompt tokens are counted when the first token appears, gauges move only with a step, and a request that its
client gave up leaves no trace in the request histograms. `sim:` series tell what a test of the simulator wants to know.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from prefillwatch.units import NS

if TYPE_CHECKING:
    from prefillwatch.lab.simulator.engine import EngineConfig, SimRequest, StepRecord

LABELS: Final = ("model_name", "engine")
FINISH_REASONS: Final = ("stop", "length", "abort", "error", "repetition")
#: fmt: off
TTFT_BUCKETS: Final = (
    0.001,
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.25,
    0.5,
    0.75,
    1.0,
    2.5,
    5.0,
    7.5,
    10.0,
    20.0,
    40.0,
    80.0,
    160.0,
    640.0,
    2560.0,
)
ITL_BUCKETS: Final = (
    0.01,
    0.025,
    0.05,
    0.075,
    0.1,
    0.15,
    0.2,
    0.3,
    0.4,
    0.5,
    0.75,
    1.0,
    2.5,
    5.0,
    7.5,
    10.0,
    20.0,
    40.0,
    80.0,
)
LATENCY_BUCKETS: Final = (
    0.3,
    0.5,
    0.8,
    1.0,
    1.5,
    2.0,
    2.5,
    5.0,
    10.0,
    15.0,
    20.0,
    30.0,
    40.0,
    50.0,
    60.0,
    120.0,
    240.0,
    480.0,
    960.0,
    1920.0,
    7680.0,
)
#: fmt: on
ITERATION_BUCKETS: Final = (1, *(2**power for power in range(3, 15)))
PREEMPTION_BUCKETS: Final = (1, 2, 3, 4, 5, 10, 20)
PARAMS_N_BUCKETS: Final = (1, 2, 5, 10, 20)


def one_two_five(limit: int) -> tuple[int, ...]:
    """1, 2, 5, 10, 20, 50 … up to `limit`: how vLLM builds bounds for token counts."""
    return tuple(
        step * 10**power for power in range(len(str(limit))) for step in (1, 2, 5) if step * 10**power <= limit
    )


@dataclass(slots=True)
class RequestTimes:
    """When things happened to one sequence, in monotonic nanoseconds."""

    arrived_ns: int
    scheduled_ns: int = 0
    first_ns: int = 0
    last_ns: int = 0
    produced: int = 0
    cached: int = 0
    preemptions: int = 0


class EngineMetrics:
    """Books what the engine loop reports. `render` may run in another thread."""

    def __init__(self, model: str, config: EngineConfig) -> None:
        self.registry = CollectorRegistry()
        self._model = model
        ProcessCollector(registry=self.registry)
        self._gauges()
        self._counters()
        self._histograms(one_two_five(config.max_model_len))
        self._cache_config(config)

    def render(self) -> bytes:
        return generate_latest(self.registry)

    def step(self, record: StepRecord) -> None:
        self._running.set(record.running)
        self._waiting.set(record.waiting)
        self._waiting_capacity.set(record.waiting)
        self._kv_usage.set(record.kv_usage)
        self._iteration_tokens.observe(record.prefill_tokens + len(record.decode))
        self._steps.inc()
        if record.preempted:
            self._preemptions.inc(len(record.preempted))

    def idle(self, kv_usage: float, waiting: int) -> None:
        """Nothing left to run: the engine's last word after an abort emptied it."""
        self._running.set(0)
        self._waiting.set(waiting)
        self._waiting_capacity.set(waiting)
        self._kv_usage.set(kv_usage)

    def admitted(self, request: SimRequest, cached: int) -> None:
        self._prefix_queries.inc(request.prompt_tokens)
        self._prefix_hits.inc(cached)

    def first_token(self, request: SimRequest, times: RequestTimes) -> None:
        self._ttft.observe((times.first_ns - times.arrived_ns) / NS)
        self._prompt_tokens.inc(request.prompt_tokens)
        self._prompt_computed.inc(request.prompt_tokens - times.cached)
        self._prompt_cached_hit.inc(times.cached)
        self._prompt_cached.inc(times.cached)
        self._cached_on_device.inc(times.cached)
        self._generation_tokens.inc()

    def next_token(self, gap_ns: int) -> None:
        self._itl.observe(gap_ns / NS)
        self._generation_tokens.inc()

    def finished(self, request: SimRequest, times: RequestTimes, reason: str, n: int) -> None:
        self._success[reason].inc()
        self._request_prompt_tokens.observe(request.prompt_tokens)
        self._request_generation_tokens.observe(times.produced)
        self._max_generation_tokens.observe(times.produced)
        self._params_n.observe(n)
        self._params_max_tokens.observe(request.max_tokens)
        self._request_preemptions.observe(times.preemptions)
        self._kv_computed.observe(request.prompt_tokens - times.cached)
        self._e2e.observe((times.last_ns - times.arrived_ns) / NS)
        self._queue.observe((times.scheduled_ns - times.arrived_ns) / NS)
        self._inference.observe((times.last_ns - times.scheduled_ns) / NS)
        self._prefill.observe((times.first_ns - times.scheduled_ns) / NS)
        self._decode.observe((times.last_ns - times.first_ns) / NS)
        if times.produced > 1:
            self._tpot.observe((times.last_ns - times.first_ns) / NS / (times.produced - 1))

    def aborted(self) -> None:
        self._aborts.inc()

    def late(self, seconds: float) -> None:
        self._late.inc(seconds)

    def _gauge(self, name: str, text: str, **more: str) -> Gauge:
        gauge = Gauge(f"vllm:{name}", text, (*LABELS, *more), registry=self.registry)
        return gauge.labels(self._model, "0", *more.values())

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(f"vllm:{name}", text, LABELS, registry=self.registry).labels(self._model, "0")

    def _counters_by(self, name: str, text: str, label: str, values: tuple[str, ...]) -> dict[str, Counter]:
        counter = Counter(f"vllm:{name}", text, (*LABELS, label), registry=self.registry)
        return {value: counter.labels(self._model, "0", value) for value in values}

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        histogram = Histogram(f"vllm:{name}", text, LABELS, buckets=buckets, registry=self.registry)
        return histogram.labels(self._model, "0")

    def _gauges(self) -> None:
        self._running = self._gauge("num_requests_running", "Number of requests in model execution batches.")
        self._waiting = self._gauge("num_requests_waiting", "Number of requests waiting to be processed.")
        by_reason = Gauge(
            "vllm:num_requests_waiting_by_reason",
            "Number of waiting requests by reason.",
            (*LABELS, "reason"),
            registry=self.registry,
        )
        self._waiting_capacity = by_reason.labels(self._model, "0", "capacity")
        by_reason.labels(self._model, "0", "deferred")
        self._gauge(
            "engine_sleep_state", "Engine sleep state; awake = 1 means engine is awake.", sleep_state="awake"
        ).set(1)
        self._kv_usage = self._gauge("kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.")

    def _counters(self) -> None:
        counter = self._counter
        self._preemptions = counter("num_preemptions", "Cumulative number of preemption from the engine.")
        self._prefix_queries = counter("prefix_cache_queries", "Prefix cache queries, in number of queried tokens.")
        self._prefix_hits = counter("prefix_cache_hits", "Prefix cache hits, in number of cached tokens.")
        self._prompt_tokens = counter("prompt_tokens", "Number of prefill tokens processed.")
        sources = ("local_compute", "local_cache_hit", "external_kv_transfer")
        by_source = self._counters_by(
            "prompt_tokens_by_source", "Number of prompt tokens by source.", "source", sources
        )
        self._prompt_computed, self._prompt_cached_hit = by_source["local_compute"], by_source["local_cache_hit"]
        self._prompt_cached = counter("prompt_tokens_cached", "Number of cached prompt tokens (local + external).")
        tiers = ("device", "host", "p2p", "disk", "external_unspecified")
        by_tier = self._counters_by(
            "prompt_tokens_cached_by_source", "Prefix-cache hit tokens by tier.", "source", tiers
        )
        self._cached_on_device = by_tier["device"]
        self._generation_tokens = counter("generation_tokens", "Number of generation tokens processed.")
        self._success = self._counters_by(
            "request_success", "Count of successfully processed requests.", "finished_reason", FINISH_REASONS
        )
        self._aborts = Counter("sim:aborted_requests", "Requests whose client went away.", registry=self.registry)
        self._steps = Counter("sim:steps", "Engine steps taken.", registry=self.registry)
        self._late = Counter(
            "sim:late_seconds", "Time that this process itself kept the engine.", registry=self.registry
        )

    def _histograms(self, token_buckets: tuple[int, ...]) -> None:
        histogram = self._histogram
        self._ttft = histogram("time_to_first_token_seconds", "Time to first token in seconds.", TTFT_BUCKETS)
        self._itl = histogram("inter_token_latency_seconds", "Inter-token latency in seconds.", ITL_BUCKETS)
        self._tpot = histogram(
            "request_time_per_output_token_seconds", "Time per output token per request.", ITL_BUCKETS
        )
        self._e2e = histogram("e2e_request_latency_seconds", "End-to-end request latency.", LATENCY_BUCKETS)
        self._queue = histogram("request_queue_time_seconds", "Time spent in WAITING phase.", LATENCY_BUCKETS)
        self._inference = histogram("request_inference_time_seconds", "Time spent in RUNNING phase.", LATENCY_BUCKETS)
        self._prefill = histogram("request_prefill_time_seconds", "Time spent in PREFILL phase.", LATENCY_BUCKETS)
        self._decode = histogram("request_decode_time_seconds", "Time spent in DECODE phase.", LATENCY_BUCKETS)
        self._iteration_tokens = histogram(
            "iteration_tokens_total", "Number of tokens per engine_step.", ITERATION_BUCKETS
        )
        self._request_prompt_tokens = histogram("request_prompt_tokens", "Prefill tokens per request.", token_buckets)
        self._request_generation_tokens = histogram("request_generation_tokens", "Generated tokens.", token_buckets)
        self._max_generation_tokens = histogram(
            "request_max_num_generation_tokens", "Maximum number of requested generation tokens.", token_buckets
        )
        self._params_n = histogram("request_params_n", "The n request parameter.", PARAMS_N_BUCKETS)
        self._params_max_tokens = histogram("request_params_max_tokens", "The max_tokens parameter.", token_buckets)
        self._request_preemptions = histogram(
            "request_num_preemptions", "Number of times a request was preempted.", PREEMPTION_BUCKETS
        )
        self._kv_computed = histogram(
            "request_prefill_kv_computed_tokens", "New KV tokens computed during prefill.", token_buckets
        )

    def _cache_config(self, config: EngineConfig) -> None:
        labels = {
            "block_size": str(config.block_size),
            "cache_dtype": "auto",
            "enable_prefix_caching": str(config.enable_prefix_caching),
            "engine": "0",
            "gpu_memory_utilization": "0.92",
            "kv_cache_size_tokens": str(config.num_gpu_blocks * config.block_size),
            "num_gpu_blocks": str(config.num_gpu_blocks),
            "num_gpu_blocks_override": "None",
            "sliding_window": "None",
        }
        info = Gauge(
            "vllm:cache_config_info", "Information of the LLMEngine CacheConfig", labels, registry=self.registry
        )
        info.labels(**labels).set(1)
