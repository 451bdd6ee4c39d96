"""The heartbeat as a picture: each step a tick at its true time, as tall as the step was long."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from prefillwatch.lab.charts.drawing import CALM, GRID, INK, MUTED, SHADE, STALL, SURFACE, axes, to_png, to_svg
from prefillwatch.lab.trace.errors import TraceError
from prefillwatch.lab.trace.findings import Findings, Part, TickFigures
from prefillwatch.lab.trace.terminal import prompts_of, shown_steps
from prefillwatch.report import duration

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: More ticks than this cannot be told apart in 1,200 pixels; then only those around the prefill are shown.
MOST_TICKS: Final = 240
WIDTH_PIXELS: Final = 1200
HEIGHT_PIXELS: Final = 400
_DOTS_PER_INCH: Final = 100
#: Share of the picture's width that a label takes, so that it can be kept inside its part.
_LABEL_SHARE: Final = 0.12

Side = Literal["left", "center", "right"]


def draw(findings: Findings, path: Path) -> None:
    """Write the picture; the name's ending says in which form (.svg, or PNG).

    Raises TraceError where there are no steps to draw or the file cannot be written, ChartsMissingError without
    matplotlib.
    """
    steps = [step for step in shown_steps(findings, MOST_TICKS) if step.interval_seconds is not None]
    if not steps:
        why = "one step has no beat" if findings.steps else "no steps were found"
        raise TraceError(f"{findings.file}: there is no heartbeat to draw, since {why}")
    figure, (drawn,) = axes(width=WIDTH_PIXELS / _DOTS_PER_INCH, height=HEIGHT_PIXELS / _DOTS_PER_INCH)
    # Fixed places: the same picture, whatever the labels.
    figure.set_layout_engine("none")
    drawn.set_position((0.058, 0.155, 0.92, 0.635))
    headline, source = _headline(findings), _source(findings, steps)
    figure.text(0.012, 0.925, headline, fontsize=16, fontweight="bold", color=INK, va="center")
    figure.text(0.012, 0.848, source, fontsize=11, color=MUTED, va="center")
    _Picture(drawn, findings, steps).draw()
    if path.suffix.lower() == ".svg":
        data = to_svg(figure, label=f"{headline}. {source}.", standalone=True).encode()
    else:
        data = to_png(figure, dots_per_inch=_DOTS_PER_INCH)
    try:
        path.write_bytes(data)
    except OSError as error:
        raise TraceError(f"{path}: the picture cannot be written ({error.strerror or error})") from None


def _headline(findings: Findings) -> str:
    cadence = findings.cadence
    assert cadence is not None
    slow = cadence.during.median_seconds
    calm = cadence.after.median_seconds or cadence.before.median_seconds
    if slow is None or calm is None:
        return "Engine heartbeat"
    if slow / calm < 1.1:
        return "The heartbeat stays as it is while a prompt is read"
    return f"While a prompt is read, every beat is {slow / calm:.1f} times as long"


def _source(findings: Findings, steps: list[TickFigures]) -> str:
    what = "GPU kernels" if findings.source == "gpu" else "CPU ops"
    version = f" of vLLM {findings.vllm_version}" if findings.vllm_version else ""
    whole = len(findings.steps)
    part = f"; {len(steps)} of them shown" if whole - len(steps) > 1 else ""
    return f"{whole} engine steps, found in {findings.kernels:,} {what}{version}{part}"


class _Picture:
    def __init__(self, drawn: Axes, findings: Findings, steps: list[TickFigures]) -> None:
        self.axes = drawn
        self.findings = findings
        self.steps = steps
        self.origin = steps[0].start_seconds
        last = steps[-1]
        self.end = self._x(last.start_seconds + (last.interval_seconds or 0.0))
        # Steps in which kernels were tried out can be a hundred times as long; they reach beyond the picture.
        heights = [_milliseconds(step) for step in steps if not step.tuning] or [_milliseconds(step) for step in steps]
        self.top = max(heights) * 1.36

    def _x(self, seconds: float) -> float:
        return (seconds - self.origin) * 1e3

    def draw(self) -> None:
        self._shade()
        self._ticks()
        self._medians()
        self._frame()

    def _shade(self) -> None:
        for index, prefill in enumerate(self.findings.prefills):
            left, right = max(self._x(prefill.start_seconds), 0.0), min(self._x(prefill.end_seconds), self.end)
            if right <= left:
                continue
            self.axes.axvspan(left, right, color=SHADE, zorder=0, linewidth=0)
            if index == self.findings.main_prefill:
                tokens = f"{prefill.prompt_tokens:,}-token prompt" if prefill.prompt_tokens else "prompt"
                if (prefill.most_prompts or 1) > 1:
                    tokens = prompts_of(prefill)[0]
                self._label(f"{tokens} being read", left, right, self.top * 0.92, STALL, bold=False)

    def _ticks(self) -> None:
        width = min(3.2, max(1.0, 500 / len(self.steps)))
        for tuning, prefill in ((False, False), (False, True), (True, False), (True, True)):
            color = MUTED if tuning else STALL if prefill else CALM
            chosen = [step for step in self.steps if (step.tuning, step.prefill) == (tuning, prefill)]
            at = [self._x(step.start_seconds) for step in chosen]
            heights = [min(_milliseconds(step), self.top * 0.97) for step in chosen]
            self.axes.vlines(at, 0, heights, colors=color, linewidth=width, zorder=3, capstyle="butt")
            marker = "^" if tuning else "o"
            self.axes.plot(at, heights, marker=marker, ms=width + 2.4, color=color, ls="", zorder=4, clip_on=False)
        for step in self.steps:
            if step.tuning and _milliseconds(step) > self.top:
                self._tried_out(step)

    def _tried_out(self, step: TickFigures) -> None:
        said = f" {duration(step.interval_seconds)}: kernels were tried out"
        at = self._x(step.start_seconds)
        side: Side = "right" if at > self.end * 0.8 else "left"
        self.axes.text(at, self.top * 0.5, said, ha=side, va="center", color=MUTED, fontsize=10, zorder=6)

    def _medians(self) -> None:
        cadence = self.findings.cadence
        assert cadence is not None
        main = self.findings.main_prefill
        if main is None:
            self._median(cadence.before, 0.0, self.end, CALM)
            return
        begin = min(max(self._x(self.findings.prefills[main].start_seconds), 0.0), self.end)
        end = min(max(self._x(self.findings.prefills[main].end_seconds), 0.0), self.end)
        self._median(cadence.before, 0.0, begin, CALM)
        self._median(cadence.during, begin, end, STALL)
        self._median(cadence.after, end, self.end, CALM)

    def _median(self, part: Part, left: float, right: float, color: str) -> None:
        if part.median_seconds is None or right <= left:
            return
        height = part.median_seconds * 1e3
        self.axes.hlines(height, left, right, colors=color, linewidth=1.4, linestyles=(0, (5, 3)), zorder=5)
        self._label(f"every {duration(part.median_seconds)}", left, right, height + self.top * 0.045, color, bold=True)

    def _label(self, text: str, left: float, right: float, height: float, color: str, *, bold: bool) -> None:
        """Over the middle of its part; at the picture's edge where the part is too narrow for it."""
        from matplotlib.patheffects import withStroke

        side: Side = "center"
        at = (left + right) / 2
        if right - left < _LABEL_SHARE * self.end:
            if left <= 0:
                at, side = 0.0, "left"
            elif right >= self.end:
                at, side = self.end, "right"
        self.axes.text(
            at,
            height,
            text,
            ha=side,
            va="bottom",
            color=color,
            fontsize=13 if bold else 11,
            fontweight="bold" if bold else "normal",
            zorder=7,
            path_effects=[withStroke(linewidth=3.5, foreground=SURFACE)],
        )

    def _frame(self) -> None:
        self.axes.set_xlim(-self.end * 0.008, self.end * 1.004)
        self.axes.set_ylim(0, self.top)
        self.axes.set_xlabel(
            "milliseconds · each tick is an engine step where it began, as tall as it was long", fontsize=11
        )
        self.axes.set_ylabel("step time, ms", fontsize=11)
        self.axes.tick_params(labelsize=10)
        self.axes.grid(visible=False, axis="x")
        self.axes.grid(visible=True, axis="y", color=GRID)


def _milliseconds(step: TickFigures) -> float:
    return (step.interval_seconds or 0.0) * 1e3
