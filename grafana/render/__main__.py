"""Starts demos and a Prometheus, lets them run, and draws the dashboards into grafana/screenshots.

Needs prometheus, chromium and npm (Debian: apt-get install prometheus chromium npm). With --keep FOLDER the results of
the queries are kept there, and with --from FOLDER drawn again without running anything.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grafana.render.capture import capture
from grafana.render.draw import bundle, draw
from grafana.render.model import Frame, load_all
from grafana.render.stage import ROOT, SCRAPE_EVERY_S, Replica, on_stage

SHOWN_SECONDS = 150
FLEET = (
    Replica("vllm-0"),
    Replica("vllm-1-unchunked", ("--no-enable-chunked-prefill", "--seed", "2", "--tenants")),
    Replica("vllm-2-small-kv", ("--preset", "tiny-kv", "--seed", "3")),
)


@dataclass(frozen=True, slots=True)
class Shot:
    """A dashboard for one instance, or for all; and which of its rows, or all but which."""

    uid: str
    instance: str = ".+"
    rows: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


# KV cache and preemptions are shown of a server that is short of cache.
SHORT_OF_CACHE = "KV cache and memory"
SHOTS = (
    Shot("prefillwatch-interference", "vllm-1-unchunked", left_out=(SHORT_OF_CACHE,)),
    Shot("prefillwatch-interference", "vllm-2-small-kv", (SHORT_OF_CACHE,)),
    Shot("prefillwatch-fleet"),
)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--out", type=Path, default=ROOT / "grafana" / "screenshots")
    options.add_argument("--seconds", type=int, default=SHOWN_SECONDS)
    options.add_argument("--keep", type=Path)
    options.add_argument("--from", dest="source", type=Path)
    given = options.parse_args()
    if given.source:
        captured = [json.loads(path.read_text()) for path in sorted(given.source.glob("*.json"))]
    else:
        captured = _captured(given.seconds)
    if given.keep:
        given.keep.mkdir(parents=True, exist_ok=True)
        for number, one in enumerate(captured):
            (given.keep / f"{number}.json").write_text(json.dumps(one))
    packages = ROOT / ".cache" / "render"
    for folder in (packages, given.out):
        folder.mkdir(parents=True, exist_ok=True)
    script = bundle(packages)
    for one in captured:
        for picture in draw(one, script, given.out):
            print(f"{picture}  {picture.stat().st_size / 1000:.0f} kB")  # noqa: T201 # what a command is for


def _captured(seconds: int) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="stage-") as folder, on_stage(FLEET, Path(folder)) as prometheus:
        start = time.time()
        time.sleep(seconds)
        frame = Frame(start, start + seconds, SCRAPE_EVERY_S, SCRAPE_EVERY_S)
        dashboards = load_all()
        return [
            {
                **capture(prometheus, dashboards[shot.uid], frame, instance=shot.instance),
                "rows": shot.rows,
                "left_out": shot.left_out,
            }
            for shot in SHOTS
        ]


if __name__ == "__main__":
    main()
