"""The pages for people: every link leads somewhere, and every command shown is one that we have."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from prefillwatch.cli import main

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(path for top in ("docs", "alerts", "deploy", "grafana") for path in (ROOT / top).rglob("*.md")),
    ]
)
_BLOCK = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_COMMAND = re.compile(r"\bprefillwatch (\w+)\b([^`\n|#]*)")


def page_name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings: lower case, words joined by hyphens, no other signs."""
    headings = re.findall(r"^#+ +(.+)$", _BLOCK.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_there_are_pages() -> None:
    assert {"README.md", "CHANGELOG.md", "docs/experiments.md", "alerts/README.md"} <= set(map(page_name, PAGES))


def links_within(page: Path) -> list[str]:
    found = _LINK.findall(_BLOCK.sub("", page.read_text()))
    return [link for link in found if not link.startswith(("https://", "http://"))]


@pytest.mark.parametrize("page", [page for page in PAGES if links_within(page)], ids=page_name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in links_within(page):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def commands_shown(text: str) -> Iterator[tuple[str, list[str]]]:
    """Name and options of each; what comes after ``--`` belongs to another program."""
    for name, rest in _COMMAND.findall(text.replace("\\\n", " ")):
        if name in main.list_commands(click.Context(main)):
            ours, *_ = re.split(r" -- ", rest, maxsplit=1)
            yield name, re.findall(r"(?<![\w-])--[a-z][\w-]*", ours)


def shows_commands(page: Path) -> bool:
    return any(commands_shown(page.read_text()))


@pytest.mark.parametrize("page", [page for page in PAGES if shows_commands(page)], ids=page_name)
def test_options_shown_exist(page: Path) -> None:
    for name, options in commands_shown(page.read_text()):
        command = main.get_command(click.Context(main), name)
        assert command is not None
        known = {spelled for option in command.params for spelled in (*option.opts, *option.secondary_opts)}
        assert set(options) <= known | {"--help"}, name


def test_commands_are_recognised() -> None:
    text = "`prefillwatch run --listen :1 -- vllm serve M --port 1` and prefillwatch sim \\\n  --preset small\n"
    assert list(commands_shown(text)) == [("run", ["--listen"]), ("sim", ["--preset"])]


def test_the_readme_names_every_command() -> None:
    text = (ROOT / "README.md").read_text()
    for name in main.list_commands(click.Context(main)):
        assert re.search(rf"(prefillwatch |`){name}\b", text), name


def test_the_readme_is_read_to_its_end() -> None:
    """What is reference or explanation has a page of its own in docs/."""
    assert len((ROOT / "README.md").read_bytes()) <= 9 * 1024
