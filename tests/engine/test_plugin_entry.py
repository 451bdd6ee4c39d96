"""The class that vLLM loads, in front of a stand-in for vLLM: whatever happens, `record` returns at once."""

from __future__ import annotations

import abc
import importlib
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from prefillwatch.engine.plugin import reporter
from prefillwatch.engine.plugin.histograms import StepHistograms
from prefillwatch.engine.plugin.reporter import Reporter

ROOT = Path(__file__).parents[2]
ENTRY = "prefillwatch.engine.plugin.entry"
COUNT = "prefillwatch_engine_inter_token_latency_seconds_count"


class StatLoggerBase(abc.ABC):
    """As in vLLM, and with a method more, as a later version may have."""

    @abc.abstractmethod
    def record(self, *args: Any, **kwargs: Any) -> None: ...

    @abc.abstractmethod
    def record_something_new(self) -> None: ...


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> Iterator[type]:
    """Makes the entry importable; the class it holds."""
    for name in ("vllm", "vllm.v1", "vllm.v1.metrics"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    loggers = ModuleType("vllm.v1.metrics.loggers")
    loggers.StatLoggerBase = StatLoggerBase  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm.v1.metrics.loggers", loggers)
    monkeypatch.delitem(sys.modules, ENTRY, raising=False)
    yield importlib.import_module(ENTRY).StepStatLogger
    sys.modules.pop(ENTRY, None)


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> tuple[Reporter, CollectorRegistry]:
    """The reporter of this process, with a registry of its own."""
    registry = CollectorRegistry()
    made = Reporter(StepHistograms(registry=registry), None)
    monkeypatch.setattr(reporter, "shared_reporter", lambda: made)
    return made, registry


def config(details: bool | None = True) -> SimpleNamespace:
    observability = SimpleNamespace() if details is None else SimpleNamespace(enable_logging_iteration_details=details)
    return SimpleNamespace(
        model_config=SimpleNamespace(served_model_name="m"),
        observability_config=observability,
        parallel_config=SimpleNamespace(pipeline_parallel_size=1),
    )


def scheduler(**details: Any) -> SimpleNamespace:
    return SimpleNamespace(num_running_reqs=1, num_waiting_reqs=0, kv_cache_usage=0.1, **details)


def gaps(*seconds: float) -> SimpleNamespace:
    return SimpleNamespace(inter_token_latencies_iter=list(seconds))


def gaps_counted(registry: CollectorRegistry, tokens: str = "unknown", engine: str = "0") -> float:
    labels = {"model_name": "m", "engine": engine, "step_prefill_tokens": tokens}
    return registry.get_sample_value(COUNT, labels) or 0.0


# Each version's way to call record().
CALLS: dict[str, Callable[[Any, Any, Any], None]] = {
    "0.9": lambda logger, s, i: logger.record(s, i),
    "0.10": lambda logger, s, i: logger.record(s, i, 0),
    "0.11": lambda logger, s, i: logger.record(scheduler_stats=s, iteration_stats=i, engine_idx=0),
    "0.32": lambda logger, s, i: logger.record(s, i, mm_cache_stats=None, engine_idx=0),
    "later": lambda logger, s, i: logger.record(s, i, mm_cache_stats=None, engine_idx=0, something_new=object()),
}


@pytest.mark.parametrize("version", CALLS)
def test_every_signature_of_record(version: str, vllm: type, shared: tuple[Reporter, CollectorRegistry]) -> None:
    made, registry = shared
    logger = vllm(config(), 0)
    CALLS[version](logger, scheduler(), gaps(0.01, 0.01))
    made.intake.drain()
    assert gaps_counted(registry) == 2


def test_it_is_what_vllm_asks_for(vllm: Any) -> None:
    assert issubclass(vllm, StatLoggerBase)
    assert vllm(config(), engine_index=1) is not None  # although a method is missing
    logger = vllm(config())
    logger.log_engine_initialized()


def test_each_engine_has_its_own_series(vllm: type, shared: tuple[Reporter, CollectorRegistry]) -> None:
    made, registry = shared
    ranks = [vllm(config(), rank) for rank in (0, 1)]
    for rank in (0, 1, 1):
        ranks[rank].record(scheduler(), gaps(0.01), engine_idx=rank)
    made.intake.drain()
    assert [gaps_counted(registry, engine=rank) for rank in ("0", "1")] == [1, 2]


def test_what_a_step_carried_is_in_the_label(vllm: type, shared: tuple[Reporter, CollectorRegistry]) -> None:
    made, registry = shared
    details = SimpleNamespace(
        iteration_index=1,
        num_ctx_requests=1,
        num_ctx_tokens=600,
        num_generation_requests=1,
        num_generation_tokens=1,
        elapsed_ms=1.0,
    )
    vllm(config(), 0).record(scheduler(iteration_details=details), gaps(0.01))
    made.intake.drain()
    assert gaps_counted(registry, "512-2k") == 1


# --- What is said in the log ---


@pytest.mark.parametrize("details", [False, None])
def test_a_missing_flag_is_said_once(
    details: bool | None, vllm: type, shared: tuple[Reporter, CollectorRegistry], caplog: pytest.LogCaptureFixture
) -> None:
    for rank in (0, 1):
        vllm(config(details), rank).record(scheduler(), gaps(0.01))
    shared[0].intake.drain()
    (line,) = caplog.messages
    assert "--enable-logging-iteration-details" in line
    assert gaps_counted(shared[1]) == 1


def test_a_version_that_does_not_hand_details_over_is_said_once(
    vllm: type, shared: tuple[Reporter, CollectorRegistry], caplog: pytest.LogCaptureFixture
) -> None:
    logger = vllm(config(), 0)
    assert caplog.messages == []
    for _ in range(3):
        logger.record(scheduler(), gaps(0.01))
    shared[0].intake.drain()
    (line,) = caplog.messages
    assert "0.27" in line


# --- Faults ---


def test_a_configuration_of_another_shape_does_no_harm(vllm: type, shared: tuple[Reporter, CollectorRegistry]) -> None:
    vllm(object(), 0).record(scheduler(), gaps(0.01))
    vllm().record(None, None)
    shared[0].intake.drain()


def test_what_cannot_be_read_is_skipped_and_said_once_without_its_text(
    vllm: type, shared: tuple[Reporter, CollectorRegistry], caplog: pytest.LogCaptureFixture
) -> None:
    made, registry = shared
    logger = vllm(config(), 0)
    caplog.clear()
    for _ in range(3):
        logger.record(scheduler(), SimpleNamespace(inter_token_latencies_iter=["a secret"]))
    logger.record(scheduler(), gaps(0.01))
    made.intake.drain()
    assert made.failed == 3
    assert gaps_counted(registry) == 1
    assert [("secret" in line) for line in caplog.messages if "cannot read" in line] == [False]


def test_an_error_in_our_own_code_does_not_leave_record(vllm: type, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Callable[[Any, Any], None]:
        def take(_scheduler: Any, _iteration: Any) -> None:
            raise RuntimeError

        return take

    monkeypatch.setattr(reporter, "taker", broken)
    vllm(config(), 0).record(scheduler(), gaps(0.01))


def test_when_it_cannot_be_set_up_vllm_goes_on_without(
    vllm: type, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> Reporter:
        raise ValueError("name is taken")

    monkeypatch.setattr(reporter, "shared_reporter", broken)
    vllm(config(), 0).record(scheduler(), gaps(0.01))
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_a_vllm_whose_base_class_moved_skips_the_plugin() -> None:
    """Which is what an ImportError makes it do; any other error would keep the server from starting."""
    sys.modules.pop(ENTRY, None)
    with pytest.raises(ImportError):
        importlib.import_module(ENTRY)


# --- How it is found ---


def test_the_entry_point_names_the_class(vllm: type) -> None:
    lines = (ROOT / "pyproject.toml").read_text().partition('entry-points."vllm.stat_logger_plugins"]\n')[2]
    module, _, name = lines.splitlines()[0].partition(" = ")[2].strip('"').partition(":")
    assert getattr(importlib.import_module(module), name) is vllm
