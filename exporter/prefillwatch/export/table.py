"""Every metric this project exports, in one table. To find where a name comes from, search here.

Times are taken on the monotonic clock of the relay process at the read that completed the event, in seconds. Nothing
has request ids, users, keys or text in its labels; ``model`` is a name that upstream serves, or ``other``.
"""

from __future__ import annotations

from prefillwatch.analysis.requests import OUTCOMES, PromptBuckets
from prefillwatch.analysis.tokens import LEVEL_LABELS
from prefillwatch.contract.buckets import (
    FIRST_TOKEN_BOUNDS,
    FORECAST_BOUNDS,
    GAP_BOUNDS,
    LAG_BOUNDS,
    PART_BOUNDS,
    PER_TOKEN_BOUNDS,
    POPULATIONS,
    PRIORITY_CLASSES,
    PROMPT_EDGES,
    PROMPT_TOKEN_BOUNDS,
    STEP_BOUNDS,
    STEP_BUCKETS,
    TOKENS_PER_EVENT_BOUNDS,
    WINDOWS_S,
)
from prefillwatch.contract.causes import BY_NAME, FREEZE_CAUSES, WAIT_CAUSES
from prefillwatch.engine.errors import FetchReason
from prefillwatch.export.spec import Kind, Label, Spec, window_name
from prefillwatch.wire.routes import ENDPOINTS, LOOKS

_PROMPT_BUCKETS = PromptBuckets(PROMPT_EDGES)

MODEL = Label("model")
PROMPT = Label("prompt_bucket", _PROMPT_BUCKETS.labels)
CONCURRENT_PROMPT = Label("concurrent_prompt", _PROMPT_BUCKETS.labels_with_none)
WINDOW = Label("window", tuple(map(window_name, WINDOWS_S)))
POPULATION = Label("population", POPULATIONS)
STEP = Label("step_prefill_tokens", STEP_BUCKETS)
CONCURRENCY = Label("concurrency", LEVEL_LABELS)
STALL_CAUSE = Label("cause", FREEZE_CAUSES)
WAIT_CAUSE = Label("cause", WAIT_CAUSES)
ENDPOINT = Label("endpoint", tuple(sorted(ENDPOINTS - LOOKS)))
OUTCOME = Label("outcome", OUTCOMES)
ENGINE = Label("engine")
RELAY = Label("relay")
PROCESS = Label("process")
GPU = Label("gpu")
SIGNAL = Label("signal", ("metrics", "traces"))
TENANT = Label("tenant")
PRIORITY = Label("priority", PRIORITY_CLASSES)
#: Whose streams stall seconds were caused to, and whose prompts they were suffered from.
VICTIM = Label("victim", ("others", "itself"))
CULPRIT = Label("culprit", ("others", "itself", "nobody"))


def _in_words(causes: tuple[str, ...]) -> str:
    """The causes with what they mean, for the help of the metrics that count by them."""
    return ", ".join(f"{name} ({BY_NAME[name].words})" for name in causes)


def _counter(name: str, labels: tuple[Label, ...], text: str) -> Spec:
    return Spec(name, Kind.COUNTER, labels, text)


def _gauge(name: str, labels: tuple[Label, ...], text: str) -> Spec:
    return Spec(name, Kind.GAUGE, labels, text)


def _histogram(name: str, labels: tuple[Label, ...], bounds: tuple[float, ...], text: str) -> Spec:
    return Spec(name, Kind.HISTOGRAM, labels, text, bounds)


# --- Gaps between tokens ---

INTER_TOKEN_LATENCY = _histogram(
    "inter_token_latency_seconds",
    (MODEL, CONCURRENT_PROMPT),
    GAP_BOUNDS,
    "Wall time between two consecutive reads from upstream that each completed a token event of the same stream, in "
    "seconds, by the size in tokens of the largest other prompt in service meanwhile (none: no prompt was). One "
    "sample per gap, whatever the number of tokens it brought.",
)
INTER_TOKEN_LATENCY_P50 = _gauge(
    "inter_token_latency_p50_seconds",
    (MODEL, WINDOW, POPULATION),
    "Median of the gaps that ended in the sliding window, in seconds; population says which gaps: all, those that "
    "overlapped a prefill, or those clear of any. Absent when there were none.",
)
INTER_TOKEN_LATENCY_P99 = _gauge(
    "inter_token_latency_p99_seconds",
    (MODEL, WINDOW, POPULATION),
    "99th percentile of the gaps that ended in the sliding window, in seconds, by population of gaps. Absent when "
    "there were none. Do not average over instances; use the histogram for that.",
)
INTER_TOKEN_LATENCY_MAX = _gauge(
    "inter_token_latency_max_seconds",
    (MODEL, WINDOW, POPULATION),
    "Longest gap that ended in the sliding window, in seconds, by population of gaps. Absent when there were none.",
)
TIME_PER_OUTPUT_TOKEN = _histogram(
    "time_per_output_token_seconds",
    (MODEL,),
    PER_TOKEN_BOUNDS,
    "Per finished request: time from its first to its last token event, over its tokens less one, in seconds.",
)
TOKENS_PER_EVENT = _histogram(
    "tokens_per_event",
    (MODEL,),
    TOKENS_PER_EVENT_BOUNDS,
    "Tokens that one token event brought, where usage in the stream says so (speculative decoding, stream interval).",
)
COALESCED_TOKENS = _counter(
    "coalesced_tokens_total",
    (MODEL,),
    "Token events that arrived in the same read as another of their stream; they add no gap of their own.",
)
LAGGED_GAPS = _counter(
    "lagged_gaps_total",
    (MODEL,),
    "Gaps that ended when the relay itself had been held up for 20 ms or more, so that they are in part our own fault.",
)
DECODING_STREAMS = _gauge("decoding_streams", (MODEL,), "Streams between their first and their last token now.")
FROZEN_STREAMS = _gauge(
    "frozen_streams",
    (MODEL,),
    "Decoding streams whose open gap already counts as a stall, now; without those that their client holds up.",
)
OPEN_GAP = _gauge(
    "open_gap_seconds",
    (MODEL,),
    "Longest silence of a decoding stream right now, in seconds since the read of its last token event; without "
    "streams that their client holds up by reading nothing. Absent when nothing else decodes.",
)

# --- First tokens and prefill ---

TIME_TO_FIRST_TOKEN = _histogram(
    "time_to_first_token_seconds",
    (MODEL, PROMPT),
    FIRST_TOKEN_BOUNDS,
    "Time from the last byte of the request received to its first token event, in seconds, by prompt tokens. Once per "
    "request; none for a request without a token.",
)
TIME_TO_FIRST_TOKEN_P99 = _gauge(
    "time_to_first_token_p99_seconds",
    (MODEL, WINDOW, PROMPT),
    "99th percentile of the times to first token that ended in the sliding window, in seconds, by prompt tokens. "
    "Absent when there were none.",
)
QUEUE = _histogram(
    "queue_seconds",
    (MODEL, PROMPT),
    PART_BOUNDS,
    "Part of the time to first token that the request waited before its prompt was worked on, in seconds: time to "
    "first token less prefill time, as inferred from the engine's steps seen on the wire.",
)
PREFILL = _histogram(
    "prefill_seconds",
    (MODEL, PROMPT),
    PART_BOUNDS,
    "Part of the time to first token in which the prompt was worked on, in seconds, as inferred from the engine's "
    "steps seen on the wire, or as the engine reports it where it does.",
)
STEP_TIME = _histogram(
    "step_seconds",
    (MODEL, STEP),
    STEP_BOUNDS,
    "Time of an engine step as seen from the wire by the reads of all decoding streams together, in seconds, by the "
    "prefill tokens inferred to have been in the step.",
)
PREFILLING_REQUESTS = _gauge(
    "prefilling_requests", (MODEL,), "Requests sent upstream that have no token yet and whose client still waits, now."
)
PREFILLING_TOKENS = _gauge(
    "prefilling_tokens", (MODEL,), "Prompt tokens, by usage or estimate, of the requests that have no token yet, now."
)
OLDEST_FIRST_TOKEN_WAIT = _gauge(
    "oldest_first_token_wait_seconds",
    (MODEL,),
    "Age of the oldest request that has no token yet, in seconds since its last byte was received. Absent when none "
    "waits.",
)
PREFILL_COST = _gauge(
    "prefill_cost_seconds_per_token",
    (MODEL,),
    "Seconds that one uncached prompt token adds to the steps of this server, learned from its own traffic. Absent "
    "until learned.",
)
PREFILL_COST_FIT = _gauge(
    "prefill_cost_fit_ratio", (MODEL,), "Share of the variance of step times that the cost model explains (R squared)."
)
BASELINE_STEP = _gauge(
    "baseline_step_seconds", (MODEL,), "Step time without prefill work by the cost model, in seconds."
)
ADVISED_MAX_BATCHED_TOKENS = _gauge(
    "advised_max_batched_tokens",
    (MODEL,),
    "Largest step budget (max_num_batched_tokens) that keeps the gap under its target by the cost model. Absent until "
    "learned.",
)

ADVISED_MAX_QUEUED_TOKENS = _gauge(
    "advised_max_queued_tokens",
    (MODEL,),
    "Prompt tokens that may wait (max_num_queued_tokens of vLLM) so that a request let in last still gets its first "
    "token in the promised time, by the cost model and the prompts of the last half minute. Absent until learned.",
)
FORECAST = _histogram(
    "forecast_first_token_ratio",
    (),
    FORECAST_BOUNDS,
    "Time to first token, from when the request went upstream, over what was forecast for it then (as /api/predict "
    "does), for all models together; 1 is right, above 1 it took longer.",
)

# --- Sizes and throughput ---

PROMPT_LENGTH = _histogram(
    "prompt_length_tokens",
    (MODEL,),
    PROMPT_TOKEN_BOUNDS,
    "Prompt tokens per request by usage, or by an estimate from the text where usage is not reported.",
)
PROMPT_LENGTH_MAX = _gauge(
    "prompt_length_max_tokens",
    (MODEL, WINDOW),
    "Longest prompt that arrived in the sliding window, in tokens. Absent when there was none.",
)
PROMPT_TOKENS = _counter("prompt_tokens_total", (MODEL,), "Prompt tokens of all requests, by usage or estimate.")
CACHED_PROMPT_TOKENS = _counter(
    "cached_prompt_tokens_total", (MODEL,), "Prompt tokens that upstream reported as taken from its prefix cache."
)
GENERATED_TOKENS = _counter(
    "generated_tokens_total", (MODEL,), "Tokens generated, by usage or else by token events; with cancelled requests."
)
CONCURRENCY_SECONDS = _counter(
    "concurrency_seconds_total", (MODEL, CONCURRENCY), "Seconds spent with this many decoding streams."
)
CONCURRENCY_TOKENS = _counter(
    "concurrency_tokens_total", (MODEL, CONCURRENCY), "Tokens that arrived while this many streams were decoding."
)
CONCURRENCY_REQUESTS = _counter(
    "concurrency_requests_total", (MODEL, CONCURRENCY), "Requests that ended while this many streams were decoding."
)

# --- Requests and promises ---

REQUESTS = _counter(
    "requests_total",
    (MODEL, ENDPOINT, OUTCOME),
    "Requests by how they ended, as the client saw it: rejected is a status of 400 to 499 or 501, error one above, "
    "error_in_stream an error object inside a 200, empty an answer without a token. Looks at upstream's metrics or "
    "health are no requests.",
)
UPSTREAM_UNREACHABLE = _counter(
    "upstream_unreachable_total",
    (Label("reason"),),
    "Requests we answered with 502 because upstream could not be reached or closed before answering, by reason.",
)
UPSTREAM_TRUNCATED = _counter(
    "upstream_truncated_total",
    (Label("reason"),),
    "Answers that upstream did not bring to their end: its connection was closed or reset, the bytes were no HTTP "
    "(malformed), or it was silent for longer than is allowed (idle_limit).",
)
REFUSED_REQUESTS = _counter(
    "refused_requests_total",
    (Label("reason"),),
    "Requests that prefillwatch itself refused, left or cut, by reason; neither upstream nor an ordinary end of the "
    "client's connection is one.",
)
TOKEN_DEADLINES = _counter(
    "token_deadlines_total",
    (MODEL,),
    "Tokens that had a deadline: one target gap after the deadline before, early tokens building slack.",
)
TOKEN_DEADLINE_MISSES = _counter("token_deadline_misses_total", (MODEL,), "Token deadlines that passed unmet.")
REQUESTS_WITHIN_SLO = _counter(
    "requests_within_slo_total",
    (MODEL,),
    "Requests that met their targets for time to first token and time per output token, from the configuration or "
    "their own x-slo headers. An answer that is not streamed did if it was there when its last token was due.",
)

CAPACITY_PRESSURE = _gauge(
    "capacity_pressure_ratio",
    (MODEL,),
    "Load over the load at which the promises on first tokens and time per token are just kept (1), by how large the "
    "batch is, what reading prompts takes, and what waits; in proportion to the load, so that replicas times this is "
    "how many there should be. Absent until the first requests were served.",
)
INTERFERENCE_PRESSURE = _gauge(
    "interference_pressure_ratio",
    (MODEL,),
    "How far over the promises prompts in steps are, 1 being just kept: the worst thousandth of gaps between tokens, "
    "or waits behind one longer prompt. More replicas do not lower it. Absent until the first requests were served.",
)

# --- Stalls and what caused them ---

STALLS = _counter(
    "stalls_total",
    (MODEL, STALL_CAUSE),
    f"Gaps that count as a stall, by cause: {_in_words(FREEZE_CAUSES)}.",
)
STALL_SECONDS = _counter(
    "stall_seconds_total",
    (MODEL, STALL_CAUSE),
    "Seconds that stalls lasted beyond the stream's baseline, summed over streams, by cause.",
)
PREFILL_BLAME = _counter(
    "prefill_blame_seconds_total",
    (MODEL, PROMPT),
    "Stall seconds inflicted on other streams, by the prompt tokens of the request that inflicted them.",
)
FREEZES = _counter("freezes_total", (MODEL, STALL_CAUSE), "Incidents in which streams stalled together, by cause.")
FREEZE_SECONDS = _counter(
    "freeze_seconds_total", (MODEL, STALL_CAUSE), "Wall time of incidents in which streams stalled together, by cause."
)
WAITS = _counter(
    "waits_total",
    (MODEL, WAIT_CAUSE),
    f"Incidents in which first tokens took longer than the size of their prompts explains, by cause: "
    f"{_in_words(WAIT_CAUSES)}.",
)
INTERFERENCE = _gauge(
    "interference_ratio",
    (MODEL, WINDOW),
    "99th percentile of the gaps that overlapped a prefill over that of the clear gaps, in the sliding window. Absent "
    "when either is.",
)
PROMPT_ITL_CORRELATION = _gauge(
    "prompt_itl_correlation_ratio",
    (MODEL, WINDOW),
    "Rank correlation, -1 to 1, of the worst gap and the prompt tokens in service per time bin of the sliding window.",
)

# --- Who does it to whom, where the settings ask for it ---

_TENANTS = "With tenant_header or tenant_from; at most max_tenants, the rest is other."
_PRIORITIES = "With priorities."

TENANT_REQUESTS = _counter(
    "tenant_requests_total",
    (TENANT,),
    "Requests for text that are over, by tenant, without refused ones. " + _TENANTS,
)
TENANT_REQUESTS_WITHIN_SLO = _counter(
    "tenant_requests_within_slo_total",
    (TENANT,),
    "Requests that met their targets for time to first token and time per output token, by tenant. " + _TENANTS,
)
TENANT_PROMPT_TOKENS = _counter(
    "tenant_prompt_tokens_total", (TENANT,), "Prompt tokens of requests that are over, by tenant. " + _TENANTS
)
TENANT_GENERATED_TOKENS = _counter(
    "tenant_generated_tokens_total",
    (TENANT,),
    "Tokens generated for requests that are over, by tenant. " + _TENANTS,
)
TENANT_STALL_CAUSED = _counter(
    "tenant_stall_caused_seconds_total",
    (TENANT, VICTIM),
    "Stall seconds that prompts of this tenant caused to streams of others, or of itself. " + _TENANTS,
)
TENANT_STALL_SUFFERED = _counter(
    "tenant_stall_suffered_seconds_total",
    (TENANT, CULPRIT),
    "Stall seconds of streams of this tenant, by whose prompts caused them: those of others, its own, or nobody's "
    "(another cause, or none that is known). " + _TENANTS,
)
TENANT_INTER_TOKEN_LATENCY_P99 = _gauge(
    "tenant_inter_token_latency_p99_seconds",
    (TENANT, WINDOW),
    "99th percentile of the gaps that ended in the sliding window, in seconds, by tenant. Absent when there were "
    "none. " + _TENANTS,
)
TENANT_TIME_TO_FIRST_TOKEN_P99 = _gauge(
    "tenant_time_to_first_token_p99_seconds",
    (TENANT, WINDOW),
    "99th percentile of TTFT in the sliding window, in seconds, by tenant. Absent when there were none. " + _TENANTS,
)
PRIORITY_REQUESTS = _counter(
    "priority_requests_total",
    (PRIORITY,),
    "Requests for text that are over, by priority, without refused ones. " + _PRIORITIES,
)
PRIORITY_REQUESTS_WITHIN_SLO = _counter(
    "priority_requests_within_slo_total",
    (PRIORITY,),
    "Requests that met their targets for time to first token and time per output token, by priority. " + _PRIORITIES,
)
PRIORITY_PROMPT_TOKENS = _counter(
    "priority_prompt_tokens_total", (PRIORITY,), "Prompt tokens of requests that are over, by priority. " + _PRIORITIES
)
PRIORITY_GENERATED_TOKENS = _counter(
    "priority_generated_tokens_total",
    (PRIORITY,),
    "Tokens generated for requests that are over, by priority. " + _PRIORITIES,
)
PRIORITY_STALL_CAUSED = _counter(
    "priority_stall_caused_seconds_total",
    (PRIORITY, VICTIM),
    "Stall seconds that prompts of this class caused to streams of others, or of itself. " + _PRIORITIES,
)
PRIORITY_STALL_SUFFERED = _counter(
    "priority_stall_suffered_seconds_total",
    (PRIORITY, CULPRIT),
    "Stall seconds of streams of this class, by whose prompts caused them: those of others, its own, or nobody's "
    "(another cause, or none that is known). " + _PRIORITIES,
)
PRIORITY_INTER_TOKEN_LATENCY_P99 = _gauge(
    "priority_inter_token_latency_p99_seconds",
    (PRIORITY, WINDOW),
    "99th percentile of the gaps that ended in the sliding window, in seconds, by priority. Absent when there were "
    "none. " + _PRIORITIES,
)
PRIORITY_TIME_TO_FIRST_TOKEN_P99 = _gauge(
    "priority_time_to_first_token_p99_seconds",
    (PRIORITY, WINDOW),
    "99th percentile of TTFT in the sliding window, in seconds, by priority. Absent when there were none. "
    + _PRIORITIES,
)

# --- The engine, as it reports itself ---

KV_CACHE_USAGE = _gauge(
    "kv_cache_usage_ratio",
    (ENGINE,),
    "Share of the KV cache in use, 0 to 1, by the newest scrape of upstream. Absent when unknown or stale.",
)
KV_CACHE_USAGE_MAX = _gauge(
    "kv_cache_usage_max_ratio",
    (ENGINE, WINDOW),
    "Highest share of the KV cache in use that any scrape in the sliding window saw, 0 to 1. Absent when unknown.",
)
KV_CACHE_CAPACITY = _gauge("kv_cache_capacity_tokens", (ENGINE,), "Tokens that the KV cache of the engine can hold.")
KV_CACHE_FREE = _gauge(
    "kv_cache_free_tokens", (ENGINE,), "Tokens that the KV cache could still take, by the newest scrape of upstream."
)
PREEMPTIONS = _counter(
    "preemptions_total",
    (ENGINE,),
    "Requests that the engine preempted since we first saw it, carried over restarts of upstream.",
)
UPSTREAM_REQUESTS = _gauge(
    "upstream_requests",
    (ENGINE, Label("state", ("running", "waiting"))),
    "Requests inside the engine by its own account, by the newest scrape of upstream.",
)
UPSTREAM_RESTARTS = _counter(
    "upstream_restarts_total",
    (ENGINE,),
    "Restarts of the engine seen by its process start time or by a counter that fell.",
)
GPU_MEMORY_USED = _gauge("gpu_memory_used_bytes", (GPU,), "Memory in use on a GPU visible here, in bytes (NVML).")
GPU_MEMORY_FREE = _gauge("gpu_memory_free_bytes", (GPU,), "Free memory of a GPU visible here, in bytes (NVML).")

# --- The link to the plugin inside vLLM ---

INTER_TOKEN_LATENCY_PART = _gauge(
    "inter_token_latency_part_p99_seconds",
    (WINDOW, Label("part", ("engine", "frontend", "network"))),
    "99th percentile of the gaps of all models in the sliding window, in seconds, taken apart by where it comes about; "
    "the parts add up to it. engine: between the engine's outputs; frontend: what it grows until the API server has "
    "taken them in; network: what it grows until our read. Absent without the plugin inside vLLM.",
)
ENGINE_LINKS = _gauge("engine_links", (), "API servers of vLLM in which our plugin is connected to us, now.")
ENGINE_LINK_STEPS = _counter("engine_link_steps_total", (), "Engine steps that our plugin inside vLLM reported.")
ENGINE_LINK_DROPPED = _counter(
    "engine_link_dropped_total", (), "Engine steps that our plugin inside vLLM could not report in time."
)
ENGINE_LINK_UNUSED = _counter(
    "engine_link_unused_total",
    (),
    "Engine steps that our plugin inside vLLM reported, and that are not in our timeline: a later one was used before, "
    "or they were timed by the clock of another machine.",
)
ENGINE_LINK_TOKENS = _counter(
    "engine_link_step_tokens_total",
    (Label("phase", ("prefill", "decode")),),
    "Tokens that the engine computed, by phase, in the steps that our plugin inside vLLM reported. Divided by their "
    "number, what a step carries; decode tokens beyond one per stream are speculation, or answers computed again.",
)
ENGINE_LINK_FINISHED = _counter(
    "engine_link_requests_total", (), "Requests whose end our plugin inside vLLM reported, with the engine's own times."
)
ENGINE_LINK_QUEUE_SECONDS = _counter(
    "engine_link_queue_seconds_total",
    (),
    "Time that these requests spent in the scheduler's queue, in seconds, by the engine's clock. What queue_seconds "
    "has beyond it was spent before the queue, in the API server.",
)

# --- Whether upstream answers us ---

UP = _gauge(
    "up",
    (),
    "1 while upstream is taken to be up, else 0: its last health check was answered, or was late or lost while answers "
    "arrive or not often enough in a row (health_misses).",
)
UPSTREAM_HEALTH_DURATION = _gauge(
    "upstream_health_check_duration_seconds", (), "Time that the last health check of upstream took, in seconds."
)
UPSTREAM_HEALTH_FAILURES = _counter(
    "upstream_health_check_failures_total",
    (Label("reason", ("status", "refused", "timeout", "lost")),),
    "Health checks of upstream that failed, by reason.",
)
UPSTREAM_INFO = _gauge(
    "upstream_info", (Label("server"),), "Always 1; the kind of server that upstream is, by the names of its metrics."
)
UPSTREAM_SCRAPE_SUCCESS = _gauge(
    "upstream_scrape_success", (), "1 when the last scrape of upstream's own metrics could be read, else 0."
)
UPSTREAM_SCRAPE_DURATION = _gauge(
    "upstream_scrape_duration_seconds", (), "Time that the last scrape of upstream's own metrics took, in seconds."
)
UPSTREAM_SCRAPE_AGE = _gauge(
    "upstream_scrape_age_seconds",
    (),
    "Time since the last scrape of upstream's own metrics that could be read, in seconds. Absent before the first.",
)
UPSTREAM_SCRAPE_FAILURES = _counter(
    "upstream_scrape_failures_total",
    (Label("reason", tuple(reason.value for reason in FetchReason)),),
    "Scrapes of upstream's own metrics that failed, by reason.",
)
KV_SIGNAL_PRESENT = _gauge(
    "kv_signal_present",
    (),
    "1 when upstream's own metrics report the use of the KV cache, 0 when they do not or cannot be read.",
)

# --- Ourselves ---

RELAY_LOOP_LAG = _histogram(
    "relay_loop_lag_seconds",
    (RELAY,),
    LAG_BOUNDS,
    "How late the event loop of a relay process woke up for a timer, in seconds: the delay that we ourselves add.",
)
RELAY_CONNECTIONS = _gauge(
    "relay_connections",
    (RELAY, Label("side", ("client", "upstream", "upstream_idle"))),
    "Open connections of a relay process, by side; upstream_idle are those of upstream that wait for reuse.",
)
RELAY_SERVING = _gauge(
    "relay_serving",
    (RELAY,),
    "1 while the relay process lives and accepts connections, 0 while it starts, is mute or cannot accept.",
)
RELAY_CLIENT_LIMIT = _gauge(
    "relay_client_limit",
    (RELAY,),
    "Client connections that a relay process can have at once, by its descriptors and max_clients.",
)
RELAY_DISPLACED = _counter(
    "relay_clients_displaced_total",
    (RELAY,),
    "Client connections closed because others needed their place: idle ones, or those that sent no whole request.",
)
RELAY_TURNED_AWAY = _counter(
    "relay_clients_turned_away_total",
    (RELAY,),
    "Client connections closed at once because their address had max_clients_per_address of them.",
)
RELAY_HELD_BYTES = _gauge(
    "relay_held_bytes",
    (RELAY, Label("of", ("requests", "answers"))),
    "Bytes that a relay process holds: of requests until upstream has them, with the room promised to large bodies; of "
    "answers those that clients do not take.",
)
RELAY_RESTARTS = _counter("relay_restarts_total", (), "Relay processes that died and were started again.")
OBSERVER_RESTARTS = _counter(
    "observer_restarts_total", (), "Observer processes that died and were started again; no stream notices."
)
RELAY_LOST_STREAMS = _counter(
    "relay_lost_streams_total", (RELAY,), "Streams that were in flight in a relay process when it died."
)
RELAY_RETRIES = _counter(
    "relay_retries_total", (RELAY,), "Requests sent once more because a reused connection died before it answered."
)
RELAY_CONNECT_FAILURES = _counter(
    "relay_connect_failures_total",
    (RELAY,),
    "Connections to upstream that a relay process tried to open in vain; without descriptors for it is not counted.",
)
RELAY_USAGE_REFUSED = _counter(
    "relay_usage_refused_total",
    (RELAY,),
    "Requests that upstream took only without the usage that `usage: inject` asks for; they were sent twice.",
)
RELAY_USAGE_RESTS = _gauge(
    "relay_usage_rests",
    (RELAY,),
    "1 while requests are left as they are because upstream refused to be asked for usage, else 0.",
)
TAP_PACKETS = _counter("tap_packets_total", (RELAY,), "Packets of observations that the observer received.")
TAP_DROPPED = _counter(
    "tap_dropped_total",
    (RELAY,),
    "Packets of observations dropped because the observer did not keep up; no gap is measured across one.",
)
TAP_REPAIRED_STREAMS = _counter(
    "tap_repaired_streams_total",
    (RELAY, Label("repair", ("closed", "taken_in", "caught_up"))),
    "Requests of which records were lost, and whose books were put right by what the relay has in flight: closed"
    " (their end was lost, and with it the outcome), taken_in (their beginning), caught_up (something in between).",
)
TAP_SKIPPED_BYTES = _counter(
    "tap_skipped_bytes_total",
    (RELAY,),
    "Bytes of bodies that were passed on without being shown to the observer: too many to be of use, or unreadable.",
)
UNPARSED_EVENTS = _counter(
    "unparsed_events_total",
    (Label("reason"),),
    "Events or bodies in the traffic that could not be understood, and so were passed on without being counted.",
)
REQUEST_BODIES_UNREAD = _counter(
    "request_bodies_unread_total",
    (Label("reason", ("memory", "time", "content", "lost")),),
    "Request bodies that were not read, or not to their end, so that only their size hints at the prompt's length: "
    "no room for more of them, no time for more of them, content that is no JSON or has too much in it, or bytes lost.",
)
OBSERVER_DELAY = _histogram(
    "observer_delay_seconds",
    (),
    LAG_BOUNDS,
    "Age of observations when the observer took them up, in seconds since the relay's read, once per packet.",
)
PROCESS_CPU_SECONDS = _counter(
    "process_cpu_seconds_total", (PROCESS,), "CPU time, user and system, that a process of ours used."
)
PROCESS_CORE_WAIT = _counter(
    "process_core_wait_seconds_total",
    (PROCESS,),
    "Time that a process of ours was ready to run but had no core: the machine starves what measures it.",
)
PROCESS_RESIDENT_MEMORY = _gauge(
    "process_resident_memory_bytes", (PROCESS,), "Resident memory of a process of ours, in bytes."
)
EXPOSED_SERIES = _gauge("exposed_series", (), "Series on this page, this one included.")
LABEL_SETS_REFUSED = _counter(
    "label_sets_refused_total", (), "New sets of label values refused because their metric had too many already."
)
OTLP_EXPORTS = _counter(
    "otlp_exports_total",
    (SIGNAL, Label("outcome", ("ok", "failed"))),
    "Times that something was sent by OTLP, by whether it got through; absent where nothing is to be sent.",
)
OTLP_DROPPED = _counter(
    "otlp_dropped_total",
    (SIGNAL,),
    "What was to be sent by OTLP and was given up, since the receiver was slow or gone: states of all metrics, for "
    "each of which the next one makes up, or incidents.",
)
CERTIFICATE_EXPIRY = _gauge(
    "certificate_expiry_timestamp_seconds",
    (Label("listener", ("data", "admin")),),
    "Unix time at which the certificate that a listener of ours serves ends, in seconds. Absent for one without TLS.",
)
BUILD_INFO = _gauge("build_info", (Label("version"),), "Always 1; the version of prefillwatch.")
DRAINING = _gauge("draining", (), "1 while no new requests are accepted because of a shutdown, else 0.")

#: The table, in the order of this page.
TABLE: tuple[Spec, ...] = tuple(value for value in list(vars().values()) if isinstance(value, Spec))
