"""A dashboard around rows of panels: layout, ids, variables, links and annotations."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from grafana.generator.metric import OUR_TARGETS
from grafana.generator.palette import BAD
from grafana.generator.panels import DATASOURCE, PanelBuilder
from grafana_foundation_sdk.builders import dashboard, prometheus
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as cm
from grafana_foundation_sdk.models import dashboard as dm

from prefillwatch.export.table import WINDOW

WIDTH = 24
TAG = "prefillwatch"
#: Alerts that say something about freezes; the rules are in alerts/.
ALERTS = "PrefillInterference|StreamFreeze|NotPrefill.+"


@dataclass(frozen=True, slots=True)
class Line:
    """Panels side by side, all of one height; each with its width in columns.

    ``marked``: freezes are drawn into these panels; elsewhere they would only be clutter.
    """

    height: int
    panels: tuple[tuple[int, PanelBuilder], ...]
    marked: bool = False

    def __post_init__(self) -> None:
        if sum(width for width, _ in self.panels) != WIDTH:
            raise ValueError(f"the panels of a line must fill {WIDTH} columns")


@dataclass(frozen=True, slots=True)
class Section:
    """A row of the dashboard."""

    title: str
    lines: tuple[Line, ...]


def even(height: int, *panels: PanelBuilder, marked: bool = False) -> Line:
    return Line(height, tuple((WIDTH // len(panels), panel) for panel in panels), marked)


def split(height: int, *panels: tuple[int, PanelBuilder]) -> Line:
    return Line(height, panels)


def board(
    uid: str,
    title: str,
    description: str,
    sections: Sequence[Section],
    variables: Sequence[dashboard.QueryVariable | dashboard.CustomVariable],
    freezes: str,
    time: str,
) -> dashboard.Dashboard:
    """``freezes`` is the query whose samples are marked in all panels; ``time`` how far back the dashboard looks."""
    built = dashboard.Dashboard(title).uid(uid).description(description).tags([TAG]).readonly()
    built.time(f"now-{time}", "now").refresh("10s").tooltip(dm.DashboardCursorSync.CROSSHAIR).timezone("browser")
    built.link(
        dashboard.DashboardLink("prefillwatch")
        .type(dm.DashboardLinkType.DASHBOARDS)
        .tags([TAG])
        .as_dropdown(True)
        .include_vars(True)
        .keep_time(True)
    )
    built.with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
    for variable in variables:
        built.with_variable(variable)
    marked = _place(built, sections)
    for annotation in (_builtin(), _alerts(), _freezes(freezes, marked)):
        built.annotation(annotation)
    return built


def target_variables() -> list[dashboard.QueryVariable | dashboard.CustomVariable]:
    return [
        _query_variable("job", "Job", "prefillwatch_build_info"),
        _query_variable("instance", "Instance", 'prefillwatch_build_info{job=~"$job"}'),
        _query_variable("model", "Model", f"prefillwatch_decoding_streams{{{OUR_TARGETS}}}"),
        _window_variable(),
    ]


def as_json(built: dashboard.Dashboard) -> str:
    return json.dumps(built.build(), cls=JSONEncoder, sort_keys=True, indent=2, ensure_ascii=False) + "\n"


def _place(built: dashboard.Dashboard, sections: Sequence[Section]) -> list[int]:
    """Puts the panels where they belong; gives the ids of those in marked lines."""
    number, y = 1, 0
    marked = []
    for section in sections:
        place = dm.GridPos(h=1, w=WIDTH, x=0, y=y)
        built.with_row(dashboard.Row(section.title).collapsed(False).id(number).grid_pos(place))
        number, y = number + 1, y + 1
        for line in section.lines:
            x = 0
            for width, panel in line.panels:
                built.with_panel(panel.id(number).grid_pos(dm.GridPos(h=line.height, w=width, x=x, y=y)))
                marked += [number] if line.marked else []
                number, x = number + 1, x + width
            y += line.height
    return marked


def _query_variable(name: str, label: str, selector: str) -> dashboard.QueryVariable:
    query = f"label_values({selector}, {name})"
    return (
        dashboard.QueryVariable(name)
        .label(label)
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


def _window_variable() -> dashboard.CustomVariable:
    """The sliding windows that the exporter keeps; a minute shows a freeze while it still matters."""
    chosen = WINDOW.values[1]
    options = [dm.VariableOption(selected=value == chosen, text=value, value=value) for value in WINDOW.values]
    return (
        dashboard.CustomVariable("window")
        .label("Window")
        .description("Sliding window of the p50, p99 and max gauges")
        .values(",".join(WINDOW.values))
        .options(options)
        .current(options[1])
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
