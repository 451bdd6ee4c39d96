"""A sidecar from which something was taken away, and what it has to do all the same."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.e2e.processes import Sidecar, Stream, eventually
from tests.e2e.traffic import paste_document, readers

LAUNCHER = Path(__file__).with_name("confine.py")


class Confined(Sidecar):
    """`prefillwatch serve` behind the launcher, which takes away what `taken` says."""

    def __init__(self, folder: Path, upstream: str, ready: bool = True, **taken: Any) -> None:
        spec = folder / "taken.json"
        spec.write_text(json.dumps(taken))
        prefix = (sys.executable, str(LAUNCHER), str(spec))
        super().__init__("serve", "--upstream", upstream, prefix=prefix, ready=ready)


def serves_under_traffic(sidecar: Confined) -> None:
    """Streams pass whole, the observer learns until it advises, and no process ends meanwhile."""
    processes = sidecar.state()["processes"]
    assert {process["role"] for process in processes} == {"supervisor", "relay", "observer"}
    assert Stream(sidecar.url, tokens=20).end().done
    with readers(sidecar.url, 4):
        sizes = iter(range(500, 60_000, 700))
        eventually(lambda: paste_document(sidecar.url, next(sizes)) and has_learned(sidecar))
    assert sidecar.value("relay_restarts_total") == 0
    assert sidecar.state()["processes"] == processes
    assert sidecar.stop() == 0
    assert "started again" not in sidecar.output


def has_learned(sidecar: Confined) -> bool:
    """Whether there is advice: the observer has been through its linear algebra."""
    return sidecar.value("advised_max_batched_tokens", model="sim-4b") is not None
