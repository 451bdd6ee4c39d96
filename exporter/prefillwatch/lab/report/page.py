"""A report as one HTML page that needs nothing from anywhere: style and charts inside, light and dark, no script."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Final

from prefillwatch import __version__
from prefillwatch.lab.charts.drawing import PALETTE

_STYLE: Final = """
:root { color-scheme: light dark; %(light)s }
@media (prefers-color-scheme: dark) { :root { %(dark)s } }
* { box-sizing: border-box }
body { margin: 0 auto; padding: 2rem 1.2rem 4rem; max-width: 60rem; background: var(--surface); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif }
h1 { font-size: 1.6rem; margin: 0 0 .2rem } h2 { font-size: 1.15rem; margin: 2.4rem 0 .6rem }
p { margin: .5rem 0 } .muted, figcaption, footer { color: var(--muted); font-size: .9rem }
.verdict { border-left: .3rem solid var(--stall); background: var(--shade); padding: .6rem 1rem; margin: 1.2rem 0 }
.verdict.calm { border-color: var(--calm) }
.scroll { overflow-x: auto } table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: .6rem 0 }
th, td { text-align: right; padding: .3rem .9rem .3rem 0; border-bottom: 1px solid var(--grid); white-space: nowrap }
th { color: var(--muted); font-weight: 500; font-size: .9rem; white-space: normal; vertical-align: bottom }
th:first-child, td:first-child { text-align: left }
td:first-child { white-space: normal; min-width: 6rem }
figure { margin: 1rem 0 } figure svg { width: 100%%; height: auto; display: block }
footer { margin-top: 3rem; border-top: 1px solid var(--grid); padding-top: .8rem }
"""


class Page:
    """Built from top to bottom. All text is escaped here; a figure's SVG is taken as it is."""

    def __init__(self, title: str, subtitle: str = "") -> None:
        self._title = title
        self._parts = [f"<h1>{html.escape(title)}</h1>"]
        if subtitle:
            self._parts.append(f'<p class="muted">{html.escape(subtitle)}</p>')

    def heading(self, text: str) -> None:
        self._parts.append(f"<h2>{html.escape(text)}</h2>")

    def text(self, *paragraphs: str, muted: bool = False) -> None:
        kind = ' class="muted"' if muted else ""
        self._parts += [f"<p{kind}>{html.escape(each)}</p>" for each in paragraphs if each]

    def verdict(self, text: str, *, calm: bool = False) -> None:
        """The sentence to remember."""
        self._parts.append(f'<p class="verdict{" calm" if calm else ""}">{html.escape(text)}</p>')

    def table(self, head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """The first column names the row."""
        heads = "".join(f'<th scope="col">{html.escape(cell)}</th>' for cell in head)
        body = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
        table = f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"
        self._parts.append(f'<div class="scroll">{table}</div>')

    def figure(self, svg: str, caption: str = "") -> None:
        """A chart from `charts.drawing.to_svg`."""
        below = f"<figcaption>{html.escape(caption)}</figcaption>" if caption else ""
        self._parts.append(f"<figure>{svg}{below}</figure>")

    def to_html(self) -> str:
        style = _STYLE % {"light": _variables(0), "dark": _variables(1)}
        return (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{html.escape(self._title)}</title>\n<style>{style}</style>\n</head>\n<body>\n<main>\n"
            + "\n".join(self._parts)
            + f"\n</main>\n<footer>prefillwatch {__version__}</footer>\n</body>\n</html>\n"
        )


def _variables(which: int) -> str:
    return "; ".join(f"--{role}: {colours[which]}" for role, colours in PALETTE.items())
