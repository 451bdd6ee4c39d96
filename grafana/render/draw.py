"""Pictures of captured dashboards: Grafana's published components in a headless Chromium."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
WIDTH = 1480
MARGIN, UNIT, GAP = 8, 30, 8
# Chromium needs these to draw without a screen, a sandbox of the kernel's, or anything from the network.
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--hide-scrollbars",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--allow-file-access-from-files",
    "--virtual-time-budget=20000",
    "--run-all-compositor-stages-before-draw",
    "--enable-logging=stderr",
)


def bundle(folder: Path) -> Path:
    """The page's script with all it needs. Packages come from npm into ``folder`` once; needs node."""
    for source in (HERE / "package.json", *HERE.glob("*.js"), *HERE.glob("*.jsx")):
        shutil.copy(source, folder)
    if not (folder / "node_modules" / "esbuild").exists():
        install = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--legacy-peer-deps", "--silent"]
        _run(install, folder)
    script = folder / "page.js"
    esbuild = next((folder / "node_modules" / "@esbuild").glob("*/bin/esbuild"))
    loaders = ["--loader:.svg=dataurl", "--loader:.ttf=empty", "--define:process.env.NODE_ENV='production'"]
    _run(
        [str(esbuild), "page.jsx", "--bundle", f"--outfile={script}", *loaders, "--minify", "--log-level=error"], folder
    )
    return script


def draw(captured: Mapping[str, Any], script: Path, folder: Path) -> list[Path]:
    """One picture per row of the dashboard that is to be drawn, named after both."""
    panels = captured["dashboard"]["panels"]
    titles = [panel for panel in panels if panel["type"] == "row"]
    bottoms = [*(row["gridPos"]["y"] for row in titles[1:]), _bottom(panels)]
    written = []
    for section, (row, bottom) in enumerate(zip(titles, bottoms, strict=True)):
        if row["title"] in captured["left_out"] or (captured["rows"] and row["title"] not in captured["rows"]):
            continue
        uid = captured["dashboard"]["uid"].removeprefix("prefillwatch-")
        picture = folder / f"{uid}-{section + 1}-{picture_name(row['title'])}.png"
        height = (bottom - row["gridPos"]["y"]) * (UNIT + GAP) + 2 * MARGIN
        _shoot({**captured, "section": section, "width": WIDTH - 2 * MARGIN}, script, picture, height)
        written.append(picture)
    return written


def picture_name(title: str) -> str:
    return re.sub(r"\W+", "-", title.lower()).strip("-")


def _bottom(panels: Sequence[Mapping[str, Any]]) -> int:
    return max(int(panel["gridPos"]["y"] + panel["gridPos"]["h"]) for panel in panels)


def _shoot(data: Mapping[str, Any], script: Path, picture: Path, height: int) -> None:
    with tempfile.TemporaryDirectory(prefix="render-") as made:
        folder = Path(made)
        page = folder / "page.html"
        embedded = json.dumps(data).replace("</", "<\\/")
        page.write_text(
            f'<!doctype html><meta charset="utf-8"><body style="margin:0"><div id="root"></div>'
            f'<link rel="stylesheet" href="{script.with_suffix(".css").as_uri()}">'
            f'<script>window.CAPTURED = {embedded}</script><script src="{script.as_uri()}"></script>',
            encoding="utf-8",
        )
        size = [f"--window-size={WIDTH},{height}", f"--screenshot={picture}", f"--user-data-dir={folder / 'profile'}"]
        said = _run(["chromium", *FLAGS, *size, page.as_uri()], folder)
        uncaught = re.findall(r"Uncaught.*", said)
        if uncaught or not picture.exists():
            raise RuntimeError(f"chromium could not draw {picture.name}: {uncaught}")


def _run(command: Sequence[str], folder: Path) -> str:
    """What it wrote to stderr; raises RuntimeError if it failed."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)  # noqa: S603
    if done.returncode:
        raise RuntimeError(f"{command[0]} ended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stderr
