"""The tables in docs/autoscaling.md and its picture, from outcomes that are kept in a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
from tests.autoscaling.laws import CapacityPressure, Fixed, LatencyOverPromise, Law, QueueLength
from tests.autoscaling.run import Moment, Outcome, play
from tests.autoscaling.traffic import SCENES, Scene, made

DOCS: Final = Path(__file__).resolve().parents[2] / "docs"
PAGE: Final = DOCS / "autoscaling.md"
PICTURE: Final = DOCS / "autoscaling.svg"
KEPT: Final = Path(__file__).with_name("outcomes.json")

#: Rows of the table, by the name that they have there.
LAWS: Final[dict[str, Callable[[], Law]]] = {
    "always two": lambda: Fixed(2),
    "always eight": lambda: Fixed(8),
    QueueLength.name: QueueLength,
    LatencyOverPromise.name: LatencyOverPromise,
    CapacityPressure.name: CapacityPressure,
}
_FIXED: Final = ("always two", "always eight")
_COLOURS: Final = {QueueLength.name: "#b45309", LatencyOverPromise.name: "#1d4ed8", CapacityPressure.name: "#047857"}
_HEAD: Final = (
    ("law", "kept", "… and smooth", "replicas", "bought", "not needed"),
    ("missed: capacity", "interference", "own length"),
)

#: Played anew by every run of the tests: twice what two engines can do, from its second minute on.
RISING: Final = Scene(
    "rising", "capacity is short", "made", lambda: made(1, 300.0, lambda at: 0.5 if at < 60 else 2.8), length=300.0
)
RISING_LAWS: Final = ("always two", QueueLength.name, LatencyOverPromise.name)


def outcome(scene: Scene, law: str) -> Outcome:
    found = play(scene, LAWS[law]())
    found.law = law
    return found


def cells(each: Outcome) -> tuple[str, ...]:
    share = f"{each.attainment:.1%}", f"{each.smoothness:.1%}"
    bought = ("", "") if each.law in _FIXED else (str(each.bought), str(each.in_vain))
    missed = tuple(
        f"{each.missed.get(why, 0) / each.requests:.1%}" for why in ("capacity", "interference", "own length")
    )
    return (each.law, *share, f"{each.replicas:.2f}", *bought, *missed)


def table(outcomes: Iterable[Outcome]) -> str:
    head = [cell for part in _HEAD for cell in part]
    rows = [head, ["---"] * len(head), *map(cells, outcomes)]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def keep(outcomes: Sequence[Outcome]) -> None:
    KEPT.write_bytes(b"[\n" + b",\n".join(map(msgspec.json.encode, outcomes)) + b"\n]\n")


def kept() -> list[Outcome]:
    return msgspec.json.decode(KEPT.read_bytes(), type=list[Outcome])


def rising() -> str:
    return table(outcome(RISING, law) for law in RISING_LAWS)


# --- The page ---


def tables(outcomes: Sequence[Outcome]) -> str:
    return "\n\n".join(
        f"### {scene.name.capitalize()}\n\n{scene.origin}. Trouble: {scene.trouble}.\n\n"
        + table(each for each in outcomes if each.scene == scene.name)
        for scene in SCENES
        if any(each.scene == scene.name for each in outcomes)
    )


def page(outcomes: Sequence[Outcome], rising: str) -> str:
    """As it is, with what is between its marks made anew."""
    text = PAGE.read_text()
    for name, anew in (("scenes", tables(outcomes)), ("small run", rising)):
        start, rest = text.split(f"<!-- {name} -->\n")
        _, end = rest.split(f"<!-- end of {name} -->\n")
        text = f"{start}<!-- {name} -->\n\n{anew}\n\n<!-- end of {name} -->\n{end}"
    return text


# --- The picture ---

_SHOWN: Final = ("a day of chat", "long prompts, room to spare", "a day with long prompts")
_WIDE, _HIGH, _LEFT, _TOP = 760, 150, 40, 34
_MOST: Final = 8


def picture(outcomes: Sequence[Outcome]) -> str:
    """Provisioned replicas over time by law, a panel for each scene; grey is what is asked, in its own scale."""
    shown = [each for each in _SHOWN if any(each == other.scene for other in outcomes)]
    height = _TOP + len(shown) * (_HIGH + 44)
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDE} {height}"',
            'font-family="sans-serif" font-size="12" role="img" aria-label="Replicas over time by autoscaling law">',
            f'<rect width="{_WIDE}" height="{height}" fill="#ffffff"/>',
            *_legend(),
            *(part for number, scene in enumerate(shown) for part in _panel(number, scene, outcomes)),
            "</svg>",
            "",
        )
    )


def _legend() -> Iterator[str]:
    for number, (law, colour) in enumerate(_COLOURS.items()):
        x = _LEFT + 190 * number
        yield f'<line x1="{x}" y1="16" x2="{x + 22}" y2="16" stroke="{colour}" stroke-width="2.5"/>'
        yield f'<text x="{x + 28}" y="20" fill="#111827">{law}</text>'
    yield f'<rect x="{_LEFT + 570}" y="10" width="22" height="12" fill="#e5e7eb"/>'
    yield f'<text x="{_LEFT + 598}" y="20" fill="#111827">requests</text>'


def _panel(number: int, scene: str, outcomes: Sequence[Outcome]) -> Iterator[str]:
    top = _TOP + 22 + number * (_HIGH + 44)
    own = {each.law: each for each in outcomes if each.scene == scene}
    until = max(each.length for each in own.values())

    def x(at: float) -> float:
        return _LEFT + (_WIDE - _LEFT - 10) * at / until

    def y(part: float) -> float:
        return top + _HIGH * (1 - part)

    yield f'<text x="{_LEFT}" y="{top - 6}" font-weight="bold" fill="#111827">{scene}</text>'
    moments = next(each.moments for each in own.values() if each.moments)
    minutes = [sum(each.offered for each in moments[at : at + 4]) for at in range(0, len(moments), 4)]
    points = " ".join(f"{x(60.0 * at):.0f},{y(each / max(minutes)):.0f}" for at, each in enumerate(minutes))
    yield f'<polygon points="{x(0):.0f},{y(0):.0f} {points} {x(until):.0f},{y(0):.0f}" fill="#e5e7eb"/>'
    for replicas in range(0, _MOST + 1, 2):
        at = y(replicas / _MOST)
        yield f'<line x1="{_LEFT}" x2="{_WIDE - 10}" y1="{at:.0f}" y2="{at:.0f}" stroke="#d1d5db"/>'
        yield f'<text x="{_LEFT - 8}" y="{at + 4:.0f}" text-anchor="end" fill="#374151">{replicas}</text>'
    for minute in range(0, int(until / 60) + 1, 5):
        place = f'x="{x(60.0 * minute):.0f}" y="{top + _HIGH + 15}"'
        yield f'<text {place} text-anchor="middle" fill="#374151">{minute} min</text>'
    for law, colour in _COLOURS.items():
        if not own[law].moments:
            continue
        line = " ".join(f"{x(at):.0f},{y(replicas / _MOST):.1f}" for at, replicas in _corners(own[law].moments))
        yield f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>'


def _corners(moments: Sequence[Moment]) -> Iterator[tuple[float, int]]:
    before = moments[0].provisioned
    yield 0.0, before
    for each in moments:
        if each.provisioned != before:
            yield each.at, before
            yield each.at, each.provisioned
            before = each.provisioned
    yield moments[-1].at, before
