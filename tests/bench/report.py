"""From the rounds to figures: medians over rounds, latency added to the direct path, ratios against nginx.

What a proxy adds is counted from the median of the direct path, at every quantile: the rare delays of the direct path
are the machine's own, and come and go too much to be subtracted.
"""

from __future__ import annotations

import platform
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

REFERENCE = "nginx"
COLUMNS = {
    "part": "part",
    "cpu_us": "CPU µs/token",
    "cpu_us_ratio": f"× {REFERENCE}",
    "p50_us": "p50 µs",
    "added_p50_us": "added p50",
    "added_p50_us_ratio": f"× {REFERENCE}",
    "p999_us": "p99.9 µs",
    "added_p999_us": "added p99.9",
    "added_p999_us_ratio": f"× {REFERENCE}",
    "upstream_late_ms": "upstream late ms",
}
Row = dict[str, Any]


def summarise(runs: list[dict[str, Any]]) -> list[Row]:
    """One row per part of a side, in order of first appearance: medians over the rounds."""
    direct = medians([run for run in runs if run["side"] == "direct"])
    rows: list[Row] = []
    for side in dict.fromkeys(run["side"] for run in runs):
        mine = [run for run in runs if run["side"] == side]
        latency = medians(mine)
        late = statistics.median(run["pace"]["latest_ns"] for run in mine) / 1e6
        for part in list(mine[0]["cpu_ns_per_token"]) or [side]:
            row: Row = {"part": part, "cpu_us": cpu_median(mine, part), "upstream_late_ms": late}
            rows.append(row | added(latency, direct))
    with_ratios(rows)
    return rows


def by_shape(runs: list[dict[str, Any]], shape: str) -> list[Row]:
    """The rows of the runs with this shape; without the direct path, nothing is known of what was added."""
    return [row | {"shape": shape} for row in summarise([run for run in runs if run["shape"] == shape])]


def medians(runs: list[dict[str, Any]]) -> dict[str, float]:
    if not runs:
        return {}
    return {q: statistics.median(run["latency_ns"][q] for run in runs) / 1e3 for q in runs[0]["latency_ns"]}


def cpu_median(runs: list[dict[str, Any]], part: str) -> float | None:
    values = [run["cpu_ns_per_token"][part] / 1e3 for run in runs if part in run["cpu_ns_per_token"]]
    return statistics.median(values) if values else None


def added(latency: dict[str, float], direct: dict[str, float]) -> Row:
    row: Row = {f"{q}_us": latency[q] for q in ("p50", "p99", "p999")}
    for q in ("p50", "p999"):
        row[f"added_{q}_us"] = latency[q] - direct["p50"] if direct else None
    return row


def with_ratios(rows: list[Row]) -> None:
    """Add `<figure>_ratio`, each figure over the reference's, where both are known."""
    reference = next((row for row in rows if row["part"] == REFERENCE), {})
    for row in rows:
        for figure in ("cpu_us", "added_p50_us", "added_p999_us"):
            mine, its = row.get(figure), reference.get(figure)
            row[f"{figure}_ratio"] = mine / its if mine is not None and its else None


def table(rows: list[Row]) -> str:
    return markdown(COLUMNS.values(), ([cell(row[key]) for key in COLUMNS] for row in rows))


def remarks(runs: list[dict[str, Any]]) -> str:
    """What makes our own figures doubtful: an observer that did not keep up costs less than it should."""
    scrapes = [run["scrapes"] for run in runs]
    failed, dropped = sum(each["failed"] for each in scrapes), max(each["dropped"] for each in scrapes)
    slowest = max(each["slowest_seconds"] for each in scrapes)
    if not failed and not dropped:
        return ""
    counts = f"{failed:.0f} scrapes failed, {dropped:.0f} tap packets were dropped"
    return f"\n{counts}; the slowest scrape took {slowest:.2f} s"


def change(runs: list[dict[str, Any]]) -> str:
    """The relay's CPU per token over that of the checkout it is compared with, round by round; nothing without one."""
    ours, theirs = (
        [run["cpu_ns_per_token"][f"{side} relay"] for run in runs if run["side"] == side]
        for side in ("prefillwatch", "before")
    )
    ratios = sorted(mine / its for mine, its in zip(ours, theirs, strict=False))
    if not ratios:
        return ""
    median = statistics.median(ratios)
    return f"\nrelay CPU per token × before: median {median:.3f}, from {ratios[0]:.3f} to {ratios[-1]:.3f}"


def cell(value: float | str | None) -> str:
    if value is None:
        return "–"
    return value if isinstance(value, str) else f"{value:.2f}" if abs(value) < 100 else f"{value:.0f}"


def markdown(head: Iterable[str], rows: Iterable[list[str]]) -> str:
    head = list(head)
    lines = ["| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows]]
    return "\n".join(lines)


def machine() -> dict[str, str | int]:
    """What the figures were taken on: they are worth something only as ratios, and only side by side."""
    info = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":", 1)[1].strip() for line in info if line.startswith("model name")), "unknown")
    cores = sum(line.startswith("processor") for line in info)
    return {"cpu": model, "cores": cores, "kernel": platform.release(), "python": platform.python_version()}
