"""The engine's own account of its steps, written from inside vLLM as JSON lines: the truth that tests score against.

setup.py installs this module into vLLM's environment as a distribution of its own, with two entry points. It does
nothing unless PWTEST_STEPLOG names a directory. Two files come to be there, because two processes write:

`iterations.jsonl`, from the API server by way of a stat logger (the documented extension point), one line per step:
    at_ns        monotonic time at which the API server took in the step's output
    index        the engine's own number for the step
    elapsed_ms   what the engine says the step took
    prefill_requests, prefill_tokens, decode_requests, decode_tokens   what it carried
    itl          seconds between tokens, one for every token that this step gave to an already decoding request
    running, waiting, kv_usage, preempted    the scheduler's state after the step
    finished     [request id, queue seconds, prefill seconds, cached tokens, preemptions] of requests that ended here

`schedule.jsonl`, from the engine process, one line per step: which request got how many tokens, which no metric tells.
    scheduled_ns, done_ns   monotonic times: composed by the scheduler, and output at hand
    requests     [request id, tokens, kind, computed before] with kind "p" prefill, "d" decode, "r" recomputed after a
                 preemption
    preempted    ids of requests thrown out while this step was composed
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path
from typing import Any, TextIO

from vllm.v1.metrics.loggers import StatLoggerBase

DIRECTORY = os.environ.get("PWTEST_STEPLOG", "")


def open_log(name: str) -> TextIO:
    # Line buffered: a killed engine must not take the last steps with it.
    return Path(DIRECTORY, name).open("a", buffering=1, encoding="utf-8")


def write(log: TextIO, line: dict[str, Any]) -> None:
    log.write(json.dumps(line, separators=(",", ":")) + "\n")


class StepLog(StatLoggerBase):
    """Appends every step that vLLM reports; an exception here would kill the engine, so none leaves `record`."""

    def __init__(self, vllm_config: Any, engine_index: int = 0) -> None:
        self.engine = engine_index
        self.log_file = open_log("iterations.jsonl") if DIRECTORY else None

    def record(
        self,
        scheduler_stats: Any,
        iteration_stats: Any,
        mm_cache_stats: Any = None,
        engine_idx: int = 0,
    ) -> None:
        if self.log_file is not None and scheduler_stats is not None:
            with contextlib.suppress(Exception):
                write(self.log_file, iteration_line(scheduler_stats, iteration_stats))

    def log_engine_initialized(self) -> None:
        pass


def iteration_line(scheduler: Any, iteration: Any) -> dict[str, Any]:
    line = {
        "at_ns": time.monotonic_ns(),
        "running": scheduler.num_running_reqs,
        "waiting": scheduler.num_waiting_reqs,
        "kv_usage": round(scheduler.kv_cache_usage, 5),
    }
    if iteration is not None:
        line["itl"] = [round(gap, 6) for gap in iteration.inter_token_latencies_iter]
        line["preempted"] = iteration.num_preempted_reqs
        line["finished"] = [finished_request(each) for each in iteration.finished_requests]
    if (details := scheduler.iteration_details) is not None:
        line |= {
            "index": details.iteration_index,
            "elapsed_ms": round(details.elapsed_ms, 3),
            "prefill_requests": details.num_ctx_requests,
            "prefill_tokens": details.num_ctx_tokens,
            "decode_requests": details.num_generation_requests,
            "decode_tokens": details.num_generation_tokens,
        }
    return line


def finished_request(stats: Any) -> tuple[str, float, float, int, int]:
    queued, prefill = round(stats.queued_time, 6), round(stats.prefill_time, 6)
    return stats.request_id, queued, prefill, stats.num_cached_tokens, stats.num_preemptions


def install() -> None:
    """Entry point of `vllm.general_plugins`, called in every process; only the engine's ever schedules."""
    if not DIRECTORY:
        return
    from vllm.v1.core.sched.scheduler import Scheduler

    if not hasattr(Scheduler, "_prefillwatch_steplog"):
        Scheduler._prefillwatch_steplog = ScheduleLog(Scheduler)


class ScheduleLog:
    """Wraps the scheduler's three methods between which a step lives."""

    def __init__(self, scheduler: Any) -> None:
        self.log_file: TextIO | None = None
        self.preempted: list[str] = []
        self.open_steps: dict[int, dict[str, Any]] = {}
        self.schedule = scheduler.schedule
        self.update_from_output = scheduler.update_from_output
        self.preempt = scheduler._preempt_request
        scheduler.schedule = self.wrapped_schedule()
        scheduler.update_from_output = self.wrapped_update()
        scheduler._preempt_request = self.wrapped_preempt()

    def wrapped_schedule(self) -> Any:
        def schedule(scheduler: Any, *args: Any, **kwargs: Any) -> Any:
            output = self.schedule(scheduler, *args, **kwargs)
            with contextlib.suppress(Exception):
                self.note_scheduled(output)
            return output

        return schedule

    def wrapped_update(self) -> Any:
        def update_from_output(scheduler: Any, output: Any, *args: Any, **kwargs: Any) -> Any:
            with contextlib.suppress(Exception):
                self.note_done(output)
            return self.update_from_output(scheduler, output, *args, **kwargs)

        return update_from_output

    def wrapped_preempt(self) -> Any:
        def preempt(scheduler: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
            self.preempted.append(request.request_id)
            return self.preempt(scheduler, request, *args, **kwargs)

        return preempt

    def note_scheduled(self, output: Any) -> None:
        if output.total_num_scheduled_tokens:
            preempted, self.preempted = self.preempted, []
            self.open_steps[id(output)] = {
                "scheduled_ns": time.monotonic_ns(),
                "requests": scheduled_requests(output),
                "preempted": preempted,
            }

    def note_done(self, output: Any) -> None:
        step = self.open_steps.pop(id(output), None)
        if step is not None:
            if self.log_file is None:
                self.log_file = open_log("schedule.jsonl")
            write(self.log_file, step | {"done_ns": time.monotonic_ns()})


def scheduled_requests(output: Any) -> list[tuple[str, int, str, int]]:
    tokens = output.num_scheduled_tokens
    guessed = output.scheduled_spec_decode_tokens
    requests = [(new.req_id, tokens[new.req_id], "p", new.num_computed_tokens) for new in output.scheduled_new_reqs]
    cached = output.scheduled_cached_reqs
    for request, computed in zip(cached.req_ids, cached.num_computed_tokens, strict=True):
        if cached.is_context_phase(request):
            kind = "p"
        else:
            # A decoding request gets one token, and those that were guessed; more are its lost tokens made again.
            more = tokens[request] > 1 + len(guessed.get(request, ()))
            kind = "r" if more or request in cached.resumed_req_ids else "d"
        requests.append((request, tokens[request], kind, computed))
    return requests
