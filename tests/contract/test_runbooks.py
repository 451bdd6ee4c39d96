"""Whoever points at a runbook points at one that is there."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from alerts.rulebook.groups import all_alerts
from alerts.rulebook.source import load

from prefillwatch.contract.runbooks import Runbook

FOLDER = Path(__file__).resolve().parents[2] / "alerts/runbooks"


def test_each_name_is_that_of_an_alert_and_of_a_page() -> None:
    names = set(get_args(Runbook))
    assert names == {alert.name for alert in all_alerts(load())}
    assert names == {path.stem for path in FOLDER.glob("*.md")} - {"README"}
