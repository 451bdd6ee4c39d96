"""Upstream's page of metrics as evidence."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from prefillwatch.analysis.verdicts import EnginePage
from prefillwatch.engine.kinds import EngineSample, PageSample
from prefillwatch.units import NS

T = TypeVar("T", int, float)


def engine_page(page: PageSample, at_ns: int, wall_offset: float) -> EnginePage:
    """What a page says, as evidence. Requests of all engines together; of caches the fullest counts."""
    started = page.start_time
    return EnginePage(
        at_ns,
        running=_sum(page, lambda engine: engine.running),
        waiting=_sum(page, lambda engine: engine.waiting),
        kv_usage=max((each.kv_usage for each in page.engines if each.kv_usage is not None), default=None),
        preemptions=_sum(page, lambda engine: engine.preemptions_total),
        started_ns=round((started - wall_offset) * NS) if started is not None else None,
        prompt_tokens=_sum(page, lambda engine: engine.prompt_tokens_total),
        reads_on=page.reads_on,
        engines=len(page.engines),
    )


def _sum(page: PageSample, of: Callable[[EngineSample], T | None]) -> T | None:
    """None unless every engine says it: half a sum would be evidence of something that is not."""
    values = [of(engine) for engine in page.engines]
    known = [value for value in values if value is not None]
    return sum(known[1:], start=known[0]) if known and len(known) == len(values) else None
