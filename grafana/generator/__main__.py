"""Writes all dashboards into grafana/dashboards, or into the folder given."""

from __future__ import annotations

import sys
from pathlib import Path

from grafana.generator.board import as_json
from grafana.generator.fleet import fleet
from grafana.generator.interference import interference

FOLDER = Path(__file__).parent.parent / "dashboards"


def write(folder: Path) -> list[Path]:
    written = []
    for build in (interference, fleet):
        dashboard = build()
        uid = dashboard.build().uid
        assert uid is not None
        path = folder / f"{uid}.json"
        path.write_text(as_json(dashboard), encoding="utf-8")
        written.append(path)
    return written


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
