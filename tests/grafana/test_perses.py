"""The boards for Perses: what Perses takes, and the same as Grafana's."""

from __future__ import annotations

import itertools
import json
from typing import Any

import msgspec
import pytest
import yaml
from grafana.render.model import FOLDER, load_all, panels
from tests.grafana import perses_schema
from tests.grafana.perses_schema import Dashboard, Datasource, Item, Project

PERSES = FOLDER.parent / "perses"
CONTENTS = {path.stem: path.read_bytes() for path in sorted(PERSES.glob("*.json"))}
BOARDS = {name: perses_schema.read(content) for name, content in CONTENTS.items()}
GRAFANA = load_all()

of_boards = pytest.mark.parametrize("name", BOARDS)


def all_items(board: Dashboard) -> list[Item]:
    return [item for layout in board.spec.layouts for item in layout.spec.items]


def test_there_is_one_for_each_of_grafanas() -> None:
    assert set(BOARDS) == set(GRAFANA)


@of_boards
def test_it_has_the_name_of_its_file(name: str) -> None:
    assert BOARDS[name].metadata.name == name


@of_boards
def test_panels_and_queries_are_grafanas(name: str) -> None:
    shown = BOARDS[name].spec.panels.values()
    ours = [
        (panel.spec.display.name, [query.spec.plugin.spec.query for query in panel.spec.queries]) for panel in shown
    ]
    theirs = [(panel["title"], [target["expr"] for target in panel["targets"]]) for panel in panels(GRAFANA[name])]
    assert sorted(ours) == sorted(theirs)


@of_boards
def test_rows_are_grafanas(name: str) -> None:
    rows = [panel["title"] for panel in GRAFANA[name]["panels"] if panel["type"] == "row"]
    assert [layout.spec.display.title for layout in BOARDS[name].spec.layouts] == rows


@of_boards
def test_variables_are_grafanas_and_queries_use_no_other(name: str) -> None:
    variables = [each.spec.name for each in BOARDS[name].spec.variables]
    theirs = [each["name"] for each in GRAFANA[name]["templating"]["list"]]
    assert ["datasource", *variables] == theirs


@of_boards
def test_each_panel_has_one_place_and_none_lies_on_another(name: str) -> None:
    board = BOARDS[name]
    places = [item.content.ref.removeprefix("#/spec/panels/") for item in all_items(board)]
    assert sorted(places) == sorted(board.spec.panels)
    for layout in board.spec.layouts:
        assert all(item.x + item.width <= 24 for item in layout.spec.items)
        for one, other in itertools.combinations(layout.spec.items, 2):
            beside = one.x + one.width <= other.x or other.x + other.width <= one.x
            above = one.y + one.height <= other.y or other.y + other.height <= one.y
            assert beside or above, (one, other)


def test_the_project_of_the_boards_and_its_prometheus_are_provisioned() -> None:
    folder = FOLDER.parent / "provisioning" / "perses"
    found = {path.stem: perses_schema.read_provisioned(path.read_bytes()) for path in folder.iterdir()}
    project, datasource = found["project"], found["datasource"]
    assert isinstance(project, Project)
    assert isinstance(datasource, Datasource)
    assert datasource.metadata.project == project.metadata.name
    assert {board.metadata.project for board in BOARDS.values()} == {project.metadata.name}
    rules = yaml.safe_load((FOLDER.parents[1] / "alerts" / "source.yml").read_text())
    assert datasource.spec.plugin.spec.scrape_interval == rules["intervals"]["scrape"]


def changed(at: tuple[str | int, ...], value: Any) -> bytes:
    """The first board with one member replaced."""
    board = json.loads(next(iter(CONTENTS.values())))
    place = board
    for step in at[:-1]:
        place = place[step]
    place[at[-1]] = value
    return json.dumps(board).encode()


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (("kind",), "Panel"),
        (("metadata", "name"), "with a space"),
        (("spec", "duration"), "soon"),
        (("spec", "tags"), ["x"]),
        (("spec", "panels", "0_0", "spec", "plugin", "kind"), "GaugeChart"),
        (("spec", "panels", "0_0", "spec", "plugin", "spec", "colorMode"), "background"),
        (("spec", "panels", "0_0", "spec", "plugin", "spec", "format", "unit"), "s"),
        (("spec", "panels", "0_0", "spec", "queries", 0, "spec", "plugin", "spec", "query"), ""),
        (("spec", "layouts", 0, "spec", "items", 0, "width"), 25),
        (("spec", "layouts", 0, "spec", "items", 0, "content"), {"$ref": "#/panels/0_0"}),
        (("spec", "variables", 0, "spec", "allowMultiple"), False),
    ],
)
def test_what_perses_would_refuse_is_noticed(at: tuple[str | int, ...], value: Any) -> None:
    with pytest.raises(msgspec.ValidationError):
        perses_schema.read(changed(at, value))
