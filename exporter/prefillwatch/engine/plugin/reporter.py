"""Brings the plugin's parts together: one for each API server process."""

from __future__ import annotations

import functools
import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from prefillwatch.contract.environment import SOCKET_ENV
from prefillwatch.engine.plugin.histograms import StepHistograms, shared_histograms
from prefillwatch.engine.plugin.intake import Intake
from prefillwatch.engine.plugin.sender import Sender
from prefillwatch.engine.plugin.steps import StepReader
from prefillwatch.engine.step_report import StepReport

#: Below vLLM's own logger, whose handler and level it so has.
log: Final = logging.getLogger("vllm.prefillwatch")

FLAG: Final = "--enable-logging-iteration-details"
_ADVICE: Final = (
    f"vLLM does not report the prefill tokens of its steps: %s (needs {FLAG}, and vLLM 0.27 or newer). Until then "
    f'prefillwatch_engine_* have step_prefill_tokens="unknown"'
)


@dataclass(slots=True)
class Engine:
    """One engine that this API server talks to."""

    model: str
    reader: StepReader


Item = tuple[int, Engine, Any, Any]  # when it was taken in, whose it is, and vLLM's two objects


class Reporter:
    """Takes what vLLM reports after each step; a thread works it through."""

    def __init__(self, histograms: StepHistograms, sender: Sender | None) -> None:
        self.intake: Intake[Item] = Intake(self.work)
        self.failed = 0
        self._histograms = histograms
        self._sender = sender
        self._advised = False

    def work(self, items: Sequence[Item]) -> None:
        """Never raises: what cannot be read is counted, and said once."""
        try:
            reports = [report for item in items if (report := self._read(item)) is not None]
            if self._sender is not None:
                self._sender.send(reports)
        except Exception as error:
            self._fail(error)

    def advise(self, why: str) -> None:
        """Say once why prefill tokens are not known, and what would help."""
        if not self._advised:
            self._advised = True
            log.warning(_ADVICE, why)

    def _read(self, item: Item) -> StepReport | None:
        taken_ns, engine, scheduler, iteration = item
        try:
            report = engine.reader.read(taken_ns, scheduler, iteration)
            if report is not None:
                self._histograms.add(engine.model, report)
                if report.is_step and report.prefill_tokens < 0:
                    self.advise("this version does not hand them to plugins")
        except Exception as error:
            self._fail(error)
            return None
        return report

    def _fail(self, error: Exception) -> None:
        self.failed += 1
        if self.failed == 1:  # the type only: a message may hold what is not ours to write down
            log.warning("steps that prefillwatch cannot read are not counted: %s", type(error).__name__)


@functools.cache
def shared_reporter() -> Reporter:
    """That of this process. Raises ValueError when the names of our metrics are taken."""
    path = os.environ.get(SOCKET_ENV)
    return Reporter(shared_histograms(), Sender(path) if path else None)


def taker(vllm_config: Any, engine_index: int) -> Callable[[Any, Any], None]:
    """What takes the statistics of one engine's steps in. It appends to a queue and nothing else."""
    reporter = shared_reporter()
    if (why := _no_details(vllm_config)) is not None:
        reporter.advise(why)
    put = reporter.intake.put
    # As in the label ``model_name`` of vLLM's own metrics.
    model = getattr(getattr(vllm_config, "model_config", None), "served_model_name", "")
    stages = getattr(getattr(vllm_config, "parallel_config", None), "pipeline_parallel_size", 1)
    engine = Engine(str(model or ""), StepReader(engine_index, pipelined=int(stages) > 1))

    def take(scheduler_stats: Any, iteration_stats: Any) -> None:
        put((time.monotonic_ns(), engine, scheduler_stats, iteration_stats))

    return take


def _no_details(vllm_config: Any) -> str | None:
    """Why there will be no iteration details, as far as the configuration shows."""
    observability = getattr(vllm_config, "observability_config", None)
    enabled = getattr(observability, "enable_logging_iteration_details", None)
    if enabled is None:
        return "this version cannot"
    return None if enabled else "it was not asked to"
