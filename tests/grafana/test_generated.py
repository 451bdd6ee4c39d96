"""The committed dashboards are what the generator writes, and what Grafana needs to know them again."""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from grafana.generator import fleet, interference
from grafana.generator.__main__ import FOLDER, PERSES, write
from grafana.render.draw import picture_name
from grafana.render.model import load_all

PROVISIONING = FOLDER.parent / "provisioning"


def test_generating_again_gives_the_same_bytes(tmp_path: Path) -> None:
    written = write(tmp_path)
    for folder in (FOLDER, PERSES):
        names = [path.name for path in written if path.parent.name == folder.name]
        assert sorted(names) == sorted(path.name for path in folder.glob("*.json"))
    for path in written:
        kept = FOLDER.parent / path.relative_to(tmp_path)
        assert path.read_bytes() == kept.read_bytes(), "run: python -m grafana.generator"


def test_uids_are_those_that_links_and_runbooks_rely_on() -> None:
    assert {dashboard["uid"] for dashboard in load_all().values()} == {
        "prefillwatch-interference",
        "prefillwatch-fleet",
    }
    assert {interference.UID, fleet.UID} == set(load_all())


def test_provisioning_names_one_prometheus_by_a_fixed_uid() -> None:
    (source,) = yaml.safe_load((PROVISIONING / "datasources" / "prefillwatch.yaml").read_text())["datasources"]
    assert source["uid"] == "prefillwatch-prometheus"
    assert source["type"] == "prometheus"
    # $__rate_interval is made of it: four scrapes, or rates are empty.
    assert source["jsonData"]["timeInterval"] == _scrape_interval()


def test_provisioning_reads_the_folder_of_dashboards() -> None:
    (provider,) = yaml.safe_load((PROVISIONING / "dashboards" / "prefillwatch.yaml").read_text())["providers"]
    assert provider["type"] == "file"
    assert provider["allowUiUpdates"] is False
    assert provider["options"]["path"] == "/etc/grafana/dashboards/prefillwatch"


def _scrape_interval() -> str:
    """What the alert rules count on and deploy/prometheus sets."""
    rules = yaml.safe_load((FOLDER.parents[1] / "alerts" / "source.yml").read_text())
    interval: str = rules["intervals"]["scrape"]
    return interval


def test_every_row_has_its_picture_and_the_readme_shows_it() -> None:
    folder = FOLDER.parent
    shown = re.findall(r"\((screenshots/[^)]+)\)", (folder / "README.md").read_text())
    rows = [panel for dashboard in load_all().values() for panel in dashboard["panels"] if panel["type"] == "row"]
    assert len(shown) == len(rows)
    assert {path.name for path in (folder / "screenshots").iterdir()} == {Path(name).name for name in shown}
    for row in rows:
        assert any(picture_name(row["title"]) in name for name in shown), row["title"]
    assert all((folder / name).stat().st_size < 400_000 for name in shown)
