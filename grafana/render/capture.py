"""What every panel of a dashboard would get from Prometheus, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from grafana.render.model import Frame, defaults, panels, substituted
from grafana.render.stage import Prometheus


def capture(prometheus: Prometheus, dashboard: Mapping[str, Any], frame: Frame, **chosen: str) -> dict[str, Any]:
    """Results by panel id and refId, and by annotation name; ``chosen`` overrides variables."""
    variables = {**defaults(dashboard), **chosen}
    results = {
        str(panel["id"]): {target["refId"]: ask(prometheus, target, variables, frame) for target in panel["targets"]}
        for panel in panels(dashboard)
    }
    marks = {
        annotation["name"]: ask(prometheus, annotation["target"], variables, frame)
        for annotation in dashboard["annotations"]["list"]
        if "target" in annotation
    }
    shown = {"start": frame.start, "end": frame.end, "step": frame.step}
    return {"dashboard": dashboard, "frame": shown, "variables": variables, "results": results, "annotations": marks}


def ask(
    prometheus: Prometheus, target: Mapping[str, Any], variables: Mapping[str, str], frame: Frame
) -> list[dict[str, Any]]:
    expr = substituted(target["expr"], variables, frame)
    if target.get("instant"):
        return prometheus.query(expr, frame.end)
    return prometheus.query_range(expr, frame.start, frame.end, frame.step)
