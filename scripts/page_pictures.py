"""Take the pictures of the live page in docs/ anew, from the page itself: `.venv/bin/python scripts/page_pictures.py`.

The simulated server, the sidecar and its traffic run as in `prefillwatch demo --no-enable-chunked-prefill`; a document
is pasted, and the page is taken while everybody stands still and some seconds later. Wants a quiet machine.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, ViewportSize, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.e2e.processes import Sidecar, Sim  # noqa: E402
from tests.e2e.traffic import paste_document, readers  # noqa: E402

from prefillwatch.lab.load import CHAT  # noqa: E402

SIZE: ViewportSize = {"width": 1360, "height": 940}
TOKENS = 7800
#: How long everything stands still when the first picture is taken.
INTO_THE_FREEZE_S = 0.35


def main() -> None:
    sim = Sim("--no-enable-chunked-prefill")
    sidecar = Sidecar("serve", "--upstream", sim.url)
    try:
        with sync_playwright() as playwright:
            options = [] if os.getuid() else ["--no-sandbox"]
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=options)
            page = browser.new_page(viewport=SIZE, color_scheme="light")
            page.goto(f"{sidecar.admin}/")
            take(sidecar, page)
    finally:
        sidecar.stop()
        sim.kill()


def take(sidecar: Sidecar, page: Page) -> None:
    with readers(sidecar.url, 6, CHAT):
        time.sleep(9)
        pasted(sidecar.url, 3000).join()  # so that it is learned what a token costs
        time.sleep(10)
        paste = pasted(sidecar.url, TOKENS)
        page.locator('#verdict[data-level="frozen"]').wait_for()
        time.sleep(INTO_THE_FREEZE_S)
        save(page, "live-page-frozen.png")
        paste.join()
        time.sleep(2.5)
        page.emulate_media(color_scheme="dark")
        time.sleep(1)
        save(page, "live-page-after.png")


def pasted(url: str, tokens: int) -> threading.Thread:
    thread = threading.Thread(target=paste_document, args=(url, tokens))
    thread.start()
    return thread


def save(page: Page, name: str) -> None:
    path = ROOT / "docs" / name
    page.screenshot(path=path)
    Image.open(path).convert("RGB").quantize(256, Image.Quantize.FASTOCTREE).save(path, optimize=True)
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size // 1024} KB")


if __name__ == "__main__":
    main()
