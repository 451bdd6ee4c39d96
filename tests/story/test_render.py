"""Blocks as Markdown and HTML: what others chose is shown and never obeyed."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from tests.story.facts import account, incident, stream

from prefillwatch.story import html, markdown, tell
from prefillwatch.story.blocks import Block, Heading, Name, Picture, Points, Table, Text

EVIL = ["<script>alert(1)</script>", "a|b", "``` `x`", "`", "line\nbreak", "![x](http://elsewhere/)", "\x1b[31m", ""]


def test_blocks_as_markdown() -> None:
    blocks: list[Block] = [
        Heading("Title", 1),
        Text(["by ", Name("me")]),
        Points(["one", "two"]),
        Table(("name", "figure"), [[Name("x"), "1"]]),
        Picture("<svg/>", "a picture"),
    ]
    assert markdown(blocks, "it.svg") == (
        "# Title\n\nby `me`\n\n- one\n- two\n\n| name | figure |\n| --- | ---: |\n| `x` | 1 |\n\n![a picture](it.svg)\n"
    )


def test_a_picture_is_beside_inside_or_left_out() -> None:
    picture = [Picture("<svg/>", "p")]
    assert markdown(picture, "") == "![p](data:image/svg+xml;base64,PHN2Zy8+)\n"
    assert markdown(picture).strip() == ""


@pytest.mark.parametrize("name", EVIL)
def test_names_stay_names_in_markdown(name: str) -> None:
    (row,) = markdown([Table(("a", "b"), [[Name(name), "1"]])]).splitlines()[2:]
    assert row.replace("\\|", "").count("|") == 3, "a cell stays one cell"
    assert row.endswith("| 1 |")
    text = markdown([Text(["before ", Name(name), " after"])])
    assert len(text.splitlines()) == 1
    assert text.isprintable() or text[:-1].isprintable()
    span = text.removeprefix("before ").removesuffix(" after\n")
    fence = span[: len(span) - len(span.lstrip("`"))]
    inner = span.removeprefix(fence).removesuffix(fence)
    assert fence
    assert fence not in inner.replace("``" + fence, ""), "nothing in a code span ends it"


class Tags(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.addresses: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("href", "src")]


@pytest.mark.parametrize("name", EVIL)
def test_a_page_obeys_no_name(name: str) -> None:
    told = account(streams=(stream(name),), incident=incident(model=name, id=name))
    page = html(tell(told, name), name)
    tags = Tags(page)
    assert "script" not in tags.seen
    assert {"h1", "table", "svg", "figure"} <= tags.seen
    assert tags.addresses == ["data:,", "page/page.css", "."]
    assert "style=" not in page, "the policy of the admin listener would drop it"
