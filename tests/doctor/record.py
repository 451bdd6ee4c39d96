"""Records what doctor reads, of simulated servers under load and of the sidecars in front of them.

    python -m tests.doctor.record [NAME …]

writes tests/data/doctor/NAME.json.xz: for `sidecar` and `server` the pages in the order read, the seconds between first
and last, and for the sidecar `state` and `incidents`.
"""

from __future__ import annotations

import contextlib
import lzma
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import msgspec
from tests.e2e.processes import Sidecar, Sim
from tests.e2e.traffic import readers

from prefillwatch.lab.load import Kind

FOLDER = Path(__file__).parents[1] / "data" / "doctor"
LEAD_S = 5.0
SPACING_S = 2.0
PAGES = 5

CHAT = Kind("chat", (200, 300), (30, 60), per_second=1.0)
DOCUMENT = Kind("document", (5000, 6500), (20, 30), per_second=0.5)
LONG_ANSWER = Kind("long", (300, 600), (500, 800), per_second=1.0)


@dataclass(frozen=True, slots=True)
class Scenario:
    sim: tuple[str, ...] = ()
    victims: int = 6
    kinds: tuple[Kind, ...] = (CHAT,)
    lead_s: float = LEAD_S
    model: str = "sim-4b"


SCENARIOS = {
    "healthy": Scenario(),
    "harmless": Scenario(("--preset", "small"), kinds=(CHAT, DOCUMENT), model="sim-0.5b"),
    "unchunked": Scenario(("--no-enable-chunked-prefill",), kinds=(CHAT, DOCUMENT)),
    "chunked": Scenario(kinds=(CHAT, DOCUMENT)),
    "preemption": Scenario(("--preset", "tiny-kv"), victims=12, kinds=(LONG_ANSWER,), lead_s=12.0),
    "queue": Scenario(("--max-num-seqs", "4"), victims=20, kinds=()),
    "single": Scenario(victims=1, kinds=()),
    "fresh": Scenario(victims=2, kinds=(), lead_s=0.2),
    "idle": Scenario(victims=0, kinds=()),
}


def main(names: list[str]) -> None:
    FOLDER.mkdir(exist_ok=True)
    for name in names or SCENARIOS:
        document = record(SCENARIOS[name])
        path = FOLDER / f"{name}.json.xz"
        path.write_bytes(lzma.compress(msgspec.json.encode(document), preset=9))
        print(name, path.stat().st_size)


def record(scenario: Scenario) -> dict[str, Any]:
    with (
        _running(Sim(*scenario.sim)) as sim,
        _running(Sidecar("serve", "--upstream", sim.url)) as sidecar,
        _traffic(sidecar.url, scenario),
    ):
        time.sleep(scenario.lead_s)
        return _watch(sim.url, sidecar.admin)


def _traffic(url: str, scenario: Scenario) -> contextlib.AbstractContextManager[None]:
    if not scenario.victims:
        return contextlib.nullcontext()
    return readers(url, scenario.victims, *scenario.kinds, model=scenario.model)


def _watch(server: str, admin: str) -> dict[str, Any]:
    pages: dict[str, list[str]] = {"server": [], "sidecar": []}
    since, started = httpx.get(f"{admin}/api/state").json()["time"], time.monotonic()
    for number in range(PAGES):
        time.sleep(SPACING_S if number else 0.0)
        seconds = time.monotonic() - started
        for kind, url in (("server", server), ("sidecar", admin)):
            pages[kind].append(httpx.get(f"{url}/metrics").text)
    return {
        "server": {"pages": pages["server"], "seconds": seconds},
        "sidecar": {
            "pages": pages["sidecar"],
            "seconds": seconds,
            "since": since,
            "state": httpx.get(f"{admin}/api/state").json(),
            "incidents": httpx.get(f"{admin}/api/incidents?limit=1000").json(),
        },
    }


@contextlib.contextmanager
def _running(command: Any) -> Iterator[Any]:
    try:
        yield command
    finally:
        command.kill()


if __name__ == "__main__":
    main(sys.argv[1:])
