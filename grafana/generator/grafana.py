"""Panels and boards as Grafana's, with what Grafana needs and nothing that it fills in itself."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from string import ascii_uppercase
from typing import Any, Final

from grafana.generator.board import ALERTS, TAG, WIDTH, Board, Chosen, Variable
from grafana.generator.limits import Steps
from grafana.generator.palette import ALL, BAD
from grafana.generator.panels import (
    NEUTRAL,
    Answer,
    Column,
    Density,
    Form,
    Lines,
    Listing,
    Panel,
    Query,
    Ranking,
    Style,
)
from grafana_foundation_sdk.builders import bargauge, common, dashboard, heatmap, prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as cm
from grafana_foundation_sdk.models import dashboard as dm
from grafana_foundation_sdk.models import heatmap as hm
from grafana_foundation_sdk.models import prometheus as pm

from prefillwatch.export import table as specs

PanelBuilder = timeseries.Panel | stat.Panel | bargauge.Panel | heatmap.Panel | table.Panel
DATASOURCE: Final = cm.DataSourceRef(type_val="prometheus", uid="${datasource}")
#: Points of what happens now and then that are one line: milliseconds.
JOINED_MS: Final = 300_000


def as_json(board: Board) -> str:
    built = dashboard_of(board).build()
    return json.dumps(built, cls=JSONEncoder, sort_keys=True, indent=2, ensure_ascii=False) + "\n"


# --- Panels ---


def panel_of(panel: Panel) -> PanelBuilder:
    if isinstance(panel, Answer):
        return _answer(panel)
    if isinstance(panel, Lines):
        return _lines(panel)
    if isinstance(panel, Ranking):
        return _ranking(panel)
    if isinstance(panel, Density):
        return _density(panel)
    assert isinstance(panel, Listing)
    return _listing(panel)


def _answer(given: Answer) -> stat.Panel:
    panel = stat.Panel()
    _fill(panel, given)
    panel.thresholds(_thresholds(given.steps)).color_scheme(_by_threshold()).min(0)
    panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).values(False))
    panel.graph_mode(cm.BigValueGraphMode.NONE).justify_mode(cm.BigValueJustifyMode.AUTO)
    panel.color_mode(cm.BigValueColorMode.BACKGROUND if given.face.filled else cm.BigValueColorMode.VALUE)
    panel.text_mode(cm.BigValueTextMode.VALUE_AND_NAME if given.face.named else cm.BigValueTextMode.VALUE)
    panel.orientation(cm.VizOrientation.AUTO)
    panel.mappings(_words_for(given.empty, {"0": given.face.zero, "1": given.face.one}))
    if given.face.decimals is not None:
        panel.decimals(given.face.decimals)
    _style(panel, given.series)
    return panel


def _lines(given: Lines) -> timeseries.Panel:
    areas = given.look.stacked or given.look.bars
    panel = timeseries.Panel()
    _fill(panel, given)
    panel.thresholds(_thresholds(given.look.limit or NEUTRAL))
    panel.thresholds_style(common.GraphThresholdsStyleConfig().mode(_threshold_mode(given.look.limit)))
    panel.color_scheme(dashboard.FieldColor().mode(dm.FieldColorModeId.PALETTE_CLASSIC))
    panel.draw_style(cm.GraphDrawStyle.BARS if given.look.bars else cm.GraphDrawStyle.LINE)
    panel.line_interpolation(cm.LineInterpolation.LINEAR).line_width(1 if areas else 2)
    panel.fill_opacity(60 if areas else 0).point_size(4).show_points(cm.VisibilityMode.AUTO)
    panel.span_nulls(JOINED_MS if given.look.joined else False).axis_placement(cm.AxisPlacement.AUTO)
    mode = cm.StackingMode.NORMAL if given.look.stacked else cm.StackingMode.NONE
    panel.stacking(common.StackingConfig().mode(mode).group("A"))
    scale = common.ScaleDistributionConfig()
    panel.scale_distribution(
        scale.type(cm.ScaleDistribution.LOG).log(10) if given.look.log else scale.type(cm.ScaleDistribution.LINEAR)
    )
    if given.look.low is not None:
        panel.min(given.look.low)
    if given.look.high is not None:
        panel.max(given.look.high)
    if given.link is not None:
        panel.data_links([dashboard.DashboardLink(given.link["title"]).url(given.link["url"])])
    panel.legend(_legend(given.look.calcs))
    panel.tooltip(common.VizTooltipOptions().mode(cm.TooltipDisplayMode.MULTI).sort(cm.SortOrder.DESCENDING))
    _style(panel, given.series)
    return panel


def _ranking(given: Ranking) -> bargauge.Panel:
    panel = bargauge.Panel()
    _fill(panel, given)
    panel.thresholds(_thresholds(given.steps)).color_scheme(_by_threshold()).min(0)
    panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).values(False))
    panel.orientation(cm.VizOrientation.HORIZONTAL).display_mode(cm.BarGaugeDisplayMode.BASIC)
    panel.value_mode(cm.BarGaugeValueMode.TEXT).name_placement(cm.BarGaugeNamePlacement.LEFT).show_unfilled(True)
    panel.sizing(cm.BarGaugeSizing.AUTO)
    _style(panel, given.series)
    return panel


def _density(given: Density) -> heatmap.Panel:
    panel = heatmap.Panel()
    _fill(panel, given)
    panel.calculate(False).cell_gap(1).show_legend()
    panel.y_axis(heatmap.YAxisConfig().unit(given.unit).axis_placement(cm.AxisPlacement.LEFT))
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


def _listing(given: Listing) -> table.Panel:
    panel = table.Panel()
    _fill(panel, given)
    panel.thresholds(_thresholds(NEUTRAL)).cell_height(cm.TableCellHeight.SM).show_header(True).min_width(50)
    values = {f"Value #{ref}": column for ref, column in zip(ascii_uppercase, given.columns, strict=False)}
    columns = {**given.keys, **values}
    order = {"excludeByName": {"Time": True}, "indexByName": {name: i for i, name in enumerate(columns)}}
    renamed = {name: column.name for name, column in columns.items()}
    panel.with_transformation(dm.DataTransformerConfig(id_val="merge", options={}))
    panel.with_transformation(dm.DataTransformerConfig(id_val="organize", options={**order, "renameByName": renamed}))
    panel.with_transformation(
        dm.DataTransformerConfig(
            id_val="sortBy", options={"sort": [{"field": given.sort_by, "desc": given.descending}]}
        )
    )
    for column in columns.values():
        panel.with_override(dm.MatcherConfig(id_val="byName", options=column.name), _of_column(column))
    return panel


def _query(query: Query, ref: str) -> prometheus.Dataquery:
    built = prometheus.Dataquery().datasource(DATASOURCE).expr(query.expr).ref_id(ref).format(_FORMATS[query.form])
    built.legend_format(query.legend or "__auto")
    if not query.instant and any(name in query.expr for name in _WITH_EXEMPLARS):
        built.exemplar(True)
    return built.instant() if query.instant else built.range()


#: Whose slow values come with a trace; in a table or a figure of now there is no place for them.
_WITH_EXEMPLARS: Final = tuple(
    f"{spec.full_name}_bucket" for spec in (specs.INTER_TOKEN_LATENCY, specs.TIME_TO_FIRST_TOKEN)
)
_FORMATS: Final = {form: pm.PromQueryFormat(form.value) for form in Form}


def _fill(panel: PanelBuilder, given: Panel) -> None:
    panel.title(given.title).description(given.description).datasource(DATASOURCE).unit(given.unit)
    panel.no_value(given.empty)
    for ref, query in zip(ascii_uppercase, given.queries, strict=False):
        panel.with_target(_query(query, ref))


def _style(panel: PanelBuilder, series: Mapping[str, Style]) -> None:
    for name, style in series.items():
        found: list[tuple[str, Any]] = [("color", {"mode": "fixed", "fixedColor": style.color})]
        if style.name:
            found.append(("displayName", style.name))
        if style.dashed:
            found.append(("custom.lineStyle", {"fill": "dash", "dash": [6, 6]}))
        panel.with_override(dm.MatcherConfig(id_val="byName", options=name), _properties(found))


def _of_column(column: Column) -> list[dm.DynamicConfigValue]:
    found: list[tuple[str, Any]] = [("unit", column.unit)]
    if column.decimals is not None:
        found.append(("decimals", column.decimals))
    if column.width is not None:
        found.append(("custom.width", column.width))
    if column.links:
        found.append(("links", [dict(link) for link in column.links]))
    if column.gauge_max is not None:
        found += [("min", 0), ("max", column.gauge_max)]
        found.append(("custom.cellOptions", {"type": "gauge", "mode": "basic", "valueDisplayMode": "text"}))
    elif column.steps is not None:
        found.append(("custom.cellOptions", {"type": "color-background", "mode": "basic"}))
    if column.steps is not None:
        steps = [{"value": value, "color": color} for value, color in column.steps]
        found.append(("thresholds", {"mode": "absolute", "steps": steps}))
    return _properties(found)


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


# --- Boards ---


def dashboard_of(board: Board) -> dashboard.Dashboard:
    built = dashboard.Dashboard(board.title).uid(board.uid).description(board.description).tags([TAG]).readonly()
    built.time(f"now-{board.time}", "now").refresh("10s").tooltip(dm.DashboardCursorSync.CROSSHAIR).timezone("browser")
    built.link(
        dashboard.DashboardLink("prefillwatch")
        .type(dm.DashboardLinkType.DASHBOARDS)
        .tags([TAG])
        .as_dropdown(True)
        .include_vars(True)
        .keep_time(True)
    )
    built.with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
    for variable in board.variables:
        built.with_variable(_chosen_variable(variable) if isinstance(variable, Chosen) else _query_variable(variable))
    marked = _place(built, board)
    for annotation in (_builtin(), _alerts(), _freezes(board.freezes, marked)):
        built.annotation(annotation)
    return built


def _place(built: dashboard.Dashboard, board: Board) -> list[int]:
    """Puts the panels where they belong; gives the ids of those in marked lines."""
    number, y = 1, 0
    marked = []
    for section in board.sections:
        place = dm.GridPos(h=1, w=WIDTH, x=0, y=y)
        built.with_row(dashboard.Row(section.title).collapsed(False).id(number).grid_pos(place))
        number, y = number + 1, y + 1
        for line in section.lines:
            x = 0
            for width, panel in line.panels:
                built.with_panel(panel_of(panel).id(number).grid_pos(dm.GridPos(h=line.height, w=width, x=x, y=y)))
                marked += [number] if line.marked else []
                number, x = number + 1, x + width
            y += line.height
    return marked


def _query_variable(variable: Variable) -> dashboard.QueryVariable:
    name = variable.name
    query = f"label_values({variable.selector}, {name})"
    return (
        dashboard.QueryVariable(name)
        .label(variable.label)
        .datasource(DATASOURCE)
        .query({"query": query, "refId": f"variable-{name}"})
        .definition(query)
        .multi(True)
        .include_all(True)
        .all_value(".+")
        .current(dm.VariableOption(selected=True, text=["All"], value=["$__all"]))
        .refresh(dm.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(dm.VariableSort.NATURAL_ASC)
    )


def _chosen_variable(variable: Chosen) -> dashboard.CustomVariable:
    options = [
        dm.VariableOption(selected=value == variable.chosen, text=value, value=value) for value in variable.values
    ]
    return (
        dashboard.CustomVariable(variable.name)
        .label(variable.label)
        .description(variable.text)
        .values(",".join(variable.values))
        .options(options)
        .current(options[variable.values.index(variable.chosen)])
    )


def _builtin() -> dashboard.AnnotationQuery:
    query = dashboard.AnnotationQuery().name("Annotations & Alerts").built_in(1).enable(True).hide(True)
    return (
        query.type("dashboard")
        .icon_color("rgba(0, 211, 255, 1)")
        .datasource(cm.DataSourceRef(type_val="grafana", uid="-- Grafana --"))
    )


def _alerts() -> dashboard.AnnotationQuery:
    """By job only: an alert about a deployment has no instance."""
    expr = f'ALERTS{{alertstate="firing", alertname=~"{ALERTS}", job=~"$job"}}'
    return _marks("Alerts", expr, BAD, "{{alertname}}", "model,instance,severity")


def _freezes(expr: str, panels: list[int]) -> dashboard.AnnotationQuery:
    query = _marks("Freezes", expr, "rgba(255, 152, 48, 0.3)", "Freeze: {{cause}}", "cause")
    return query.filter(dashboard.AnnotationPanelFilter().exclude(False).ids(panels))


def _marks(name: str, expr: str, color: str, title: str, tags: str) -> dashboard.AnnotationQuery:
    query = dashboard.AnnotationQuery().name(name).datasource(DATASOURCE).enable(True).hide(False).icon_color(color)
    target = prometheus.Dataquery().expr(expr).ref_id("Anno").range()
    return query.expr(expr).title_format(title).tag_keys(tags).target(target)
