"""The story of a freeze, from a running sidecar and from the flight recording of it."""

from __future__ import annotations

import shutil
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import httpx
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import sync_playwright
from tests.e2e.processes import Command, Sidecar, Sim
from tests.e2e.traffic import paste_document, readers
from tests.kit.eventually import eventually


def test_a_freeze_is_told_while_it_can_be_asked_for_and_later_from_a_file(
    start: Callable[..., Sidecar], tmp_path: Path
) -> None:
    flights = tmp_path / "flights"
    flights.mkdir()
    upstream = start(Sim, "--no-enable-chunked-prefill")
    sidecar = start(Sidecar, "serve", "--upstream", upstream.url, "--flight-recorder-dir", str(flights))
    with readers(sidecar.url, 4):
        eventually(lambda: (sidecar.value("generated_tokens_total") or 0) > 200)
        assert paste_document(sidecar.url, 6000).error == ""
        eventually(lambda: list(flights.glob("*.pfw")) != [])
    (freeze,) = [each for each in httpx.get(f"{sidecar.admin}/api/incidents").json() if each["kind"] == "freeze"]
    name, file = freeze["id"], tmp_path / "incident.md"

    told = start(Command, "explain", name, "--from", sidecar.admin, "--output", str(file))
    assert told.wait() == 0, told.output
    story = file.read_text()
    assert story.startswith("# 4 streams stood still for ")
    assert "6,000 tokens" in story
    assert "Nothing that was seen speaks against it." in story
    lanes = [each.text for each in ET.parse(f"{file}.svg").iter("{http://www.w3.org/2000/svg}text")]
    culprit = freeze["culprits"][0]["request_id"]
    assert f"`{culprit}`" in story
    assert any(culprit.endswith((text or "")[-7:]) for text in lanes[5:])

    (flight,) = flights.glob("flight-*-freeze-prefill.pfw")
    again = start(Command, "explain", culprit, "--from", str(flight))
    assert again.wait() == 0, again.output
    assert again.output.splitlines()[0] == story.splitlines()[0]

    page = httpx.get(f"{sidecar.admin}/explain", params={"id": name})
    assert page.status_code == 200
    assert "<svg " in page.text
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        shown = browser.new_page(color_scheme="dark")
        shown.goto(f"{sidecar.admin}/explain?id={name}")
        result = Axe().run(shown)
        assert result.violations_count == 0, result.generate_report()
        assert shown.locator("svg text").first.is_visible()
        browser.close()
    unknown = start(Command, "explain", "y-9", "--from", sidecar.admin)
    assert unknown.wait() == 1
    assert name in unknown.output
