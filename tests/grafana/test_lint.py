"""The rules of Grafana's dashboard-linter and some of ours, on the committed dashboards."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from grafana.render.model import FOLDER, load_all, panels
from tests.grafana.promql import problems

from prefillwatch.export import table
from prefillwatch.wire.routes import WRITING

DASHBOARDS = load_all()
PANELS = {
    f"{uid.removeprefix('prefillwatch-')}: {panel['title']}": panel
    for uid, dashboard in DASHBOARDS.items()
    for panel in panels(dashboard)
}
#: Names of units in Grafana that we use, each with a reason to be the right one for something.
UNITS = {"s", "none", "short", "percentunit", "bytes", "reqps"}

#: Histograms whose slow values name their trace.
WITH_EXEMPLARS = tuple(f"{spec.full_name}_bucket" for spec in (table.INTER_TOKEN_LATENCY, table.TIME_TO_FIRST_TOKEN))

of_dashboards = pytest.mark.parametrize("dashboard", DASHBOARDS.values(), ids=DASHBOARDS)
of_panels = pytest.mark.parametrize("panel", PANELS.values(), ids=PANELS)


def concerned(concerns: Callable[[dict[str, Any]], bool]) -> pytest.MarkDecorator:
    """A test of the panels that it is about. There have to be some: else the test would be green and check nothing."""
    found = {name: panel for name, panel in PANELS.items() if concerns(panel)}
    assert found, "no panel is concerned: mend the test, or take it away"
    return pytest.mark.parametrize("panel", found.values(), ids=found)


def of_type(*kinds: str) -> pytest.MarkDecorator:
    assert set(kinds) <= {panel["type"] for panel in PANELS.values()}
    return concerned(lambda panel: panel["type"] in kinds)


def expressions(panel: dict[str, Any]) -> list[str]:
    return [target["expr"] for target in panel["targets"]]


def links_of(panel: dict[str, Any]) -> list[dict[str, Any]]:
    options = [option for override in panel["fieldConfig"]["overrides"] for option in override["properties"]]
    of_fields = [link for option in options if option["id"] == "links" for link in option["value"]]
    return [*of_fields, *panel["fieldConfig"]["defaults"].get("links", ())]


def names_replicas(panel: dict[str, Any]) -> bool:
    return panel["type"] != "stat" and any("by (job, instance)" in expr for expr in expressions(panel))


@of_dashboards
def test_a_dashboard_says_what_it_is_and_is_not_edited_in_place(dashboard: dict[str, Any]) -> None:
    assert dashboard["editable"] is False
    assert dashboard["schemaVersion"] == 42
    assert dashboard["title"]
    assert dashboard["description"]
    assert "prefillwatch" in dashboard["tags"]


@of_dashboards
def test_variables_are_those_that_people_expect(dashboard: dict[str, Any]) -> None:
    variables = {variable["name"]: variable for variable in dashboard["templating"]["list"]}
    assert list(variables) == ["datasource", "job", "instance", "model", "window"]
    assert (variables["datasource"]["label"], variables["datasource"]["query"]) == ("Data source", "prometheus")
    for name in ("job", "instance", "model"):
        variable = variables[name]
        assert variable["label"] == name.capitalize()
        assert variable["datasource"]["uid"] == "${datasource}"
        assert variable["multi"] is True
        assert variable["includeAll"] is True
        assert variable["allValue"] == ".+"
        assert variable["refresh"] == 2, "asked for again when the time changes"


@of_dashboards
def test_no_panel_covers_another_or_leaves_the_grid(dashboard: dict[str, Any]) -> None:
    boxes = [(panel["title"], panel["gridPos"]) for panel in dashboard["panels"]]
    for title, box in boxes:
        assert box["x"] >= 0, title
        assert box["x"] + box["w"] <= 24, title
    for (one, a), (other, b) in itertools.combinations(boxes, 2):
        apart = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
        above = a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]
        assert apart or above, f"{one!r} and {other!r}"


@of_dashboards
def test_ids_and_titles_are_unique(dashboard: dict[str, Any]) -> None:
    for key in ("id", "title"):
        values = [panel[key] for panel in dashboard["panels"]]
        assert len(values) == len(set(values)), key


@of_dashboards
def test_every_line_of_the_grid_is_full(dashboard: dict[str, Any]) -> None:
    width: dict[int, int] = {}
    for panel in dashboard["panels"]:
        width[panel["gridPos"]["y"]] = width.get(panel["gridPos"]["y"], 0) + panel["gridPos"]["w"]
    assert set(width.values()) == {24}


@of_dashboards
def test_annotations_are_valid_queries(dashboard: dict[str, Any]) -> None:
    marks = {mark["name"]: mark for mark in dashboard["annotations"]["list"]}
    assert marks["Annotations & Alerts"]["builtIn"] == 1
    assert problems(marks["Freezes"]["target"]["expr"], instant=False) == []
    assert set(marks["Freezes"]["filter"]["ids"]) <= {panel["id"] for panel in dashboard["panels"]}
    # ALERTS is no metric of ours, and an alert about a deployment has no instance.
    excused = ["the exporter has no metric ALERTS", 'ALERTS lacks instance=~"$instance"']
    assert problems(marks["Alerts"]["target"]["expr"], instant=False) == excused


@of_dashboards
def test_alerts_that_are_marked_exist(dashboard: dict[str, Any]) -> None:
    files = [yaml.safe_load(path.read_text()) for path in (FOLDER.parents[1] / "alerts" / "rules").glob("*.yml")]
    alerts = [rule["alert"] for file in files for group in file["groups"] for rule in group["rules"] if "alert" in rule]
    (marks,) = (mark for mark in dashboard["annotations"]["list"] if mark["name"] == "Alerts")
    (patterns,) = re.findall(r'alertname=~"(.*?)"', marks["target"]["expr"])
    for pattern in patterns.split("|"):
        assert any(re.fullmatch(pattern, alert) for alert in alerts), pattern


@of_panels
def test_a_panel_explains_itself(panel: dict[str, Any]) -> None:
    assert panel["title"]
    text, _, metrics = panel["description"].partition("\n\nFrom: ")
    assert len(text) > 30
    assert re.fullmatch(r"`prefillwatch_\w+`(, `prefillwatch_\w+`)*", metrics)


@of_panels
def test_a_panel_asks_the_chosen_data_source(panel: dict[str, Any]) -> None:
    assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    assert panel["targets"]
    assert all(target["datasource"] == panel["datasource"] for target in panel["targets"])
    names = [target["refId"] for target in panel["targets"]]
    assert len(names) == len(set(names))


@of_panels
def test_queries_are_sound(panel: dict[str, Any]) -> None:
    found = {
        target["expr"]: problems(target["expr"], instant=target.get("instant", False)) for target in panel["targets"]
    }
    assert not any(found.values()), found


@of_panels
def test_a_panel_has_units_and_an_empty_state(panel: dict[str, Any]) -> None:
    defaults = panel["fieldConfig"]["defaults"]
    assert defaults["unit"] in UNITS
    assert defaults["noValue"]
    units = [
        option["value"]
        for override in panel["fieldConfig"]["overrides"]
        for option in override["properties"]
        if option["id"] == "unit"
    ]
    assert set(units) <= UNITS


@of_type("stat")
def test_a_figure_says_what_nothing_means(panel: dict[str, Any]) -> None:
    mappings = panel["fieldConfig"]["defaults"]["mappings"]
    assert any(mapping["options"].get("match") == "null+nan" for mapping in mappings)


@of_type("stat", "bargauge", "timeseries", "table")
def test_thresholds_rise(panel: dict[str, Any]) -> None:
    first, *rest = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
    assert first["value"] is None
    assert [step["value"] for step in rest] == sorted(step["value"] for step in rest)


@of_type("timeseries")
def test_a_sum_in_a_legend_is_none_of_overlapping_windows(panel: dict[str, Any]) -> None:
    """Each increase over $__rate_interval is in several points, so adding those up tells a multiple of it."""
    assert not {"sum", "total"} & set(panel["options"]["legend"]["calcs"])


@concerned(lambda panel: any(re.search(r"\bup\{", expr) for expr in expressions(panel)))
def test_targets_of_others_are_not_ours(panel: dict[str, Any]) -> None:
    """`up` is of all that Prometheus scrapes, and so are all jobs; those that have a sidecar are ours."""
    for expr in expressions(panel):
        if re.search(r"\bup\{", expr):
            assert re.search(r"\bup\{[^}]+\} and on \(job\) last_over_time\(prefillwatch_build_info\{", expr)


@concerned(lambda panel: any("prefillwatch_requests_within_slo_total" in expr for expr in expressions(panel)))
def test_only_requests_for_text_can_keep_a_promise(panel: dict[str, Any]) -> None:
    """The engine's metrics are scraped through the data port, and that is a request like any other."""
    for expr in expressions(panel):
        if "prefillwatch_requests_within_slo_total" in expr:
            (of,) = re.findall(r"requests_total\{[^}]*endpoint=~\"([^\"]+)\"", expr)
            assert set(of.split("|")) == WRITING


def is_logarithmic(panel: dict[str, Any]) -> bool:
    custom = panel["fieldConfig"]["defaults"].get("custom", {})
    return panel["type"] == "timeseries" and custom["scaleDistribution"]["type"] == "log"


@concerned(is_logarithmic)
def test_a_logarithmic_axis_hides_nothing(panel: dict[str, Any]) -> None:
    defaults = panel["fieldConfig"]["defaults"]
    assert defaults["custom"]["stacking"]["mode"] == "none"
    assert defaults.get("min", 0.001) > 0
    assert defaults.get("max", 100) >= 100, "a bound would hide what lies beyond, and that is the worst"


@concerned(lambda panel: panel["type"] == "timeseries" and not is_logarithmic(panel))
def test_another_axis_begins_where_it_must(panel: dict[str, Any]) -> None:
    least = panel["fieldConfig"]["defaults"]["min"]
    assert least <= 0, "an axis that does not begin at zero makes noise look like trouble"


@of_type("stat", "bargauge", "table")
def test_what_is_asked_about_now_is_asked_once(panel: dict[str, Any]) -> None:
    """The last value of a range would go on showing a silence that has ended."""
    assert all(target.get("instant") for target in panel["targets"])


@concerned(lambda panel: bool(links_of(panel)))
def test_links_lead_to_dashboards_that_exist(panel: dict[str, Any]) -> None:
    for link in links_of(panel):
        uid, _, query = link["url"].removeprefix("/d/").partition("?")
        known = {variable["name"] for variable in DASHBOARDS[uid]["templating"]["list"]}
        assert set(re.findall(r"var-(\w+)=", query)) <= known


@concerned(names_replicas)
def test_every_replica_that_is_named_leads_to_its_own_dashboard(panel: dict[str, Any]) -> None:
    (link,) = links_of(panel)
    assert link["url"].startswith("/d/prefillwatch-interference?")
    variables = re.findall(r"var-\w+=\$\{__(?:field\.labels|data\.fields|value)\.(\w+)\}", link["url"])
    assert variables in (["job", "instance"], ["job", "raw"])


SOUND = 'job=~"$job", instance=~"$instance"'
OF_MODEL = f'{SOUND}, model=~"$model"'


@pytest.mark.parametrize(
    ("expr", "complaint"),
    [
        ("sum (", "no PromQL"),
        (f"prefillwatch_up{{{SOUND}, a=~'$b'}}", "unknown variable"),
        ("prefillwatch_up", "lacks job"),
        ('count (up{job=~"$job"} == 0)', "up lacks instance"),
        ('prefillwatch_up{job=~"$job"}', "lacks instance"),
        ('prefillwatch_up{job="$job", instance=~"$instance"}', "lacks job"),
        (f"prefillwatch_frozen_streams{{{SOUND}}}", "lacks model"),
        (f"prefillwatch_frozen_steams{{{OF_MODEL}}}", "has no metric"),
        (f"prefillwatch_up{{{SOUND}, engine='0'}}", "has no label engine"),
        (f"prefillwatch_stalls_total{{{OF_MODEL}}}", "counts up"),
        (f"rate(prefillwatch_up{{{SOUND}}}[$__rate_interval])", "is a gauge"),
        (f"rate(prefillwatch_stalls_total{{{OF_MODEL}}}[5m])", "use $__rate_interval"),
        (f"rate(prefillwatch_stalls_total{{{OF_MODEL}}}[$__range])", "use $__rate_interval"),
        (f"increase(prefillwatch_stalls_total{{{OF_MODEL}}}[$__range])", "use $__rate_interval"),
        (f"prefillwatch_step_seconds{{{OF_MODEL}}}", "is a histogram"),
        (
            f"histogram_quantile(0.99, rate(prefillwatch_step_seconds_bucket{{{OF_MODEL}}}[$__rate_interval]))",
            "by (le)",
        ),
        (f"histogram_quantile(0.99, sum (rate(prefillwatch_step_seconds_bucket{{{OF_MODEL}}}[1m])))", "by (le)"),
        (f"sum by (engin) (prefillwatch_kv_cache_usage_ratio{{{SOUND}}})", "no metric has the label"),
    ],
)
def test_the_rules_find(expr: str, complaint: str) -> None:
    assert any(complaint in problem for problem in problems(expr, instant=False))


def test_the_rules_let_pass_what_is_sound() -> None:
    assert problems(f"increase(prefillwatch_stalls_total{{{OF_MODEL}}}[$__range])", instant=True) == []
    rate = f"rate(prefillwatch_step_seconds_bucket{{{OF_MODEL}}}[$__rate_interval])"
    assert problems(f"histogram_quantile(0.99, sum by (le) ({rate}))", instant=False) == []


@concerned(lambda panel: any(name in expr for expr in expressions(panel) for name in WITH_EXEMPLARS))
def test_slow_gaps_and_first_tokens_come_with_their_traces_where_there_is_place_for_them(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        shown = target.get("range", False) and any(name in target["expr"] for name in WITH_EXEMPLARS)
        assert target.get("exemplar", False) == shown
