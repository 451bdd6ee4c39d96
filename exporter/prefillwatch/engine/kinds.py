"""What kinds of server there are, by the names of their metrics, and what each says about its engines. Pure.

vLLM renamed what matters here: ``gpu_cache_usage_perc`` and ``gpu_prefix_cache_*`` became ``kv_cache_usage_perc`` and
``prefix_cache_*`` by 0.9.2, both were shown for a while, and the old ones were gone by 0.12. Despite ``perc`` the value
goes from 0 to 1.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from prefillwatch.engine.errors import FetchReason, PageError
from prefillwatch.engine.exposition import Sample, SampleFinder, looks_like_metrics

#: More engines than this behind one page are not told apart, to keep the label bounded.
MOST_ENGINES: Final = 256

ONLY_ENGINE: Final = "0"  # where a page has no label for it


@dataclass(frozen=True, slots=True)
class EngineSample:
    """What one page says of one engine. None: it does not say, or says something that cannot be."""

    engine: str
    kv_usage: float | None = None  # 0 to 1
    capacity_tokens: int | None = None
    running: int | None = None
    waiting: int | None = None
    preemptions_total: float | None = None  # since the engine started
    prompt_tokens_total: float | None = None  # read since the engine started
    generated_tokens_total: float | None = None  # made since then
    prefix_queries_total: float | None = None  # tokens looked up in the prefix cache
    prefix_hits_total: float | None = None  # tokens found there
    block_size: int | None = None  # tokens per KV block
    max_num_batched_tokens: int | None = None
    model: str = ""

    @property
    def free_tokens(self) -> int | None:
        """Tokens that the KV cache could still take; blocks that only hold a reusable prefix count as free."""
        if self.capacity_tokens is None or self.kv_usage is None:
            return None
        return round(self.capacity_tokens * (1.0 - self.kv_usage))


@dataclass(frozen=True, slots=True)
class PageSample:
    """What one page says. ``start_time`` is when the server process started, in Unix seconds."""

    server: str
    engines: tuple[EngineSample, ...]
    start_time: float | None = None
    left_out: int = 0  # samples that we would read, beyond the most that are read of one page
    reads_on: bool = False  # a server of its kind reads a prompt to its end although the client left

    @property
    def kv_signal_present(self) -> bool:
        return any(engine.kv_usage is not None for engine in self.engines)

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(sorted({engine.model for engine in self.engines if engine.model}))


@dataclass(frozen=True, slots=True)
class ServerKind:
    """A kind of server. The fields name its metrics without namespace, the preferred one first.

    One metric may report several quantities, by a label: ``by_label`` names that label, and ``name{value}`` is
    the quantity.
    """

    name: str
    namespace: str
    kv_usage: tuple[str, ...] = ()
    kv_pools: tuple[str, ...] = ()  # where the cache is in pools: the use of each, and the fullest of them counts
    state_pools: tuple[str, ...] = ()  # pools of another kind, which fill with requests and not with tokens
    capacity_tokens: tuple[str, ...] = ()
    blocks: tuple[str, ...] = ()
    blocks_used: tuple[str, ...] = ()
    running: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    preemptions_total: tuple[str, ...] = ()
    prompt_tokens_total: tuple[str, ...] = ()
    generated_tokens_total: tuple[str, ...] = ()
    prefix_queries_total: tuple[str, ...] = ()
    prefix_hits_total: tuple[str, ...] = ()
    block_size: tuple[str, ...] = ()
    engine_labels: tuple[str, ...] = ()
    info: str = ""  # a metric whose labels are the cache configuration
    info_block_size: str = ""
    info_blocks: str = ""
    info_tokens: str = ""
    by_label: Mapping[str, str] = field(default_factory=dict)  # metric to label
    reads_on: bool = False  # a prompt whose client leaves is read to its end all the same
    marks: tuple[str, ...] = ()  # metrics that we do not read, and that show the kind where nothing else does
    metrics: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        quantities = {name for names in map(self.names_of, (*_GAUGES, *_COUNTERS)) for name in names}
        members = {name.partition("{")[0] for name in quantities}
        object.__setattr__(self, "metrics", frozenset(members | ({self.info} if self.info else set())))

    def names_of(self, quantity: str) -> tuple[str, ...]:
        names: tuple[str, ...] = getattr(self, quantity)
        return names


_GAUGES: Final = (
    *("kv_usage", "kv_pools", "state_pools", "capacity_tokens", "blocks", "blocks_used"),
    *("running", "waiting", "block_size"),
)
_COUNTERS: Final = (
    *("preemptions_total", "prompt_tokens_total", "generated_tokens_total"),
    *("prefix_queries_total", "prefix_hits_total"),
)

#: One of a histogram's series is enough to know whose it is.
_LATENCIES: Final = (
    "inter_token_latency_seconds_count",
    "time_per_output_token_seconds_count",
    "time_to_first_token_seconds_count",
    "e2e_request_latency_seconds_count",
)

KINDS: Final = (
    ServerKind(
        name="vllm",
        namespace="vllm",
        kv_usage=("kv_cache_usage_perc", "gpu_cache_usage_perc"),
        running=("num_requests_running",),
        waiting=("num_requests_waiting",),
        preemptions_total=("num_preemptions_total", "num_preemptions"),
        prompt_tokens_total=("prompt_tokens_total", "prompt_tokens"),
        generated_tokens_total=("generation_tokens_total", "generation_tokens"),
        prefix_queries_total=(
            "prefix_cache_queries_total",
            "prefix_cache_queries",
            "gpu_prefix_cache_queries_total",
            "gpu_prefix_cache_queries",
        ),
        prefix_hits_total=(
            "prefix_cache_hits_total",
            "prefix_cache_hits",
            "gpu_prefix_cache_hits_total",
            "gpu_prefix_cache_hits",
        ),
        engine_labels=("engine",),
        info="cache_config_info",
        info_block_size="block_size",
        info_blocks="num_gpu_blocks",
        # Newer releases report the capacity itself. It is right where blocks times size is not: with several kinds of
        # attention in one model, and with data parallelism, where num_gpu_blocks is the sum of all engines.
        info_tokens="kv_cache_size_tokens",
        marks=_LATENCIES,
    ),
    ServerKind(
        name="sglang",
        namespace="sglang",
        # The fullest of all its pools, and on models with state-space layers that may be the one of their states.
        kv_usage=("token_usage",),
        kv_pools=("full_token_usage", "swa_token_usage"),
        state_pools=("mamba_usage",),
        capacity_tokens=("max_total_num_tokens",),
        running=("num_running_reqs",),
        waiting=("num_queue_reqs",),
        preemptions_total=("num_retracted_requests_total",),
        prompt_tokens_total=("prompt_tokens_total",),
        generated_tokens_total=("generation_tokens_total",),
        block_size=("page_size",),
        engine_labels=("dp_rank",),
        info="cache_config_info",
        info_block_size="page_size",
        info_blocks="num_pages",
        marks=_LATENCIES,
    ),
    ServerKind(
        name="llamacpp",
        namespace="llamacpp",
        # No use of the KV cache: what older ones report as kv_cache_usage_ratio counts what idle slots keep as well.
        running=("requests_processing",),
        waiting=("requests_deferred",),
        prompt_tokens_total=("prompt_tokens_total",),
        generated_tokens_total=("tokens_predicted_total",),
        # It looks whether the client is still there when it has a token to give.
        reads_on=True,
    ),
    ServerKind(name="tgi", namespace="tgi", running=("batch_current_size",), waiting=("queue_size",)),
    ServerKind(
        name="trtllm",
        namespace="trtllm",
        kv_usage=("kv_cache_utilization",),
        blocks=("kv_cache_max_blocks",),
        running=("num_requests_running",),
        waiting=("num_requests_waiting",),
        block_size=("kv_cache_tokens_per_block",),
        marks=_LATENCIES,
    ),
    ServerKind(
        name="triton",
        namespace="nv",
        kv_usage=("trt_llm_kv_cache_block_metrics{fraction}",),
        blocks=("trt_llm_kv_cache_block_metrics{max}",),
        blocks_used=("trt_llm_kv_cache_block_metrics{used}",),
        running=("trt_llm_request_metrics{scheduled}", "trt_llm_request_metrics{active}"),
        waiting=("trt_llm_request_metrics{waiting}",),
        block_size=("trt_llm_kv_cache_block_metrics{tokens_per}",),
        by_label={
            "trt_llm_kv_cache_block_metrics": "kv_cache_block_type",
            "trt_llm_request_metrics": "request_type",
        },
        marks=("inference_request_success", "inference_request_duration_us"),
    ),
)

_FINDER: Final = SampleFinder(
    {kind.namespace: kind.metrics for kind in KINDS} | {"process": frozenset({"start_time_seconds"})}
)
_MARKS: Final = SampleFinder({kind.namespace: frozenset(kind.marks) for kind in KINDS if kind.marks})

#: Labels of the replicas that one page may report, as Ray's page of a node does, the preferred one first.
_REPLICA_LABELS: Final = ("ReplicaId", "WorkerId")
_LONGEST_NAME: Final = 64
#: SGLang rounds the use of its fullest pool to two digits, but not that of each.
_ROUNDED: Final = 0.011
#: Labels of the parts of one engine. Only part 0 is read; the others repeat what it says.
_PART_LABELS: Final = ("tp_rank", "pp_rank")


def read_page(page: bytes) -> PageSample:
    """What a metrics page says of the engines behind it. Raises PageError when it is empty or no metrics page."""
    if not page.strip():
        raise PageError(FetchReason.EMPTY, "the metrics page is empty")
    samples, left_out = _FINDER.read(page)
    if not samples and not looks_like_metrics(page):
        raise PageError(FetchReason.PARSE, "the answer is no metrics page")
    starts = [sample.value for sample in samples if sample.namespace == "process"]
    start_time = max(starts, default=None)
    kind = _most_of(samples)
    if kind is not None:
        return PageSample(kind.name, _engines(kind, samples), start_time, left_out, kind.reads_on)
    kind = _most_of(_MARKS.read(page).samples)
    return PageSample(kind.name if kind is not None else "unknown", (), start_time, left_out)


def _most_of(samples: Iterable[Sample]) -> ServerKind | None:
    """The kind that most of the samples are of; None where they are of none."""
    counts = Counter(sample.namespace for sample in samples)
    kind = max(KINDS, key=lambda kind: counts[kind.namespace])
    return kind if counts[kind.namespace] else None


def _engines(kind: ServerKind, samples: Iterable[Sample]) -> tuple[EngineSample, ...]:
    own = [
        sample
        for sample in samples
        if sample.namespace == kind.namespace
        and not any(sample.labels.get(part, "0") not in ("", "0") for part in _PART_LABELS)
    ]
    replica_label = _replica_label(own)
    replicas: dict[str, dict[str, _Books]] = defaultdict(lambda: defaultdict(_Books))
    for sample in own:
        named = (sample.labels[label] for label in kind.engine_labels if sample.labels.get(label))
        engine = next(named, "")[:_LONGEST_NAME]
        replicas[sample.labels.get(replica_label, "")][engine].add(kind, sample)
    # What names neither replica nor engine is configuration that speaks for all of them.
    config = replicas[""][""].config if "" in replicas and "" in replicas[""] else {}
    engines = {}
    for replica, by_engine in replicas.items():
        # Configuration without an engine label speaks for all engines.
        shared = by_engine.pop("", _Books())
        if shared.values or not (by_engine or (replica == "" and len(replicas) > 1)):
            by_engine["" if replica else ONLY_ENGINE].merge(shared)
        for engine, books in by_engine.items():
            name = "/".join(filter(None, (replica, engine)))[:_LONGEST_NAME]
            engines[name] = books.sample(kind, name, shared.config or config)
    names = sorted(engines, key=lambda name: (len(name), name))[:MOST_ENGINES]
    return tuple(engines[name] for name in names)


def _replica_label(samples: Iterable[Sample]) -> str:
    """The label that tells replicas apart; empty where there is one at most: an engine keeps its name over a restart,
    which gives it another replica's."""
    for label in _REPLICA_LABELS:
        names = {name for sample in samples if (name := sample.labels.get(label))}
        if names:
            return label if len(names) > 1 else ""
    return ""


class _Books:
    """The samples of one engine. Series that differ in other labels than the engine's and the replica's are several
    processes reporting the same engine: of gauges the highest counts, and counters add up."""

    def __init__(self) -> None:
        self.values: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
        self.config: dict[str, str] = {}
        self.model = ""

    def add(self, kind: ServerKind, sample: Sample) -> None:
        self.model = sample.labels.get("model_name") or self.model
        if sample.name == kind.info:
            self.config = dict(sample.labels)
        else:
            name = sample.name
            if (label := kind.by_label.get(name)) is not None:
                name = f"{name}{{{sample.labels.get(label, '')}}}"
            self.values.setdefault(name, {})[tuple(sorted(sample.labels.items()))] = sample.value

    def merge(self, other: _Books) -> None:
        self.model = self.model or other.model
        self.config = self.config or other.config
        for name, series in other.values.items():
            self.values.setdefault(name, {}).update(series)

    def sample(self, kind: ServerKind, engine: str, shared_config: Mapping[str, str]) -> EngineSample:
        config = self.config or shared_config
        block_size = _whole(config.get(kind.info_block_size)) or self._gauge(kind.block_size)
        blocks = _whole(config.get(kind.info_blocks)) or self._gauge(kind.blocks)
        room = blocks * block_size if blocks is not None and block_size is not None else None
        return EngineSample(
            engine=engine,
            kv_usage=_ratio(self._kv_usage(kind)),
            capacity_tokens=self._gauge(kind.capacity_tokens) or _whole(config.get(kind.info_tokens)) or room,
            running=self._gauge(kind.running),
            waiting=self._gauge(kind.waiting),
            preemptions_total=_count(self._first(kind.preemptions_total, sum)),
            prompt_tokens_total=_count(self._first(kind.prompt_tokens_total, sum)),
            generated_tokens_total=_count(self._first(kind.generated_tokens_total, sum)),
            prefix_queries_total=_count(self._first(kind.prefix_queries_total, sum)),
            prefix_hits_total=_count(self._first(kind.prefix_hits_total, sum)),
            block_size=block_size,
            max_num_batched_tokens=_whole(config.get("max_num_batched_tokens")),
            model=self.model,
        )

    def _kv_usage(self, kind: ServerKind) -> float | None:
        """Of the pools that hold the cache the fullest. What is said of all pools together counts where none of them is
        told, or another one than these must be meant."""
        together = self._first(kind.kv_usage, max)
        pools, states = self._each(kind.kv_pools), self._each(kind.state_pools)
        if pools and (together is None or together <= max(*pools, *states, 0.0) + _ROUNDED):
            return max(pools)
        if together is None:
            used, blocks = self._gauge(kind.blocks_used), self._gauge(kind.blocks)
            return used / blocks if used is not None and blocks else None
        return together

    def _each(self, names: tuple[str, ...]) -> list[float]:
        return [value for name in names if (value := self._first((name,), max)) is not None]

    def _first(self, names: tuple[str, ...], combine: Callable[[Iterable[float]], float]) -> float | None:
        """The preferred metric of those that have a finite value."""
        for name in names:
            finite = [value for value in self.values.get(name, {}).values() if abs(value) < float("inf")]
            if finite:
                return combine(finite)
        return None

    def _gauge(self, names: tuple[str, ...]) -> int | None:
        value = self._first(names, max)
        return int(value) if value is not None and value >= 0 else None


def _ratio(value: float | None) -> float | None:
    """Rounding may carry a full cache a hair over 1; anything else outside 0 to 1 is no ratio."""
    return min(value, 1.0) if value is not None and 0.0 <= value <= 1.01 else None


def _count(value: float | None) -> float | None:
    return value if value is not None and value >= 0.0 else None


def _whole(text: str | None) -> int | None:
    """A positive whole number in a label, or None: before it is known, vLLM writes ``None`` there."""
    if text is None or not (text.isascii() and text.isdigit() and len(text) < 16):
        return None
    return int(text) or None
