"""Tenants from their credentials to the page, and nothing of a credential or a user anywhere on the way."""

from __future__ import annotations

import random
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import zstandard
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect, sync_playwright
from tests.e2e.processes import CHAT, Sidecar, Sim, Stream
from tests.kit.eventually import PATIENCE_S, eventually

from prefillwatch.lab.load import Kind, request_body
from prefillwatch.wire.sender import TenantIds

PATIENCE_MS = 30_000
KEY = "the key of this test"
#: In everything that says who somebody is.
SECRET = "Geheimnis"
CHATS, BATCH, USER = f"sk-{SECRET}-chats", f"sk-{SECRET}-batch", f"jane-{SECRET}@example.org"


def document(url: str, size: int) -> None:
    """A long prompt of the tenant with the batch."""
    body = request_body("sim-4b", Kind("document", (size, size), (5, 5)), size, random.Random(size))
    headers = {"Authorization": f"Bearer {BATCH}", "X-Vllm-Priority": "7"}
    httpx.post(url + CHAT, json={**body, "user": USER}, headers=headers, timeout=PATIENCE_S)


def texts(folder: Path) -> Iterator[str]:
    """All that is in the recordings of a folder."""
    for path in folder.glob("*.pfw"):
        data = path.read_bytes()
        position = 14 + int.from_bytes(data[10:14], "little")
        yield data[:position].decode("latin-1")
        while position < len(data):
            length = int.from_bytes(data[position : position + 4], "little")
            yield zstandard.decompress(data[position + 4 : position + 4 + length]).decode("latin-1")
            position += 4 + length


@pytest.fixture
def sidecar(start: Callable[..., Any], tmp_path: Path) -> Sidecar:
    """In front of a server that reads a prompt in one step."""
    key = tmp_path / "key"
    key.write_text(KEY)
    sim: Sim = start(Sim, "--no-enable-chunked-prefill")
    settings = ["--tenant-from", "api_key_id", "--tenant-key-file", str(key), "--priorities", "--log-level", "debug"]
    flight = ["--flight-recorder-dir", str(tmp_path), "--flight-recorder-tenants"]
    found: Sidecar = start(Sidecar, "serve", "--upstream", sim.url, *settings, *flight)
    return found


def page_of(sidecar: Sidecar, culprit: str, victim: str) -> list[str]:
    """What the live page has in it once it shows both."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(f"{sidecar.admin}/")
        expect(page.locator("#tenant-table tbody")).to_contain_text(culprit, timeout=PATIENCE_MS)
        expect(page.locator("#tenant-matrix thead")).to_contain_text(victim, timeout=PATIENCE_MS)
        expect(page.locator("#tenant-matrix tbody tr:first-child th")).to_have_text(culprit, timeout=PATIENCE_MS)
        result = Axe().run(page)
        assert result.violations_count == 0, result.generate_report()
        shown = [page.content(), page.locator("body").inner_text()]
        browser.close()
    return shown


def test_who_freezes_whom_is_on_the_page_and_no_key_is_anywhere(sidecar: Sidecar, tmp_path: Path) -> None:
    chats, batch = map(TenantIds(KEY), (CHATS, BATCH))
    streams = [Stream(sidecar.url, tokens=1500, Authorization=f"Bearer {CHATS}").begin() for _ in range(3)]
    sizes = iter(range(6000, 20_000, 100))

    def caused() -> float:
        """Another document for as long as none was to blame: on a busy machine the simulator itself may stand still."""
        seconds = sidecar.value("tenant_stall_caused_seconds_total", tenant=batch, victim="others") or 0.0
        if not seconds:
            threading.Thread(target=document, args=(sidecar.url, next(sizes)), daemon=True).start()
        return seconds

    assert eventually(caused, every_s=2.0) > 0
    assert all(stream.tokens for stream in streams)
    assert sidecar.value("tenant_stall_suffered_seconds_total", tenant=chats, culprit="others")
    assert eventually(lambda: sidecar.value("tenant_requests_total", tenant=batch), every_s=0.2)
    assert sidecar.value("priority_requests_total", priority=">1")
    assert sidecar.value("priority_requests_total", priority="-1") == 0

    shown = page_of(sidecar, batch, chats)
    incidents = eventually(lambda: httpx.get(f"{sidecar.admin}/api/incidents", timeout=PATIENCE_S).json(), every_s=0.2)
    named = {each["tenant"] for incident in incidents for each in incident["culprits"] if "tenant" in each}
    assert batch in named
    paths = ("/metrics", "/api/state", "/api/incidents", "/api/tenants", f"/api/explain?id={incidents[0]['id']}", "/")
    shown += [httpx.get(sidecar.admin + path, timeout=PATIENCE_S).text for path in paths]
    recorded = eventually(lambda: list(texts(tmp_path)), "no flight recording was written", every_s=0.2)
    assert any(chats in each for each in recorded), "the settings ask for tenants in flight recordings"
    for each in [*shown, *recorded, sidecar.output]:
        assert SECRET not in each
