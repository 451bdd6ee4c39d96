"""The house style: one function per kind of panel, each with what Grafana needs and nothing that it fills in itself."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any

from grafana.generator.limits import Steps, only
from grafana.generator.palette import ALL
from grafana_foundation_sdk.builders import bargauge, common, dashboard, heatmap, prometheus, stat, table, timeseries
from grafana_foundation_sdk.models import common as cm
from grafana_foundation_sdk.models import dashboard as dm
from grafana_foundation_sdk.models import heatmap as hm
from grafana_foundation_sdk.models import prometheus as pm

PanelBuilder = timeseries.Panel | stat.Panel | bargauge.Panel | heatmap.Panel | table.Panel
DATASOURCE = cm.DataSourceRef(type_val="prometheus", uid="${datasource}")
NEUTRAL = only(ALL)
JOINED_MS = 300_000


@dataclass(frozen=True, slots=True)
class Query:
    expr: str
    legend: str = ""
    instant: bool = False
    format: pm.PromQueryFormat = pm.PromQueryFormat.TIME_SERIES

    def build(self, ref: str) -> prometheus.Dataquery:
        query = prometheus.Dataquery().datasource(DATASOURCE).expr(self.expr).ref_id(ref).format(self.format)
        query.legend_format(self.legend or "__auto")
        return query.instant() if self.instant else query.range()


def over_time(expr: str, legend: str) -> Query:
    return Query(expr, legend)


def now(expr: str, legend: str) -> Query:
    """Asked for this moment only: the last value of a range would go on showing a silence that has ended."""
    return Query(expr, legend, instant=True)


def rows(expr: str) -> Query:
    return Query(expr, instant=True, format=pm.PromQueryFormat.TABLE)


@dataclass(frozen=True, slots=True)
class Style:
    """How one series looks. ``name`` replaces the label value in legends."""

    color: str
    name: str = ""
    dashed: bool = False

    def properties(self) -> list[dm.DynamicConfigValue]:
        found: list[tuple[str, Any]] = [("color", {"mode": "fixed", "fixedColor": self.color})]
        if self.name:
            found.append(("displayName", self.name))
        if self.dashed:
            found.append(("custom.lineStyle", {"fill": "dash", "dash": [6, 6]}))
        return _properties(found)


def styles(colors: Mapping[str, str], names: Mapping[str, str] | None = None, suffix: str = "") -> dict[str, Style]:
    """A style for every label value; ``suffix`` is what follows the value in the legend format."""
    names = names or {}
    return {f"{value}{suffix}": Style(color, names.get(value, "")) for value, color in colors.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """How lines over time are drawn, on a scale from ``low`` to ``high``.

    ``limit`` draws its steps as dashed lines. ``joined`` is for quantiles of what happens now and then: points less
    than JOINED_MS apart are one line. ``calcs`` are the figures beside the names in the legend.
    """

    log: bool = False
    low: float | None = None
    high: float | None = None
    limit: Steps | None = None
    stacked: bool = False
    bars: bool = False
    joined: bool = False
    calcs: tuple[str, ...] = ("max",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Face:
    """How a figure in large letters is shown. ``zero`` and ``one`` are said instead of 0 and 1; ``named`` shows the
    names of its series; ``filled`` colours the panel instead of the letters."""

    zero: str | None = None
    one: str | None = None
    decimals: int | None = None
    named: bool = False
    filled: bool = True


FROM_ZERO = Look(low=0)
PLAIN = Face()


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: the name it gets, its unit, and whether its cells take the colours of thresholds."""

    name: str
    unit: str = "none"
    steps: Steps | None = None
    decimals: int | None = None
    gauge_max: float | None = None
    width: int | None = None
    links: tuple[Mapping[str, Any], ...] = ()

    def properties(self) -> list[dm.DynamicConfigValue]:
        found: list[tuple[str, Any]] = [("unit", self.unit)]
        if self.decimals is not None:
            found.append(("decimals", self.decimals))
        if self.width is not None:
            found.append(("custom.width", self.width))
        if self.links:
            found.append(("links", [dict(link) for link in self.links]))
        if self.gauge_max is not None:
            found += [("min", 0), ("max", self.gauge_max)]
            found.append(("custom.cellOptions", {"type": "gauge", "mode": "basic", "valueDisplayMode": "text"}))
        elif self.steps is not None:
            found.append(("custom.cellOptions", {"type": "color-background", "mode": "basic"}))
        if self.steps is not None:
            steps = [{"value": value, "color": color} for value, color in self.steps]
            found.append(("thresholds", {"mode": "absolute", "steps": steps}))
        return _properties(found)


def answer(
    title: str,
    text: str,
    *queries: Query,
    unit: str,
    steps: Steps,
    empty: str,
    face: Face = PLAIN,
    series: Mapping[str, Style] | None = None,
) -> stat.Panel:
    """One figure in large letters; ``empty`` is said without a series."""
    panel = stat.Panel()
    _fill(panel, title, text, queries, unit, empty)
    panel.thresholds(_thresholds(steps)).color_scheme(_by_threshold()).min(0)
    panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).values(False))
    panel.graph_mode(cm.BigValueGraphMode.NONE).justify_mode(cm.BigValueJustifyMode.AUTO)
    panel.color_mode(cm.BigValueColorMode.BACKGROUND if face.filled else cm.BigValueColorMode.VALUE)
    panel.text_mode(cm.BigValueTextMode.VALUE_AND_NAME if face.named else cm.BigValueTextMode.VALUE)
    panel.orientation(cm.VizOrientation.AUTO)
    panel.mappings(_words_for(empty, {"0": face.zero, "1": face.one}))
    if face.decimals is not None:
        panel.decimals(face.decimals)
    _style(panel, series)
    return panel


def lines(
    title: str,
    text: str,
    *queries: Query,
    unit: str,
    empty: str,
    look: Look = FROM_ZERO,
    series: Mapping[str, Style] | None = None,
    link: Mapping[str, str] | None = None,
) -> timeseries.Panel:
    """Lines, stacked areas or bars over time. ``link`` is followed from any point."""
    areas = look.stacked or look.bars
    panel = timeseries.Panel()
    _fill(panel, title, text, queries, unit, empty)
    panel.thresholds(_thresholds(look.limit or NEUTRAL))
    panel.thresholds_style(common.GraphThresholdsStyleConfig().mode(_threshold_mode(look.limit)))
    panel.color_scheme(dashboard.FieldColor().mode(dm.FieldColorModeId.PALETTE_CLASSIC))
    panel.draw_style(cm.GraphDrawStyle.BARS if look.bars else cm.GraphDrawStyle.LINE)
    panel.line_interpolation(cm.LineInterpolation.LINEAR).line_width(1 if areas else 2)
    panel.fill_opacity(60 if areas else 0).point_size(4).show_points(cm.VisibilityMode.AUTO)
    panel.span_nulls(JOINED_MS if look.joined else False).axis_placement(cm.AxisPlacement.AUTO)
    mode = cm.StackingMode.NORMAL if look.stacked else cm.StackingMode.NONE
    panel.stacking(common.StackingConfig().mode(mode).group("A"))
    scale = common.ScaleDistributionConfig()
    panel.scale_distribution(
        scale.type(cm.ScaleDistribution.LOG).log(10) if look.log else scale.type(cm.ScaleDistribution.LINEAR)
    )
    if look.low is not None:
        panel.min(look.low)
    if look.high is not None:
        panel.max(look.high)
    if link is not None:
        panel.data_links([dashboard.DashboardLink(link["title"]).url(link["url"])])
    panel.legend(_legend(look.calcs))
    panel.tooltip(common.VizTooltipOptions().mode(cm.TooltipDisplayMode.MULTI).sort(cm.SortOrder.DESCENDING))
    _style(panel, series)
    return panel


def ranking(
    title: str, text: str, query: Query, unit: str, empty: str, steps: Steps, series: Mapping[str, Style] | None = None
) -> bargauge.Panel:
    """Horizontal bars in the order of the query, which sorts them."""
    panel = bargauge.Panel()
    _fill(panel, title, text, (query,), unit, empty)
    panel.thresholds(_thresholds(steps)).color_scheme(_by_threshold()).min(0)
    panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).values(False))
    panel.orientation(cm.VizOrientation.HORIZONTAL).display_mode(cm.BarGaugeDisplayMode.BASIC)
    panel.value_mode(cm.BarGaugeValueMode.TEXT).name_placement(cm.BarGaugeNamePlacement.LEFT).show_unfilled(True)
    panel.sizing(cm.BarGaugeSizing.AUTO)
    _style(panel, series)
    return panel


def density(title: str, text: str, expr: str, unit: str, empty: str) -> heatmap.Panel:
    """A heatmap of a classic histogram: darker where more samples fell. ``expr`` keeps only ``le``."""
    panel = heatmap.Panel()
    _fill(panel, title, text, (Query(expr, "{{le}}", format=pm.PromQueryFormat.HEATMAP),), unit, empty)
    panel.calculate(False).cell_gap(1).show_legend()
    panel.y_axis(heatmap.YAxisConfig().unit(unit).axis_placement(cm.AxisPlacement.LEFT))
    panel.cell_values(heatmap.CellValues().unit("short").decimals(0))
    panel.color(
        heatmap.HeatmapColorOptions()
        .mode(hm.HeatmapColorMode.SCHEME)
        .scheme("Oranges")
        .scale(hm.HeatmapColorScale.EXPONENTIAL)
        .exponent(0.4)
        .steps(64)
        .fill("dark-orange")
        .reverse(False)
    )
    panel.filter_values(heatmap.FilterValueRange().le(1e-9))
    panel.rows_frame(heatmap.RowsHeatmapOptions().layout(cm.HeatmapCellLayout.AUTO))
    panel.tooltip(heatmap.HeatmapTooltip().mode(cm.TooltipDisplayMode.SINGLE).y_histogram(True))
    return panel


def listing(
    title: str,
    text: str,
    queries: Sequence[tuple[Column, str]],
    empty: str,
    keys: Mapping[str, Column],
    sort_by: str,
    descending: bool = True,
) -> table.Panel:
    """A table with one row for each combination of ``keys``, the labels that all queries keep."""
    panel = table.Panel()
    _fill(panel, title, text, [rows(expr) for _, expr in queries], "none", empty)
    panel.thresholds(_thresholds(NEUTRAL)).cell_height(cm.TableCellHeight.SM).show_header(True).min_width(50)
    values = {f"Value #{ref}": column for ref, (column, _) in zip(ascii_uppercase, queries, strict=False)}
    columns = {**keys, **values}
    order = {"excludeByName": {"Time": True}, "indexByName": {name: i for i, name in enumerate(columns)}}
    renamed = {name: column.name for name, column in columns.items()}
    panel.with_transformation(dm.DataTransformerConfig(id_val="merge", options={}))
    panel.with_transformation(dm.DataTransformerConfig(id_val="organize", options={**order, "renameByName": renamed}))
    panel.with_transformation(
        dm.DataTransformerConfig(id_val="sortBy", options={"sort": [{"field": sort_by, "desc": descending}]})
    )
    for column in columns.values():
        panel.with_override(dm.MatcherConfig(id_val="byName", options=column.name), column.properties())
    return panel


def _fill(panel: PanelBuilder, title: str, text: str, queries: Sequence[Query], unit: str, empty: str) -> None:
    panel.title(title).description(_described(text, queries)).datasource(DATASOURCE).unit(unit).no_value(empty)
    for ref, query in zip(ascii_uppercase, queries, strict=False):
        panel.with_target(query.build(ref))


def _described(text: str, queries: Sequence[Query]) -> str:
    """The text, and the metrics it is about, so that one finds them in the exporter's documentation."""
    names = sorted({name for query in queries for name in re.findall(r"\bprefillwatch_\w+", query.expr)})
    return f"{text}\n\nFrom: {', '.join(f'`{name}`' for name in names)}"


def _style(panel: PanelBuilder, series: Mapping[str, Style] | None) -> None:
    for name, style in (series or {}).items():
        panel.with_override(dm.MatcherConfig(id_val="byName", options=name), style.properties())


def _properties(found: Sequence[tuple[str, Any]]) -> list[dm.DynamicConfigValue]:
    return [dm.DynamicConfigValue(id_val=name, value=value) for name, value in found]


def _thresholds(steps: Steps) -> dashboard.ThresholdsConfig:
    config = dashboard.ThresholdsConfig().mode(dm.ThresholdsMode.ABSOLUTE)
    return config.steps([dm.Threshold(value=value, color=color) for value, color in steps])


def _by_threshold() -> dashboard.FieldColor:
    return dashboard.FieldColor().mode(dm.FieldColorModeId.THRESHOLDS)


def _threshold_mode(limit: Steps | None) -> cm.GraphThresholdsStyleMode:
    return cm.GraphThresholdsStyleMode.OFF if limit is None else cm.GraphThresholdsStyleMode.DASHED


def _words_for(empty: str, words: Mapping[str, str | None]) -> list[dm.ValueMapping]:
    nothing = dm.DashboardSpecialValueMapOptions(
        match=dm.SpecialValueMatch.NULL_AND_NAN, result=dm.ValueMappingResult(text=empty, color=ALL, index=0)
    )
    found: list[dm.ValueMapping] = [dm.SpecialValueMap(options=nothing)]
    said = {value: word for value, word in words.items() if word is not None}
    if said:
        results = {value: dm.ValueMappingResult(text=word, index=i) for i, (value, word) in enumerate(said.items(), 1)}
        found.append(dm.ValueMap(options=results))
    return found


def _legend(calcs: Sequence[str]) -> common.VizLegendOptions:
    """A list, not a table: beside the names there is room for two figures, and the plot keeps its height."""
    legend = common.VizLegendOptions().show_legend(True).placement(cm.LegendPlacement.BOTTOM)
    return legend.display_mode(cm.LegendDisplayMode.LIST).calcs(list(calcs))
