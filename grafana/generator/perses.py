"""Boards as Perses': the same panels, queries and words, in what its plugins can show.

Perses draws no dashed threshold lines in charts of lines without a scale of their own, no marks of freezes and no links
with a table's other columns in them; these are Grafana's alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from grafana.generator.board import Board, Chosen, Section, Variable
from grafana.generator.limits import Steps
from grafana.generator.panels import Answer, Column, Density, Lines, Listing, Panel, Query, Ranking, Style

Json = dict[str, Any]

#: The project that the boards are made in; another one is named when they are applied.
PROJECT: Final = "prefillwatch"
_UNITS: Final[Mapping[str, Json]] = {
    "s": {"unit": "seconds", "decimalPlaces": 3},
    "percentunit": {"unit": "percent-decimal"},
    "none": {"unit": "decimal", "shortValues": False},
    "short": {"unit": "decimal", "shortValues": True},
    "bytes": {"unit": "bytes", "shortValues": True},
    "reqps": {"unit": "requests/sec"},
}
_CALCULATIONS: Final = {"max": "max", "min": "min", "mean": "mean", "sum": "sum", "lastNotNull": "last-number"}


def as_json(board: Board) -> str:
    return json.dumps(dashboard_of(board), sort_keys=True, indent=2, ensure_ascii=False) + "\n"


def dashboard_of(board: Board) -> Json:
    panels: Json = {}
    layouts = [_grid(number, section, panels) for number, section in enumerate(board.sections)]
    return {
        "kind": "Dashboard",
        "metadata": {"name": board.uid, "project": PROJECT},
        "spec": {
            "display": {"name": board.title, "description": board.description},
            "duration": board.time,
            "refreshInterval": "10s",
            "variables": [_chosen(each) if isinstance(each, Chosen) else _variable(each) for each in board.variables],
            "panels": panels,
            "layouts": layouts,
        },
    }


def _grid(number: int, section: Section, panels: Json) -> Json:
    """A row of the board, whose panels are put among the others."""
    items: list[Json] = []
    y = 0
    for line in section.lines:
        x = 0
        for width, panel in line.panels:
            name = f"{number}_{len(items)}"
            panels[name] = _panel(panel)
            content = {"$ref": f"#/spec/panels/{name}"}
            items.append({"x": x, "y": y, "width": width, "height": line.height, "content": content})
            x += width
        y += line.height
    display = {"title": section.title, "collapse": {"open": True}}
    return {"kind": "Grid", "spec": {"display": display, "items": items}}


def _variable(variable: Variable) -> Json:
    plugin = {"labelName": variable.name, "matchers": [variable.selector]}
    spec = {
        "name": variable.name,
        "display": {"name": variable.label},
        "allowAllValue": True,
        "allowMultiple": True,
        "customAllValue": ".+",
        "defaultValue": ["$__all"],
        "sort": "alphabetical-asc",
        "plugin": {"kind": "PrometheusLabelValuesVariable", "spec": plugin},
    }
    return {"kind": "ListVariable", "spec": spec}


def _chosen(variable: Chosen) -> Json:
    spec = {
        "name": variable.name,
        "display": {"name": variable.label, "description": variable.text},
        "allowAllValue": False,
        "allowMultiple": False,
        "defaultValue": variable.chosen,
        "plugin": {"kind": "StaticListVariable", "spec": {"values": list(variable.values)}},
    }
    return {"kind": "ListVariable", "spec": spec}


# --- Panels ---


def _panel(panel: Panel) -> Json:
    kind, spec = _plugin(panel)
    text = f"{panel.description}\n\nWithout a series: {panel.empty[:1].lower()}{panel.empty[1:]}."
    return {
        "kind": "Panel",
        "spec": {
            "display": {"name": panel.title, "description": text},
            "plugin": {"kind": kind, "spec": spec},
            "queries": [_query(query) for query in panel.queries],
        },
    }


def _query(query: Query) -> Json:
    spec: Json = {"query": query.expr}
    if query.legend:
        spec["seriesNameFormat"] = query.legend
    if query.instant:
        spec["instant"] = True
    return {"kind": "TimeSeriesQuery", "spec": {"plugin": {"kind": "PrometheusTimeSeriesQuery", "spec": spec}}}


def _plugin(panel: Panel) -> tuple[str, Json]:
    if isinstance(panel, Answer):
        return "StatChart", _answer(panel)
    if isinstance(panel, Lines):
        return "TimeSeriesChart", _lines(panel)
    if isinstance(panel, Ranking):
        return "BarChart", _ranking(panel)
    if isinstance(panel, Density):
        return "HeatMapChart", {"yAxisFormat": _format(panel.unit), "countFormat": _format("short")}
    assert isinstance(panel, Listing)
    return "Table", _listing(panel)


def _answer(panel: Answer) -> Json:
    words = {"0": panel.face.zero, "1": panel.face.one}
    mappings = [
        {"kind": "Value", "spec": {"value": value, "result": {"value": word}}}
        for value, word in words.items()
        if word is not None
    ]
    return {
        "calculation": "last-number",
        "format": _format(panel.unit, panel.face.decimals),
        "thresholds": _thresholds(panel.steps),
        "colorMode": "background_solid" if panel.face.filled else "value",
        "legendMode": "on" if panel.face.named else "off",
        **({"mappings": mappings} if mappings else {}),
    }


def _lines(panel: Lines) -> Json:
    look = panel.look
    axis: Json = {"show": True, "format": _format(panel.unit)}
    if look.low is not None:
        axis["min"] = look.low
    if look.high is not None:
        axis["max"] = look.high
    if look.log:
        axis["logBase"] = 10
    areas = look.stacked or look.bars
    visual: Json = {
        "display": "bar" if look.bars else "line",
        "lineWidth": 1 if areas else 2,
        "areaOpacity": 0.6 if areas else 0,
        "connectNulls": look.joined,
    }
    if look.stacked:
        visual["stack"] = "all"
    spec: Json = {
        "legend": {"position": "bottom", "mode": "list", "values": [_CALCULATIONS[each] for each in look.calcs]},
        "yAxis": axis,
        "visual": visual,
    }
    if look.limit is not None:
        spec["thresholds"] = _thresholds(look.limit)
    settings = [
        {"queryIndex": place, "colorMode": "fixed", "colorValue": style.color, "lineStyle": _stroke(style)}
        for place, query in enumerate(panel.queries)
        if (style := panel.series.get(query.legend)) is not None
    ]
    if settings:
        spec["querySettings"] = settings
    return spec


def _stroke(style: Style) -> str:
    return "dashed" if style.dashed else "solid"


def _ranking(panel: Ranking) -> Json:
    colours = [{"regex": f"^{name}$", "color": style.color} for name, style in panel.series.items()]
    spec: Json = {
        "calculation": "last-number",
        "format": _format(panel.unit),
        "orientation": "horizontal",
        "sort": "desc",
        "mode": "value",
    }
    if colours:
        spec["visual"] = {"colorOverrides": colours}
    return spec


def _listing(panel: Listing) -> Json:
    """Rows of all queries with the same labels are one row; a query's value is in a column by its number."""
    settings: list[Json] = [{"name": "timestamp", "hide": True}]
    settings += [_column(name, column) for name, column in panel.keys.items()]
    for number, column in enumerate(panel.columns, 1):
        settings.append(_column(f"value #{number}", column))
    for each in settings:
        if each.get("header") == panel.sort_by:
            each["sort"] = "desc" if panel.descending else "asc"
    return {
        "density": "compact",
        "enableSorting": True,
        "transforms": [{"kind": "MergeSeries", "spec": {}}],
        "columnSettings": settings,
    }


def _column(name: str, column: Column) -> Json:
    setting: Json = {"name": name, "header": column.name, "enableSorting": True}
    if column.unit != "none" or column.decimals is not None:
        setting["format"] = _format(column.unit, column.decimals)
    if column.width is not None:
        setting["width"] = column.width
    if column.steps is not None:
        setting["cellSettings"] = _cells(column.steps)
    return setting


def _cells(steps: Steps) -> list[Json]:
    """A colour for each stretch between two steps, from 0 on: Perses wants a lower bound beside an upper."""
    edges = [value for value, _ in steps]
    cells = []
    for (low, colour), high in zip(steps, [*edges[1:], None], strict=True):
        if colour.startswith("#"):
            bounds = {"min": low or 0, **({"max": high} if high is not None else {})}
            cells.append({"condition": {"kind": "Range", "spec": bounds}, "backgroundColor": colour})
    return cells


def _format(unit: str, decimals: int | None = None) -> Json:
    return {**_UNITS[unit], **({"decimalPlaces": decimals} if decimals is not None else {})}


def _thresholds(steps: Steps) -> Json:
    """The first step is the colour below all others."""
    found: Json = {"mode": "absolute", "steps": [{"value": value, "color": colour} for value, colour in steps[1:]]}
    if steps[0][1].startswith("#"):
        found["defaultColor"] = steps[0][1]
    return found
