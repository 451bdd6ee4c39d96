"""What vLLM loads. Only vLLM can import this module.

The base class is imported without a guard: should it move one day, the import fails, which vLLM logs before it goes on
without the plugin. A class that merely lacks the base would keep the server from starting.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from prefillwatch.engine.plugin import reporter

if TYPE_CHECKING:

    class StatLoggerBase:
        """What is used of vLLM's class."""

else:
    from vllm.v1.metrics.loggers import StatLoggerBase


class StepStatLogger(StatLoggerBase):
    """One for each engine (data-parallel rank) that this API server talks to.

    `record` is called in the event loop that also streams the answers, after every step, and an exception there would
    end every request: so it appends to a queue, and swallows whatever goes wrong.
    """

    def __init__(self, vllm_config: Any = None, engine_index: int = 0, *_: Any, **__: Any) -> None:
        self._take: Callable[[Any, Any], None] = _nothing
        try:
            self._take = reporter.taker(vllm_config, engine_index)
        except Exception as error:
            reporter.log.warning("no engine metrics of prefillwatch: %r", error)

    def record(self, scheduler_stats: Any = None, iteration_stats: Any = None, *_: Any, **__: Any) -> None:
        """Further arguments differ from version to version, and none of them is needed."""
        try:  # noqa: SIM105 (suppress() would make an object for every step)
            self._take(scheduler_stats, iteration_stats)
        except Exception:  # noqa: S110 (a line in the log for every step would be worse)
            pass

    def log_engine_initialized(self) -> None:
        """Nothing to say."""


def _nothing(_scheduler_stats: Any, _iteration_stats: Any) -> None:
    """Takes the place of what could not be made."""


# A later vLLM may ask for methods that we do not know: it shall find the base's own instead of refusing to start.
StepStatLogger.__abstractmethods__ = frozenset()  # type: ignore[attr-defined]
