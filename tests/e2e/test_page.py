"""The live page in a real browser: in front of the simulated server, and with more streams than that can make."""

from __future__ import annotations

import os
import re
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect, sync_playwright
from tests.e2e.crowd import Crowd
from tests.e2e.processes import Command, Sidecar, Sim, Stream
from tests.e2e.traffic import paste_document, readers
from tests.kit.eventually import eventually
from tests.recorder.scenes import freeze
from tests.recorder.stage import Live

PATIENCE_MS = 30_000
#: Whatever happens, the page has no more elements than this.
MOST_NODES = 400


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium")
    assert chromium, "these tests need chromium: scripts/tools chromium"
    with sync_playwright() as playwright:
        # As root, such as in a container, Chromium has no sandbox.
        options = ["--disable-dev-shm-usage", *([] if os.getuid() else ["--no-sandbox"])]
        browser = playwright.chromium.launch(executable_path=chromium, args=options)
        yield browser
        browser.close()


class Visitor:
    """A page, and what a browser has to complain about it: errors, violations of the policy, requests elsewhere."""

    def __init__(self, browser: Browser, url: str, **options: Any) -> None:
        self.complaints: list[str] = []
        self.cut_off = False  # a browser tells of connections that were cut or refused; that is no complaint then
        self._url = url
        self.page: Page = browser.new_page(**options)
        self.page.set_default_timeout(PATIENCE_MS)
        self.page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(f"dialog: {dialog.message}"))
        self.page.on("request", lambda request: self._note(request.url))
        self.page.goto(url)

    def _note(self, url: str) -> None:
        if not url.startswith((self._url, "data:")):
            self.complaints.append(f"asked for {url}")

    def sees(self, selector: str, words: str) -> None:
        expect(self.page.locator(selector)).to_have_text(re.compile(words), timeout=PATIENCE_MS)

    def becomes(self, **data: str) -> None:
        for name, value in data.items():
            self.page.locator(f'html[data-{name}="{value}"]').wait_for(state="attached")

    @property
    def frames(self) -> int:
        return int(self.page.locator("html").get_attribute("data-frames") or 0)


@pytest.fixture
def visit(browser: Browser) -> Iterator[Callable[..., Visitor]]:
    """Opens a page; at the end no browser may have complained of anything that was not expected."""
    visitors: list[Visitor] = []

    def visit(url: str, **options: Any) -> Visitor:
        visitors.append(Visitor(browser, f"{url}/", **options))
        return visitors[-1]

    yield visit
    for visitor in visitors:
        visitor.page.close()
        ours = "Failed to load resource: net::ERR_" if visitor.cut_off else "\0"
        assert [each for each in visitor.complaints if ours not in each] == []


def test_a_freeze_is_seen_as_it_happens_and_listed_with_the_prompt_that_caused_it(
    start: Callable[..., Any], visit: Callable[..., Visitor]
) -> None:
    sim: Sim = start(Sim, "--no-enable-chunked-prefill")
    sidecar: Sidecar = start(Sidecar, "serve", "--upstream", sim.url)
    visitor = visit(sidecar.admin)
    visitor.sees("#verdict-title", "No traffic now")
    visitor.sees("#no-incidents", "None yet")
    with readers(sidecar.url, 6):
        visitor.becomes(decoding="6")
        # On a machine without a free core the simulator itself may stand still for a moment.
        visitor.sees("#verdict-title", "6 streams flowing|streams? froze for up to .* ago")
        visitor.sees("#gaps td:nth-child(2) >> nth=0", r"\d+\sms")
        # Whoever is between two answers just then waits with the document; the first document read is a stream by then.
        paste = [paste_in_background(sidecar.url, tokens) for tokens in (6500, 6900)]
        visitor.sees("#verdict-title", r"([2-8]) of \1 streams frozen for \d")
        visitor.sees("#incident-list > li:first-child", r"Freeze: prefill *ongoing")
        for thread in paste:
            thread.join()
        visitor.sees(
            "#incident-list > li.prefill >> nth=0",
            r"Worst gap .* usually .* lost in all.*(6,500|6,900) tokens, .* of the blame: \w",
        )
        expect(visitor.page.locator("#incident-list li.ongoing")).to_have_count(0, timeout=PATIENCE_MS)
        visitor.page.get_by_role("button", name="Show in lanes").first.click()
        expect(visitor.page.locator("#pause")).to_have_attribute("aria-pressed", "true")
    label = visitor.page.locator("#canvas").get_attribute("aria-label") or ""
    assert "stream" in label
    visitor.sees("#cache strong", r"[\d.]+ %")
    visitor.sees("#first tbody", "2k-8k")
    visitor.sees("#advice-words", r"\w")


def paste_in_background(url: str, tokens: int) -> threading.Thread:
    thread = threading.Thread(target=paste_document, args=(url, tokens))
    thread.start()
    return thread


def test_it_survives_the_observer_and_tells_of_draining(
    start: Callable[..., Any], sim: Sim, visit: Callable[..., Visitor]
) -> None:
    sidecar: Sidecar = start(Sidecar, "serve", "--upstream", sim.url)
    visitor = visit(sidecar.admin)
    stream = Stream(sidecar.url, tokens=1500).begin()
    visitor.becomes(decoding="1", connection="live")
    (killed,) = sidecar.pids("observer")
    os.kill(killed, signal.SIGKILL)
    visitor.becomes(connection="reconnecting")
    visitor.sees("#connection", "reconnecting")
    visitor.sees("#verdict-title", "No news from the observer")
    visitor.becomes(connection="live")
    visitor.becomes(decoding="1")
    visitor.sees("#verdict-title", "1 stream flowing")
    sidecar.send(signal.SIGTERM)
    visitor.sees("#verdict-title", "Draining")
    visitor.sees("#verdict-more", "1 stream still flowing")
    sidecar.send(signal.SIGTERM)
    sidecar.wait()
    assert not stream.end().done
    visitor.becomes(connection="reconnecting")
    visitor.cut_off = True


def test_five_hundred_streams_show_the_affected_first_and_stay_bounded(visit: Callable[..., Visitor]) -> None:
    with Crowd(500) as crowd:
        visitor = visit(crowd.url)
        visitor.becomes(decoding="500")
        visitor.sees("#lanes-count", r"\d\d of 500 shown, the affected first")
        crowd.frozen = 7
        visitor.becomes(frozen="7")
        visitor.sees("#verdict-title", "7 of 500 streams frozen")
        visitor.page.get_by_text("As a table").click()
        rows = visitor.page.locator("#table tbody tr")
        expect(rows.filter(has_text="stalled")).to_have_count(7, timeout=PATIENCE_MS)
        assert rows.count() == 20
        drawn = visitor.frames
        eventually(lambda: visitor.frames > drawn + 20)
        assert visitor.page.locator("*").count() < MOST_NODES
        crowd.frozen = 0
        visitor.becomes(frozen="0")
        visitor.sees("#incident-list > li:not(.ongoing) >> nth=0", "Freeze.* of 500 streams")


def test_the_keyboard_pauses_and_looks_back(visit: Callable[..., Visitor]) -> None:
    with Crowd(3) as crowd:
        visitor = visit(crowd.url)
        visitor.becomes(decoding="3")
        pause = visitor.page.locator("#pause")
        visitor.page.locator("#stage").focus()
        for key, pressed in (
            (" ", "true"),
            (" ", "false"),
            ("ArrowLeft", "true"),
            ("ArrowRight", "true"),
            ("End", "false"),
        ):
            visitor.page.keyboard.press(key)
            expect(pause).to_have_attribute("aria-pressed", pressed)
        visitor.page.get_by_label("30 s").focus()
        visitor.page.keyboard.press("ArrowLeft")
        expect(visitor.page.get_by_label("10 s")).to_be_checked()


@pytest.mark.parametrize("width", [1280, 360])
def test_names_from_elsewhere_are_text_and_find_room_however_long(visit: Callable[..., Visitor], width: int) -> None:
    markup = "<img src=/x onerror=alert(1)>"
    models = (f"{markup}{'M' * 200}", f"{markup}</option></select>{markup}")
    with Crowd(2, name=markup + "N" * 90, models=models) as crowd:
        visitor = visit(crowd.url, viewport={"width": width, "height": 800})
        visitor.becomes(decoding="2")
        visitor.page.get_by_text("As a table").click()
        visitor.sees("#table tbody tr:first-child th", re.escape(markup))
        visitor.page.get_by_label("Model").select_option(models[0])
        visitor.sees("#gaps td:nth-child(2) >> nth=0", r"\d+\sms")
        assert visitor.page.locator("img").count() == 0
        wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert visitor.page.evaluate(wide) == 0


def test_a_server_that_is_down_matters_more_than_a_freeze_that_is_over(visit: Callable[..., Visitor]) -> None:
    with Crowd(3) as crowd:
        visitor = visit(crowd.url)
        visitor.becomes(decoding="3")
        crowd.frozen = 3
        visitor.becomes(frozen="3")
        crowd.frozen = 0
        visitor.sees("#incident-list > li:not(.ongoing) >> nth=0", "Freeze")
        # It ended just now, and will have ended just now for as long as this test takes.
        visitor.page.evaluate(
            "import('/page/known.js').then(({ known }) => [...known.incidents.values()][0].duration_seconds = 1e6)"
        )
        visitor.sees("#verdict-title", "3 streams froze for up to")
        crowd.up = False
        visitor.sees("#verdict-title", "Not serving")
        visitor.sees("#verdict-more", "Upstream does not answer its health check. 3 streams still flowing")


def test_a_recording_that_has_ended_says_so_and_its_time_stands_until_it_is_played_again(
    start: Callable[..., Any], visit: Callable[..., Visitor], tmp_path: Path
) -> None:
    live = Live(tmp_path)
    freeze(live)
    live.close()

    def play(speed: str, address: str = "http://127.0.0.1:0") -> Command:
        where = address.removeprefix("http://")
        return start(Command, "replay", str(live.path), "--admin", where, "--speed", speed)

    clocks = "import('/page/known.js').then(({ known, present }) => [present(), known.lastT])"
    player = play("0.2")
    address = player.wait_for(r"metrics: (http://\S+)/metrics")
    visitor = visit(address)
    visitor.sees("#connection", "^replay$")
    player.stop()
    visitor.becomes(connection="reconnecting")
    visitor.sees("#verdict-more", "The replay was stopped")

    player = play("4", address)
    visitor.sees("#connection", "^recording ended$")
    visitor.sees("#verdict-title", "The recording has ended")
    eventually(lambda: len(set(visitor.page.evaluate(clocks))) == 1)
    visitor.sees("#incident-list > li.prefill", "Freeze: prefill.*the-culprit")
    late = visit(address)
    late.sees("#verdict-title", "The recording has ended")
    expect(late.page.locator("#incident-list > li")).to_have_count(1)
    expect(late.page.get_by_role("button", name="Show in lanes")).to_have_count(0)  # they have nothing to show
    (ended,) = set(visitor.page.evaluate(clocks))
    player.stop()

    play("0.2", address)
    visitor.sees("#connection", "^replay$")
    assert visitor.page.evaluate(clocks)[1] < ended
    visitor.sees("#no-incidents", "None yet")
    visitor.cut_off = late.cut_off = True


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nobody_is_left_out(visit: Callable[..., Visitor], scheme: str) -> None:
    """By the rules of axe-core, in every state that the page has."""
    with Crowd(60, models=("one", "other")) as crowd:
        visitor = visit(crowd.url, color_scheme=scheme, viewport={"width": 1280, "height": 900})
        visitor.becomes(decoding="60")
        visitor.page.get_by_text("As a table").click()
        visitor.sees("#table tbody tr:first-child", "flowing")
        found = [faults(visitor.page)]
        crowd.frozen = 9
        visitor.becomes(frozen="9")
        visitor.sees("#incident-list > li:first-child", "ongoing")
        found.append(faults(visitor.page))
        crowd.frozen = 0
        visitor.sees("#incident-list > li:not(.ongoing) >> nth=0", "Freeze.* of 60 streams")
        visitor.page.get_by_role("button", name="Pause").click()
        found.append(faults(visitor.page))
        crowd.up = False
        visitor.sees("#verdict-title", "Not serving")
        found.append(faults(visitor.page))
    visitor.becomes(connection="reconnecting")
    visitor.cut_off = True
    found.append(faults(visitor.page))
    assert found == [""] * 5


def faults(page: Page) -> str:
    results = Axe().run(page)
    return results.generate_report() if results.violations_count else ""


def test_nothing_is_done_for_a_page_that_was_closed(visit: Callable[..., Visitor]) -> None:
    with Crowd(2) as crowd:
        visitor = visit(crowd.url)
        visitor.becomes(connection="live")
        observation = crowd.observation
        assert observation is not None
        assert len(observation.viewers) == 1
        visitor.page.close()
        eventually(lambda: len(observation.viewers) == 0)
        assert observation.core._ledger.onlooker is None


def test_with_a_password_the_browser_asks_for_it_and_the_page_lives(
    start: Callable[..., Any], sim: Sim, visit: Callable[..., Visitor], tmp_path: Path
) -> None:
    file = tmp_path / "login"
    file.write_text("admin:s3cret\n")
    sidecar: Sidecar = start(Sidecar, "serve", "--upstream", sim.url, "--admin-basic-auth-file", str(file), ready=False)
    visitor = visit(sidecar.admin, http_credentials={"username": "admin", "password": "s3cret"})
    visitor.becomes(connection="live")
    for path in ("/", "/page/page.js", "/api/live"):
        assert httpx.get(f"{sidecar.admin}{path}").status_code == 401


def test_without_scripts_there_is_a_table(visit: Callable[..., Visitor]) -> None:
    with Crowd(4) as crowd:
        visitor = visit(crowd.url, java_script_enabled=False)
        expect(visitor.page.locator("main.plain")).to_be_visible()
        expect(visitor.page.locator(".live")).to_be_hidden()
        visitor.sees("main.plain table >> nth=0", r"m.*4")
