"""Writes the boards for Grafana into grafana/dashboards and for Perses into grafana/perses, or into these folders below
the one given."""

from __future__ import annotations

import sys
from pathlib import Path

from grafana.generator import grafana, perses
from grafana.generator.fleet import fleet
from grafana.generator.interference import interference

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "dashboards"
PERSES = ROOT / "perses"


def write(root: Path) -> list[Path]:
    written = []
    for build in (interference, fleet):
        board = build()
        for folder, as_json in ((FOLDER.name, grafana.as_json), (PERSES.name, perses.as_json)):
            path = root / folder / f"{board.uid}.json"
            path.parent.mkdir(exist_ok=True)
            path.write_text(as_json(board), encoding="utf-8")
            written.append(path)
    return written


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
