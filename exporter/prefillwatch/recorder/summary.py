"""What a recording shows, in words for a terminal. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Final

from prefillwatch.contract.buckets import POPULATIONS
from prefillwatch.export import table
from prefillwatch.export.registry import Snapshot
from prefillwatch.export.spec import Spec
from prefillwatch.recorder.file import Header
from prefillwatch.recorder.totals import GapTotals
from prefillwatch.report import counted, duration, text_table

#: So many incidents are listed, the newest.
_MOST: Final = 20
_MOST_CULPRITS: Final = 3


@dataclass(frozen=True, slots=True)
class Played:
    """How playing went. Times in seconds, sizes in bytes."""

    name: str
    header: Header
    size: int
    seconds: float
    took: float
    cut_at: int | None = None
    stopped: bool = False


def summary(played: Played, snapshot: Snapshot, gaps: GapTotals, incidents: list[dict[str, Any]]) -> list[str]:
    return [*_recording(played), *_requests(snapshot), *_gaps(gaps), *_incidents(incidents)]


def _recording(played: Played) -> Iterator[str]:
    header = played.header
    kind = "flight" if header.flight else "recording"
    texts = ", with texts" if header.texts else ""
    begun = _moment(header.started_at - (played.seconds if header.flight else 0.0))
    yield f"{kind:<10}  {played.name}: {duration(played.seconds)} from {begun}, {_size(played.size)}{texts}"
    speed = f", {played.seconds / played.took:.0f} times as fast" if played.took < played.seconds / 2 else ""
    yield f"{'played':<10}  in {duration(played.took)}{speed}"
    if played.stopped:
        yield f"{'stopped':<10}  here; the rest was not played"
    if played.cut_at is not None:
        yield f"{'cut':<10}  the file breaks off after byte {played.cut_at}; what comes before was played"


def _requests(snapshot: Snapshot) -> Iterator[str]:
    outcomes: dict[str, int] = {}
    for (_, _, outcome), count in _values(snapshot, table.REQUESTS).items():
        outcomes[outcome] = outcomes.get(outcome, 0) + round(count)
    ended = ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(outcomes.items(), key=lambda item: -item[1]))
    generated = sum(_values(snapshot, table.GENERATED_TOKENS).values())
    prompts = sum(_values(snapshot, table.PROMPT_TOKENS).values())
    yield f"{'requests':<10}  {ended or 'none ended'}"
    yield f"{'tokens':<10}  {generated:,.0f} generated, {prompts:,.0f} of prompts"


def _gaps(gaps: GapTotals) -> list[str]:
    rows = [
        (
            population,
            duration(gaps.quantile(population, 0.5)),
            duration(gaps.quantile(population, 0.99)),
            duration(gaps.longest(population)),
            f"{gaps.count(population):,}",
        )
        for population in POPULATIONS
        if gaps.count(population)
    ]
    head, *others = text_table(("", "p50", "p99", "max", "gaps"), rows)
    return [f"{'gaps':<10}  {head}", *(f"{'':<10}  {line}" for line in others)]


def _incidents(incidents: list[dict[str, Any]]) -> Iterator[str]:
    yield f"{'incidents':<10}  {len(incidents) or 'none'}" + (f", the last {_MOST}:" if len(incidents) > _MOST else "")
    for incident in reversed(incidents[:_MOST]):
        when = datetime.fromtimestamp(incident["started_at"], timezone.utc).strftime("%H:%M:%S")
        lasted = duration(incident["duration_seconds"]) + (" so far" if incident["ongoing"] else "")
        victims = counted(incident["victims"], "stream" if incident["kind"] == "freeze" else "request")
        yield f"  {when}  {incident['kind']} by {incident['cause']}: {lasted}, {victims}"
        yield from _culprits(incident)


def _culprits(incident: dict[str, Any]) -> Iterator[str]:
    for culprit in incident["culprits"][:_MOST_CULPRITS]:
        about = "" if culprit["prompt_tokens_source"] == "usage" else "about "
        name = culprit["request_id"] or "a request without an id"
        yield f"            {culprit['share']:>4.0%}  {name}, a prompt of {about}{culprit['prompt_tokens']:,} tokens"
    more = incident["culprit_count"] - _MOST_CULPRITS
    if more > 0:
        yield f"                  and {more} more, {incident['culprit_tokens']:,} tokens in all"


def _values(snapshot: Snapshot, spec: Spec) -> dict[tuple[str, ...], float]:
    return next((family.values for family in snapshot if family.spec is spec), {})


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")


def _size(size: int) -> str:
    return f"{size / 2**20:.1f} MiB" if size >= 2**20 else f"{size / 2**10:.1f} KiB"
