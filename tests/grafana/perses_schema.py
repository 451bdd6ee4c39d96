"""What Perses takes, as its documentation and the CUE schemas of its plugins have it (perses 0.54 and its plugins of
August 2026): nothing else, so a misspelt member is refused.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

Text = Annotated[str, Meta(min_length=1)]
Colour = Annotated[str, Meta(pattern=r"^#(?:[0-9a-fA-F]{3}){1,2}$")]
#: Of resources and of panels' keys.
Name = Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_.-]{1,75}$")]
Duration = Annotated[str, Meta(pattern=r"^(\d+y)?(\d+w)?(\d+d)?(\d+h)?(\d+m)?(\d+s)?(\d+ms)?$", min_length=2)]
Share = Annotated[float, Meta(ge=0, le=1)]
Calculation = Literal["first", "last", "first-number", "last-number", "mean", "sum", "min", "max"]
LineStyle = Literal["solid", "dashed", "dotted"]

_SHORTENED: Final = {"decimal", "bits", "decbits", "bytes", "decbytes", "requests/sec", "ops/sec", "events/sec"}


class Strict(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    pass


class Format(Strict):
    unit: Literal[
        "seconds", "milliseconds", "percent", "percent-decimal", "decimal", "bytes", "requests/sec", "ops/sec"
    ]
    decimal_places: int | None = None
    short_values: bool | None = None

    def __post_init__(self) -> None:
        if self.short_values is not None and self.unit not in _SHORTENED:
            raise ValueError(f"{self.unit} is not shortened")


class Step(Strict):
    value: float
    color: str | None = None
    name: str | None = None


class Thresholds(Strict):
    mode: Literal["percent", "absolute"] | None = None
    default_color: str | None = None
    steps: list[Step] | None = None


# --- Panels ---


class Result(Strict):
    value: str
    color: Colour | None = None


class ValueMapping(Strict):
    value: Text
    result: Result


class Mapping(Strict):
    kind: Literal["Value"]
    spec: ValueMapping


class Stat(Strict):
    calculation: Calculation
    format: Format | None = None
    thresholds: Thresholds | None = None
    color_mode: Literal["value", "background_solid", "none"] | None = None
    legend_mode: Literal["auto", "on", "off"] | None = None
    mappings: list[Mapping] | None = None


class Legend(Strict):
    position: Literal["bottom", "right"]
    mode: Literal["list", "table"] | None = None
    values: list[Calculation] | None = None


class Axis(Strict):
    show: bool | None = None
    format: Format | None = None
    min: float | None = None
    max: float | None = None
    log_base: Literal[2, 10] | None = None


class Visual(Strict):
    display: Literal["line", "bar"] | None = None
    line_width: Annotated[float, Meta(ge=0.25, le=3)] | None = None
    area_opacity: Share | None = None
    stack: Literal["all", "percent"] | None = None
    connect_nulls: bool | None = None


class QuerySettings(Strict):
    query_index: Annotated[int, Meta(ge=0)]
    color_mode: Literal["fixed", "fixed-single"] | None = None
    color_value: Colour | None = None
    line_style: LineStyle | None = None


class TimeSeries(Strict):
    legend: Legend | None = None
    y_axis: Axis | None = None
    thresholds: Thresholds | None = None
    visual: Visual | None = None
    query_settings: list[QuerySettings] | None = None


class ColourOverride(Strict):
    regex: str
    color: str


class BarVisual(Strict):
    color_overrides: list[ColourOverride]


class Bar(Strict):
    calculation: Calculation
    format: Format | None = None
    sort: Literal["asc", "desc"] | None = None
    mode: Literal["value", "percentage"] | None = None
    orientation: Literal["horizontal", "vertical"] | None = None
    visual: BarVisual | None = None


class HeatMap(Strict):
    y_axis_format: Format | None = None
    count_format: Format | None = None


class Range(Strict):
    min: float
    max: float | None = None

    def __post_init__(self) -> None:
        if self.max is not None and self.max < self.min:
            raise ValueError("the upper bound is below the lower one")


class Condition(Strict):
    kind: Literal["Range"]
    spec: Range


class Cell(Strict):
    condition: Condition
    background_color: Colour | None = None


class Column(Strict):
    name: Text
    header: str | None = None
    format: Format | None = None
    enable_sorting: bool | None = None
    sort: Literal["asc", "desc"] | None = None
    width: float | Literal["auto"] | None = None
    hide: bool | None = None
    cell_settings: list[Cell] | None = None


class Nothing(Strict):
    pass


class Transform(Strict):
    kind: Literal["MergeSeries"]
    spec: Nothing


class Table(Strict):
    density: Literal["compact", "standard", "comfortable"] | None = None
    enable_sorting: bool | None = None
    column_settings: list[Column] | None = None
    transforms: list[Transform] | None = None


class StatChart(Strict, tag_field="kind", tag="StatChart"):
    spec: Stat


class TimeSeriesChart(Strict, tag_field="kind", tag="TimeSeriesChart"):
    spec: TimeSeries


class BarChart(Strict, tag_field="kind", tag="BarChart"):
    spec: Bar


class HeatMapChart(Strict, tag_field="kind", tag="HeatMapChart"):
    spec: HeatMap


class TableChart(Strict, tag_field="kind", tag="Table"):
    spec: Table


# --- What they show ---


class PrometheusQuery(Strict):
    query: Text
    series_name_format: str | None = None
    instant: bool | None = None


class QueryPlugin(Strict):
    kind: Literal["PrometheusTimeSeriesQuery"]
    spec: PrometheusQuery


class QuerySpec(Strict):
    plugin: QueryPlugin


class Query(Strict):
    kind: Literal["TimeSeriesQuery"]
    spec: QuerySpec


class Display(Strict):
    name: str
    description: str | None = None


class PanelSpec(Strict):
    display: Display
    plugin: StatChart | TimeSeriesChart | BarChart | HeatMapChart | TableChart
    queries: list[Query]


class Panel(Strict):
    kind: Literal["Panel"]
    spec: PanelSpec


# --- Around them ---


class LabelValues(Strict):
    label_name: Text
    matchers: list[str]


class Static(Strict):
    values: list[Text]


class LabelValuesVariable(Strict, tag_field="kind", tag="PrometheusLabelValuesVariable"):
    spec: LabelValues


class StaticListVariable(Strict, tag_field="kind", tag="StaticListVariable"):
    spec: Static


class ListSpec(Strict):
    name: Annotated[str, Meta(pattern=r"^\w+$")]
    display: Display
    allow_all_value: bool
    allow_multiple: bool
    default_value: str | list[str]
    plugin: LabelValuesVariable | StaticListVariable
    custom_all_value: str | None = None
    sort: Literal["none", "alphabetical-asc", "alphabetical-desc", "numerical-asc", "numerical-desc"] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.default_value, list) and not self.allow_multiple:
            raise ValueError("several values of a variable that takes one")
        if self.custom_all_value is not None and not self.allow_all_value:
            raise ValueError("a value for all, which cannot be chosen")


class Variable(Strict):
    kind: Literal["ListVariable"]
    spec: ListSpec


class Reference(Strict):
    ref: Annotated[str, Meta(pattern=r"^#/spec/panels/[a-zA-Z0-9_-]+$")] = msgspec.field(name="$ref")


class Item(Strict):
    x: Annotated[int, Meta(ge=0, lt=24)]
    y: Annotated[int, Meta(ge=0)]
    width: Annotated[int, Meta(ge=1, le=24)]
    height: Annotated[int, Meta(ge=1)]
    content: Reference


class Collapse(Strict):
    open: bool


class GridDisplay(Strict):
    title: str
    collapse: Collapse


class GridSpec(Strict):
    display: GridDisplay
    items: list[Item]


class Grid(Strict):
    kind: Literal["Grid"]
    spec: GridSpec


class Metadata(Strict):
    name: Name
    project: Name


class DashboardSpec(Strict):
    display: Display
    duration: Duration
    refresh_interval: Duration
    variables: list[Variable]
    panels: dict[Name, Panel]
    layouts: list[Grid]


class Dashboard(Strict):
    kind: Literal["Dashboard"]
    metadata: Metadata
    spec: DashboardSpec


class ProjectMetadata(Strict):
    name: Name


class ProjectSpec(Strict):
    display: Display


class Project(Strict, tag_field="kind", tag="Project"):
    metadata: ProjectMetadata
    spec: ProjectSpec


class ProxySpec(Strict):
    url: Annotated[str, Meta(pattern=r"^https?://")]


class Proxy(Strict):
    kind: Literal["HTTPProxy"]
    spec: ProxySpec


class Prometheus(Strict):
    proxy: Proxy
    scrape_interval: Duration | None = None


class DatasourcePlugin(Strict):
    kind: Literal["PrometheusDatasource"]
    spec: Prometheus


class DatasourceSpec(Strict):
    default: bool
    plugin: DatasourcePlugin


class Datasource(Strict, tag_field="kind", tag="Datasource"):
    metadata: Metadata
    spec: DatasourceSpec


def read(content: bytes) -> Dashboard:
    """Raises msgspec.ValidationError for what Perses would refuse."""
    return msgspec.json.decode(content, type=Dashboard)


def read_provisioned(content: bytes) -> Project | Datasource:
    """YAML of what boards stand on. Raises msgspec.ValidationError."""
    return msgspec.yaml.decode(content, type=Project | Datasource)
