"""The files of the live page: small, self-contained, and fit for a strict content security policy."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from prefillwatch import __version__
from prefillwatch.export.page_files import PAGE_FILES, live_page, read_page_file
from prefillwatch.export.registry import Registry

MOST_BYTES = 66 * 1024
FILES = ("index.html", *PAGE_FILES)


class Document(HTMLParser):
    """Tags, addresses and attributes of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def text(name: str) -> str:
    return read_page_file(name).decode()


SCRIPTS = "".join(text(name) for name in PAGE_FILES if name.endswith(".js"))


@pytest.fixture
def page() -> Document:
    return Document(live_page(Registry().snapshot(), ready=True).decode())


def test_all_of_it_is_small() -> None:
    assert sum(len(read_page_file(name)) for name in FILES) <= MOST_BYTES


@pytest.mark.parametrize("name", FILES)
def test_no_other_host_is_named(name: str) -> None:
    assert not re.search(r"(https?:)?//[\w.-]+\.\w", text(name).replace("// ", ""))


def test_scripts_and_styles_are_files_of_ours(page: Document) -> None:
    assert [script.get("src") for script in page.all("script")] == ["/page/page.js"]
    assert page.all("style") == []
    for tag, attributes in page.elements:
        assert not [name for name in attributes if name.startswith("on") or name == "style"], tag


def test_text_from_elsewhere_never_becomes_markup() -> None:
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", text("page.js")
    )


def test_the_script_finds_what_it_looks_for(page: Document) -> None:
    ids = {attributes["id"] for _, attributes in page.elements if "id" in attributes}
    wanted = set(re.findall(r"\$\('([\w-]+)'\)", SCRIPTS))
    assert len(wanted) > 15
    assert wanted <= ids
    referred = [attributes[name] for _, attributes in page.elements for name in attributes if name == "aria-labelledby"]
    assert set(referred) <= ids


def test_scripts_import_what_others_export() -> None:
    for name in (name for name in PAGE_FILES if name.endswith(".js")):
        for names, source in re.findall(r"import \{ ([^}]*) \} from '\./([\w.]+)';", text(name)):
            exported = re.findall(r"(?m)^export (?:const|let|function) ([\w$]+)", text(source))
            assert set(names.split(", ")) <= set(exported), f"{name} from {source}"


def test_every_name_of_a_colour_is_defined_for_light_and_dark() -> None:
    css = text("page.css")
    light, dark = (set(re.findall(r"--[\w-]+(?=:)", block)) for block in re.findall(r":root \{([^}]*)\}", css))
    assert light == dark
    assert set(re.findall(r"var\((--[\w-]+)\)", css)) <= light


def test_without_scripts_there_are_figures_that_renew_themselves(page: Document) -> None:
    html = live_page(Registry().snapshot(), ready=False, reason="<b>down</b>").decode()
    assert f"Version {__version__}, " in html
    assert "not serving: &lt;b&gt;down&lt;/b&gt;" in html
    assert re.search(r"<noscript><meta http-equiv=\"refresh\"", html)
    assert "{" not in html


def test_landmarks_headings_and_the_live_region_are_there(page: Document) -> None:
    tags = [tag for tag, _ in page.elements]
    assert {"header", "main", "footer", "h1", "h2"} <= set(tags)
    (announcer,) = [attributes for _, attributes in page.elements if "aria-live" in attributes]
    assert announcer["aria-live"] == "polite"
    assert page.all("html")[0]["lang"] == "en"
