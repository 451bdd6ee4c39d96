"""A recording and a flight recording of a real sidecar, and both played back."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import httpx
from tests.e2e.processes import Command, Sidecar, Sim
from tests.e2e.traffic import paste_document, readers
from tests.kit.eventually import eventually

SECRET = "sk-geheim"


def test_what_happened_can_be_played_from_the_recording_and_from_the_flight_recorder(
    start: Callable[..., Sidecar], tmp_path: Path
) -> None:
    flights = tmp_path / "flights"
    flights.mkdir()
    recording = tmp_path / "run.pfw"
    upstream = start(Sim, "--no-enable-chunked-prefill")
    options = ("--upstream", upstream.url, "--flight-recorder-dir", str(flights), "--upstream-api-key", SECRET)
    sidecar = start(Sidecar, "record", str(recording), *options)
    with readers(sidecar.url, 4):
        eventually(lambda: (sidecar.value("generated_tokens_total") or 0) > 200)
        assert paste_document(sidecar.url, 6000).error == ""
        eventually(lambda: list(flights.glob("*.pfw")) != [])
        asked = httpx.post(f"{sidecar.admin}/api/flight").json()
        assert Path(asked["file"]).stat().st_size == asked["bytes"]
    eventually(lambda: sidecar.value("decoding_streams") == 0)
    time.sleep(0.5)  # until what is told once a second is the same everywhere
    live = httpx.get(f"{sidecar.admin}/api/incidents").json()
    generated = sidecar.value("generated_tokens_total")
    assert sidecar.stop() == 0

    (flight,) = flights.glob("flight-*-freeze-prefill.pfw")
    (last,) = flights.glob("flight-*-asked.pfw")
    for path in (recording, flight, last):
        found = tmp_path / "incidents.json"
        command = start(Command, "replay", str(path), "--incidents", str(found))
        assert command.wait() == 0, command.output
        (incident,) = [each for each in json.loads(found.read_text()) if each["kind"] == "freeze"]
        (then,) = [each for each in live if each["kind"] == "freeze"]
        assert incident["culprits"] == then["culprits"]
        assert (incident["cause"], incident["victims"]) == ("prefill", then["victims"])
        assert "6,000 tokens" in command.output
        assert path.stat().st_mode & 0o777 == 0o600
        assert SECRET.encode() not in path.read_bytes()

    player = start(Command, "replay", str(recording), "--admin", "127.0.0.1:0")
    admin = player.wait_for(r"metrics: (http://\S+)/metrics")
    player.wait_for(r"(still shown)")
    page = httpx.get(f"{admin}/metrics").text
    assert f'prefillwatch_generated_tokens_total{{model="sim-4b"}} {generated}' in page
    assert httpx.get(f"{admin}/api/incidents").json()[0]["culprits"] == then["culprits"]
    assert httpx.get(f"{admin}/").status_code == 200
    assert player.stop() == 0
