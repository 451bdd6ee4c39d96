"""The look of charts, and what happens without matplotlib."""

from __future__ import annotations

import sys

import pytest

from prefillwatch.lab.charts.drawing import CALM, PALETTE, ChartsMissingError, axes, require_charts, to_png, to_svg


def test_a_chart_alone_has_the_light_colours_and_one_in_a_page_those_of_the_page() -> None:
    figure, (each,) = axes()
    each.plot([1, 2], [3, 4], color=CALM)
    alone, inside = to_svg(figure, label="A & B", standalone=True), to_svg(figure, label="A & B")
    assert CALM in alone
    assert "var(--calm)" in inside
    assert CALM not in inside
    assert 'aria-label="A &amp; B"' in inside


def test_the_same_chart_is_the_same_text() -> None:
    def drawn() -> str:
        figure, (each,) = axes()
        each.plot([1, 2], [3, 4])
        return to_svg(figure, label="x")

    assert drawn() == drawn()


def test_a_picture_for_where_svg_is_not_shown() -> None:
    figure, _ = axes()
    assert to_png(figure).startswith(b"\x89PNG")


def test_light_colours_can_be_told_apart_in_an_svg() -> None:
    light = [colours[0] for colours in PALETTE.values()]
    assert len(set(light)) == len(light)
    assert all(colour == colour.lower() for colour in light)


def test_without_matplotlib_the_error_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ChartsMissingError, match=r"pip install 'prefillwatch\[charts\]'"):
        require_charts()
