"""The state of a watched server, and what happened to it, in one line each. Pure: documents in, text out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from prometheus_client.parser import text_string_to_metric_families

from prefillwatch.contract.buckets import POPULATIONS
from prefillwatch.report import ABSENT, counted, duration, share

if TYPE_CHECKING:
    from collections.abc import Iterable

WINDOW: Final = "10s"


@dataclass(frozen=True, slots=True)
class Status:
    """Figures of the last ten seconds. Times are seconds; what is unknown is absent or None."""

    #: By population.
    gap_p99: dict[str, float]
    #: By prompt bucket.
    first_token_p99: dict[str, float]
    decoding: int
    prefilling: int
    kv_usage: float | None


def read_status(page: str) -> Status:
    """From prefillwatch's own `/metrics`. Several models count together, the worst one for times."""
    samples = [sample for family in text_string_to_metric_families(page) for sample in family.samples]
    prefix = "prefillwatch_"

    def worst(name: str, label: str) -> dict[str, float]:
        values: dict[str, float] = {}
        for sample in samples:
            if sample.name == prefix + name and sample.labels.get("window") == WINDOW and not math.isnan(sample.value):
                key = sample.labels[label]
                values[key] = max(sample.value, values.get(key, 0.0))
        return values

    def values_of(name: str) -> list[float]:
        return [sample.value for sample in samples if sample.name == prefix + name]

    return Status(
        gap_p99=worst("inter_token_latency_p99_seconds", "population"),
        first_token_p99=worst("time_to_first_token_p99_seconds", "prompt_bucket"),
        decoding=round(sum(values_of("decoding_streams"))),
        prefilling=round(sum(values_of("prefilling_requests"))),
        kv_usage=max(values_of("kv_cache_usage_ratio"), default=None),
    )


HEADING: Final = """\
       p99 gap between tokens, 10 s     streams now
 time      all  prefill    clear   decoding in prefill      KV  p99 first token, by prompt tokens"""


def status_line(status: Status) -> str:
    """A row under `HEADING`, without its time."""
    gaps = " ".join(f"{duration(status.gap_p99.get(name)):>8}" for name in POPULATIONS)
    kv = share(status.kv_usage)
    return f"{gaps} {status.decoding:10} {status.prefilling:10} {kv:>7}  {_first_tokens(status.first_token_p99)}"


def newly_over(incidents: Iterable[dict[str, Any]], told: set[str]) -> list[dict[str, Any]]:
    """Incidents of `/api/incidents` that have ended and were not told before, the oldest first; ``told`` notes them."""
    found = [each for each in incidents if not each["ongoing"] and each["id"] not in told]
    told.update(each["id"] for each in found)
    return sorted(found, key=lambda each: float(each["started_at"]))


def incident_line(incident: dict[str, Any]) -> str:
    """An incident of `/api/incidents` that is over: how many suffered, for how long, and of what."""
    victims, worst, cause = incident["victims"], duration(incident["worst_gap_seconds"]), incident["cause"]
    if incident["kind"] == "freeze":
        # Over a long freeze streams come and go, so that there can be more victims than streams at any moment.
        of = counted(max(victims, incident["decoding"]), "stream")
        words = f"{victims} of {of} froze for up to {worst}; cause: {cause}"
    else:
        words = f"{counted(victims, 'request')} waited up to {worst} for a first token; cause: {cause}"
    prompts, tokens = incident["culprit_count"], incident["culprit_tokens"]
    if not prompts:
        return words.replace("_", " ")
    return words.replace("_", " ") + (
        f" of a prompt with {tokens:,} tokens" if prompts == 1 else f" of {prompts} prompts with {tokens:,} tokens"
    )


def _first_tokens(by_bucket: dict[str, float]) -> str:
    ordered = sorted(by_bucket.items(), key=lambda item: _lower_edge(item[0]))
    return "  ".join(f"{bucket} {duration(value)}" for bucket, value in ordered) or ABSENT


def _lower_edge(bucket: str) -> int:
    """0 for `0-512`, 2048 for `2k-8k`: buckets in the order of their sizes."""
    text = bucket.split("-")[0].rstrip("+")
    digits = text.rstrip("k")
    return int(digits) * (1024 if text.endswith("k") else 1) if digits.isdigit() else 0


def clock(seconds: float) -> str:
    """Minutes and seconds since the start: 75 gives `1:15`."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"
