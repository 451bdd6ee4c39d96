"""A dashboard's JSON as the checks and the renderer read it: its panels, and queries with variables substituted."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent.parent / "dashboards"


def load_all() -> dict[str, dict[str, Any]]:
    """Every committed dashboard by uid."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json"))}


def panels(dashboard: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """All panels, those inside collapsed rows too; not the rows themselves."""
    for panel in dashboard["panels"]:
        if panel["type"] != "row":
            yield panel
        yield from (inner for inner in panel.get("panels", ()) if inner["type"] != "row")


@dataclass(frozen=True, slots=True)
class Frame:
    """The time shown and how finely, as Grafana would settle it. Seconds."""

    start: float
    end: float
    step: int
    scrape: int

    @property
    def range_seconds(self) -> int:
        return max(1, round(self.end - self.start))

    @property
    def rate_interval(self) -> int:
        """Grafana's $__rate_interval: four scrapes, or a step and a scrape where that is more."""
        return max(4 * self.scrape, self.step + self.scrape)


def substituted(text: str, variables: Mapping[str, str], frame: Frame) -> str:
    """``text`` with variables replaced, ours and Grafana's own; raises KeyError for one that is not known."""
    known = {
        "__rate_interval": f"{frame.rate_interval}s",
        "__range": f"{frame.range_seconds}s",
        "__interval": f"{frame.step}s",
        **variables,
    }
    return re.sub(r"\$\{?(\w+)\}?", lambda found: known[found.group(1)], text)


def defaults(dashboard: Mapping[str, Any]) -> dict[str, str]:
    """What the variables stand for when a dashboard is opened: everything, or the choice that is set."""
    values = {}
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            values[variable["name"]] = variable["allValue"]
        elif variable["type"] == "custom":
            values[variable["name"]] = variable["current"]["value"]
    return values
