"""Blocks as Markdown for a postmortem, and as a page for a browser. What others chose is shown and never obeyed."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from prefillwatch.story.blocks import Block, Heading, Name, Picture, Points, Said, Table, Text, parts_of

_TICKS: Final = re.compile("`+")


def markdown(blocks: Sequence[Block], picture: str | None = None) -> str:
    """``picture`` is where the picture will be; "" puts it inside, None leaves it out."""
    return "\n\n".join(filter(None, (_markdown(block, picture) for block in blocks))) + "\n"


def _markdown(block: Block, picture: str | None) -> str:
    if isinstance(block, Heading):
        return f"{'#' * block.level} {block.text}"
    if isinstance(block, Text):
        return _inline(block.said).rstrip()
    if isinstance(block, Points):
        return "\n".join(f"- {_inline(item)}" for item in block.items)
    if isinstance(block, Table):
        return "\n".join(_markdown_rows(block))
    if picture is None:
        return ""
    inside = "data:image/svg+xml;base64," + base64.b64encode(block.svg.encode()).decode()
    return f"![{block.label}]({picture or inside})"


def _markdown_rows(table: Table) -> Iterator[str]:
    yield "| " + " | ".join(table.head) + " |"
    yield "|" + "|".join(" --- " if column < table.words else " ---: " for column in range(len(table.head))) + "|"
    for row in table.rows:
        yield "| " + " | ".join(_inline(cell).replace("|", "\\|") for cell in row) + " |"


def _inline(said: Said) -> str:
    return "".join(_code(part.text) if isinstance(part, Name) else part for part in parts_of(said))


def _code(text: str) -> str:
    """A code span that nothing in it can end."""
    text = _shown(text)
    fence = "`" * (max((len(found) for found in _TICKS.findall(text)), default=0) + 1)
    padding = " " if text.startswith("`") or text.endswith("`") or not text else ""
    return f"{fence}{padding}{text}{padding}{fence}"


def _shown(text: str) -> str:
    return "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in text)


def html(blocks: Sequence[Block], title: str) -> str:
    """A whole page of the admin listener."""
    body = "\n".join(_html(block) for block in blocks)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)} – prefillwatch</title>\n"
        '<link rel="icon" href="data:,">\n<link rel="stylesheet" href="page/page.css">\n</head>\n'
        '<body class="story">\n<nav aria-label="Back"><a href=".">prefillwatch</a></nav>\n'
        f'<main class="plain">\n{body}\n</main>\n</body>\n</html>\n'
    )


def _html(block: Block) -> str:
    if isinstance(block, Heading):
        return f"<h{block.level}>{escape(block.text)}</h{block.level}>"
    if isinstance(block, Text):
        return f"<p>{_html_inline(block.said)}</p>"
    if isinstance(block, Points):
        return f"<ul>{''.join(f'<li>{_html_inline(item)}</li>' for item in block.items)}</ul>"
    if isinstance(block, Picture):
        return f'<figure class="picture">{block.svg}</figure>'
    head = "".join(f'<th scope="col">{escape(title)}</th>' for title in block.head)
    rows = "".join(f"<tr>{''.join(f'<td>{_html_inline(cell)}</td>' for cell in row)}</tr>" for row in block.rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def _html_inline(said: Said) -> str:
    return "".join(
        f"<code>{escape(_shown(part.text))}</code>" if isinstance(part, Name) else escape(part)
        for part in parts_of(said)
    )
