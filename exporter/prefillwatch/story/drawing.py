"""Lanes of streams over the steps of an engine, as SVG: the picture of an incident, and that of the worked example."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import Final

from prefillwatch.report import duration

_LEFT: Final = 150
_WIDTH: Final = 640  # of the time that is shown
_LANE: Final = 22
_TOP: Final = 40
_MARGIN: Final = 20
#: A step narrower than this has no room for words.
_ROOM_FOR_WORDS: Final = 62
#: Between the shades of two steps.
_APART: Final = 1.5
#: Ticks closer than this are drawn as a line.
_CLOSE: Final = 1.5
_LONGEST_NAME: Final = 20
_INK: Final = "#1c2024"
_MUTED: Final = "#5f6972"
_CALM: Final = "#1f5fa8"
_SHADE: Final = "#fde3c8"
_PROMPT: Final = "#c2571a"


@dataclass(frozen=True, slots=True)
class Lane:
    """A stream: moments of its tokens, and from when until when it stood still."""

    name: str
    ticks: Sequence[float] = ()
    gaps: Sequence[tuple[float, float]] = ()


@dataclass(frozen=True, slots=True)
class Span:
    """A step with a prompt in it, and words below it."""

    begin: float
    end: float
    words: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Bar:
    """A prompt, from when it was sent to its first token; None: there was none by the end of the picture."""

    name: str
    sent: float
    first: float | None


@dataclass(frozen=True, slots=True)
class Lanes:
    """All of a picture, in seconds."""

    title: str
    begin: float
    end: float
    lanes: Sequence[Lane]
    steps: Sequence[Span] = ()
    prompts: Sequence[Bar] = ()
    more: str = ""  # what is not shown


def draw(what: Lanes) -> str:
    """An <svg> element that stands alone, with text as text."""
    scale = _WIDTH / max(what.end - what.begin, 1e-9)

    def x(moment: float) -> float:
        return round(_LEFT + (min(max(moment, what.begin), what.end) - what.begin) * scale, 1)

    bottom = _TOP + len(what.lanes) * _LANE
    words = max((len(step.words) for step in what.steps), default=0)
    prompts_top = bottom + 10 + 15 * words
    axis = prompts_top + _LANE * len(what.prompts) + 10
    width, height = _LEFT + _WIDTH + _MARGIN, axis + 26 + (18 if what.more else 0)
    parts = [_tag("rect", width=width, height=height, fill="#ffffff")]
    parts.append(_tag("text", what.title, x=8, y=20, font_weight="bold", fill=_INK))
    parts += _axis(what, axis, x)
    for step in what.steps:
        begin, end = x(step.begin), x(step.end)
        wide = round(max(end - begin - _APART, 1), 1)
        parts.append(_tag("rect", x=begin, y=_TOP - 6, width=wide, height=bottom - _TOP + 6, fill=_SHADE))
        if end - begin >= _ROOM_FOR_WORDS:
            middle = round((begin + end) / 2, 1)
            for row, text in enumerate(step.words):
                parts.append(_tag("text", text, x=middle, y=bottom + 14 + 15 * row, text_anchor="middle", fill=_INK))
    for row, lane in enumerate(what.lanes):
        y = _TOP + row * _LANE + 8
        parts.append(_tag("text", _shortened(lane.name), x=8, y=y + 4, fill=_INK))
        parts.append(_tag("line", x1=x(what.begin), y1=y, x2=x(what.end), y2=y, stroke="#dddddd"))
        for begin, end in lane.gaps:
            parts.append(_tag("line", x1=x(begin), y1=y, x2=x(end), y2=y, stroke=_PROMPT, stroke_dasharray="3 3"))
        path = _ticks([x(tick) for tick in lane.ticks if what.begin <= tick <= what.end], y)
        if path:
            parts.append(_tag("path", d=path, stroke=_CALM, stroke_width=1.5, fill="none"))
    for row, prompt in enumerate(what.prompts):
        y = prompts_top + _LANE * row + 8
        parts.append(_tag("text", _shortened(prompt.name), x=8, y=y + 4, fill=_INK))
        begin, end = x(prompt.sent), x(what.end if prompt.first is None else prompt.first)
        parts.append(_tag("line", x1=begin, y1=y, x2=end, y2=y, stroke=_PROMPT, stroke_width=4))
        if prompt.first is not None and prompt.first <= what.end:
            parts.append(_tag("circle", cx=end, cy=y, r=5, fill=_PROMPT))
    if what.more:
        parts.append(_tag("text", what.more, x=8, y=height - 8, fill=_MUTED))
    label = escape(what.title, quote=True)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        f'font-size="12" role="img" aria-label="{label}">\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _axis(what: Lanes, y: float, x: Callable[[float], float]) -> list[str]:
    parts = [_tag("line", x1=x(what.begin), y1=y, x2=x(what.end), y2=y, stroke=_MUTED)]
    for moment in round_moments(what.begin, what.end):
        at = x(moment)
        parts.append(_tag("line", x1=at, y1=y, x2=at, y2=y + 4, stroke=_MUTED))
        parts.append(_tag("text", duration(moment), x=at, y=y + 17, text_anchor="middle", fill=_MUTED))
    return parts


def round_moments(begin: float, end: float) -> list[float]:
    """Four to ten moments between, at round distances."""
    span = max(end - begin, 1e-9)
    unit = 10 ** math.floor(math.log10(span))
    every = next(part * unit for part in (0.1, 0.2, 0.5, 1.0) if span / (part * unit) <= 10)
    return [round(number * every, 9) for number in range(math.ceil(begin / every), math.floor(end / every) + 1)]


def _ticks(xs: Iterable[float], y: float) -> str:
    """A tick for each read; where they are too close to be told apart, one line through them."""
    told: list[str] = []
    xs = list(xs)
    joined = {index for index, (before, after) in enumerate(pairwise(xs)) if after - before < _CLOSE}
    index = 0
    while index < len(xs):
        last = index
        while last in joined:
            last += 1
        told.append(f"M{xs[index]:g} {y - 4:g}v8")
        if last > index:
            told.append(f"M{xs[index]:g} {y:g}H{xs[last]:g}M{xs[last]:g} {y - 4:g}v8")
        index = last + 1
    return "".join(told)


def _shortened(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 8]}…{name[-7:]}"


def _tag(name: str, text: str | None = None, **attributes: object) -> str:
    told = " ".join(f'{key.replace("_", "-")}="{value}"' for key, value in attributes.items())
    return f"<{name} {told}/>" if text is None else f"<{name} {told}>{escape(text)}</{name}>"
