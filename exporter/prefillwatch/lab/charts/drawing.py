"""One look for all charts: empty axes to draw on, and what comes of them as SVG or PNG.

Colours have roles. A chart alone has the light ones; inside a page that defines them as CSS variables (see
`lab.report.page`) the same SVG follows light and dark.
"""

from __future__ import annotations

import html
import io
import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from prefillwatch.errors import PrefillwatchError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: role: (light, dark). The light ones are all different, so that they can be found in an SVG.
PALETTE: Final = MappingProxyType(
    {
        "surface": ("#fefefe", "#15191e"),
        "ink": ("#1c2024", "#e6e9ec"),
        "muted": ("#5f6972", "#9aa5af"),
        "grid": ("#e2e6ea", "#30373f"),
        "calm": ("#2a6fdb", "#73a9ff"),
        "stall": ("#c8500f", "#ff9a5c"),
        "shade": ("#fdeee3", "#3a2a20"),
    }
)
SURFACE, INK, MUTED, GRID, CALM, STALL, SHADE = (light for light, _ in PALETTE.values())

_ROLE_OF: Final = {light: role for role, (light, _) in PALETTE.items()}
_COLOUR: Final = re.compile("|".join(_ROLE_OF))
#: What matplotlib writes before the drawing itself: declaration, document type, and the day it was made.
_PREAMBLE: Final = re.compile(r"\A.*?(?=<svg )", re.DOTALL)
_METADATA: Final = re.compile(r"\s*<metadata>.*?</metadata>", re.DOTALL)


class ChartsMissingError(PrefillwatchError):
    """matplotlib is not installed."""

    def __init__(self) -> None:
        super().__init__(
            "charts need matplotlib: pip install 'prefillwatch[charts]', or leave out the option for charts"
        )


def require_charts() -> None:
    """Raises ChartsMissingError where charts cannot be drawn, so that it is known before a long experiment."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise ChartsMissingError from None


def axes(
    *, width: float = 7.6, height: float = 3.0, rows: int = 1, shared: bool = False, **more: Any
) -> tuple[Figure, list[Axes]]:
    """A figure (inches) with so many axes below each other, `shared` with one x axis, in our look."""
    require_charts()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained", facecolor=SURFACE)
    made = figure.subplots(rows, 1, squeeze=False, sharex=shared, gridspec_kw=more or None)
    drawn = [row[0] for row in made]
    for each in drawn:
        _dress(each)
    return figure, drawn


def _dress(each: Axes) -> None:
    each.set_facecolor(SURFACE)
    for side in ("top", "right"):
        each.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        each.spines[side].set_color(MUTED)
    each.tick_params(colors=MUTED, labelsize=9, which="both")
    each.grid(visible=True, color=GRID, linewidth=0.8)
    each.set_axisbelow(True)
    for label in (each.xaxis.label, each.yaxis.label):
        label.set_color(MUTED)
        label.set_fontsize(9.5)


def legend(each: Axes, **more: Any) -> None:
    """Without a box, in the ink of the text; none where nothing was drawn."""
    if each.get_legend_handles_labels()[0]:
        each.legend(frameon=False, fontsize=9, labelcolor=INK, **more)


def to_svg(figure: Figure, *, label: str, standalone: bool = False) -> str:
    """The drawing as an <svg> element with text as text. `label` says what it shows to who cannot see it.

    Inside a page colours are CSS variables; a `standalone` one has the light colours.
    """
    import matplotlib as mpl

    file = io.StringIO()
    # Ids would be the same in every drawing of a page; the salt makes them differ, and the same from run to run.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": label, "font.family": "sans-serif"}):
        figure.savefig(file, format="svg", metadata={"Date": None})
    svg = _METADATA.sub("", _PREAMBLE.sub("", file.getvalue(), count=1), count=1)
    svg = svg.replace("<svg ", f'<svg role="img" aria-label="{html.escape(label)}" ', 1)
    if standalone:
        return svg
    return _COLOUR.sub(lambda found: f"var(--{_ROLE_OF[found.group()]})", svg)


def to_png(figure: Figure, *, dots_per_inch: int = 144) -> bytes:
    """The drawing in the light colours."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=dots_per_inch)
    return file.getvalue()
