"""The page for people without scripts."""

from __future__ import annotations

from html.parser import HTMLParser

from prefillwatch import __version__
from prefillwatch.export import table
from prefillwatch.export.landing import fallback
from prefillwatch.export.registry import Registry

EVIL = '<script>alert("x")</script>'


class Page(HTMLParser):
    """Tags, addresses and text of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.addresses: list[str] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("href", "src")]

    def handle_data(self, data: str) -> None:
        self.text += data + " "


def test_a_fresh_page_says_who_it_is_and_that_nothing_was_seen() -> None:
    page = Page(fallback(Registry().snapshot(), ready=True))
    assert f"Version {__version__}, serving." in page.text
    assert "No model seen yet." in page.text
    assert "No engine seen yet." in page.text
    assert "/metrics" in page.addresses


def test_it_needs_no_other_host_and_no_script() -> None:
    page = Page(fallback(Registry().snapshot(), ready=True))
    assert "script" not in page.tags
    assert all(address.startswith(("/", "data:")) for address in page.addresses)


def test_figures_are_shown_and_unknown_ones_are_not_zero() -> None:
    registry = Registry()
    registry.gauge(table.DECODING_STREAMS).set(("llama",), 6)
    registry.gauge(table.PREFILLING_REQUESTS).set(("llama",), 2)
    registry.gauge(table.INTER_TOKEN_LATENCY_P99).set(("llama", "1m", "prefill"), 0.345)
    registry.gauge(table.UPSTREAM_REQUESTS).set(("0", "running"), 8)
    registry.gauge(table.KV_CACHE_USAGE).set(("0",), 0.917)
    registry.gauge(table.UPSTREAM_REQUESTS).set(("1", "running"), 0)
    text = Page(fallback(registry.snapshot(), ready=True)).text
    assert "llama 6 2 – 345 ms –" in text
    assert "0 92 % 8 – –" in text
    assert "1 – 0 – –" in text


def test_names_and_reasons_cannot_bring_markup() -> None:
    registry = Registry()
    registry.gauge(table.DECODING_STREAMS).set((EVIL,), 1)
    page = Page(fallback(registry.snapshot(), ready=False, reason=EVIL))
    assert "script" not in page.tags
    assert page.text.count(EVIL) == 2
