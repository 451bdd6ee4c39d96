"""What vLLM hands a stat logger after a step becomes a report of that step. Pure but for vLLM's objects.

Those objects are not a stable interface: whatever a version lacks is read as unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from prefillwatch.engine.step_report import FinishedRequest, StepReport
from prefillwatch.units import MS, NS

#: A step rarely ends more requests than this; the rest is not worth a packet that may not fit.
_MOST_FINISHED: Final = 256


class StepReader:
    """Reads the steps of one engine, in order.

    How long a step took is worked out here, since ``elapsed_ms`` is not it: with asynchronous scheduling, the default,
    the next step is already queued while the engine waits for this one, so the wait begins late. In order of trust:

    - A request that got a token in the step before and in this one has a gap that is exactly the time between the two
      outputs, by the engine's own clock. So the smallest gap of the step is its time, however late the API server took
      the outputs in. Not with pipeline parallelism, where a request rides in every n-th step only.
    - Without such a request (prompts alone): time between taking in the two outputs, if the engine went straight on.
    - After a pause of the engine ``elapsed_ms`` is right, since nothing was queued before this step.
    """

    def __init__(self, engine: int, *, pipelined: bool = False) -> None:
        """``pipelined``: the engine has several steps of different requests under way at a time."""
        self._engine = engine
        self._pipelined = pipelined
        self._taken_ns = 0
        self._end_ns = 0
        self._index = -2
        self._busy = False  # the engine had more to do after the last step
        self._had_tokens = False  # the last step gave tokens to requests of this API server

    def read(self, taken_ns: int, scheduler: Any, iteration: Any) -> StepReport | None:
        """None when nothing was computed: news of the scheduler alone, or a rank that only keeps others company."""
        details = getattr(scheduler, "iteration_details", None)
        gaps = getattr(iteration, "inter_token_latencies_iter", None) or []
        report = None
        if not getattr(details, "is_dummy", False) and (details is not None or iteration is not None):
            duration_ns, exact = self._duration_ns(taken_ns, details, gaps)
            report = self._report(taken_ns, duration_ns, exact, gaps, iteration)
            if details is not None:
                report.prefill_tokens = details.num_ctx_tokens
                report.prefill_requests = details.num_ctx_requests
                report.decode_requests = details.num_generation_requests
                report.decode_tokens = details.num_generation_tokens
            report.running = _count(scheduler, "num_running_reqs")
            report.waiting = _count(scheduler, "num_waiting_reqs")
            report.kv_usage = float(getattr(scheduler, "kv_cache_usage", -1.0))
            # Each step's statistics go to one API server only, so that a step is reported once however many there are.
            report.is_step = scheduler is not None and duration_ns > 0
            self._end_ns = report.end_ns
            self._taken_ns = taken_ns
            self._had_tokens = bool(gaps) or report.first_tokens > 0
        if details is not None:
            self._index = details.iteration_index
        if scheduler is not None:
            self._busy = _count(scheduler, "num_running_reqs") + _count(scheduler, "num_waiting_reqs") > 0
        return report

    def _duration_ns(self, taken_ns: int, details: Any, gaps: list[float]) -> tuple[int, bool]:
        """Time since the output of the step before, and whether it is exact."""
        if gaps and self._had_tokens and not self._pipelined:
            return round(float(min(gaps)) * NS), True
        if self._busy and details is not None and details.iteration_index == self._index + 1:
            return taken_ns - self._taken_ns, False
        if details is not None and details.elapsed_ms > 0:
            return round(details.elapsed_ms * MS), False
        return round(float(min(gaps)) * NS) if gaps else 0, False

    def _report(self, taken_ns: int, duration_ns: int, exact: bool, gaps: list[float], iteration: Any) -> StepReport:
        return StepReport(
            engine=self._engine,
            end_ns=self._ended(taken_ns, duration_ns) if exact else taken_ns,
            taken_ns=taken_ns,
            duration_ns=duration_ns,
            gaps=list(Counter(gaps).items()),
            first_tokens=len(getattr(iteration, "time_to_first_tokens_iter", None) or ()),
            preemptions=max(0, _count(iteration, "num_preempted_reqs")),
            finished=_finished(getattr(iteration, "finished_requests", None) or ()),
        )

    def _ended(self, taken_ns: int, duration_ns: int) -> int:
        """When the output was ready. The engine does not say, but the time between outputs is exact, and none is taken
        in before it is ready: so the output that the API server took in fastest sets the clock for all."""
        return min(self._end_ns + duration_ns, taken_ns)


def _count(stats: Any, name: str) -> int:
    value = getattr(stats, name, -1)
    return value if isinstance(value, int) else -1


def _finished(requests: Sequence[Any]) -> list[FinishedRequest]:
    return [
        FinishedRequest(
            request_id=getattr(stats, "request_id", None) or "",
            queued_s=stats.queued_time,
            prefill_s=stats.prefill_time,
            prompt_tokens=stats.num_prompt_tokens,
            cached_tokens=getattr(stats, "num_cached_tokens", 0),
            preemptions=getattr(stats, "num_preemptions", 0),
        )
        for stats in requests[:_MOST_FINISHED]
    ]
