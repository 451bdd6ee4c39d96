"""The heartbeat as SVG and PNG."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from tests.lab.trace.gpu_trace import GEMM, GpuTrace, MadeStep, kernel
from tests.lab.trace.looked_at import findings_of

from prefillwatch.lab.charts.drawing import CALM, MUTED, STALL, ChartsMissingError
from prefillwatch.lab.trace.errors import TraceError
from prefillwatch.lab.trace.picture import draw

FEW = (*[MadeStep(22.0)] * 4, *[MadeStep(39.0, 353)] * 3, *[MadeStep(22.0)] * 5)


def svg_of(tmp_path: Path, trace: GpuTrace) -> str:
    draw(findings_of(trace), tmp_path / "beat.svg")
    return (tmp_path / "beat.svg").read_text()


def ticks(svg: str, colour: str) -> list[tuple[float, float, float]]:
    """x, bottom and top of the ticks of a colour."""
    found = []
    for path in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}path"):
        words = path.get("d", "").split()
        style = path.get("style", "")
        if f"stroke: {colour}" in style and "dasharray" not in style and len(words) == 6 and words[1] == words[4]:
            found.append((float(words[1]), float(words[2]), float(words[5])))
    return sorted(found)


def test_each_step_but_the_last_is_a_tick_at_its_true_time(tmp_path: Path) -> None:
    svg = svg_of(tmp_path, GpuTrace(FEW))
    calm, slow = ticks(svg, CALM), ticks(svg, STALL)
    assert (len(calm), len(slow)) == (4 + 4, 3)
    per_millisecond = (slow[0][0] - calm[0][0]) / (4 * 22)
    assert [x - calm[0][0] for x, _, _ in slow] == pytest.approx(
        [(4 * 22 + 39 * at) * per_millisecond for at in range(3)], abs=0.5
    )


def test_slow_beats_are_taller(tmp_path: Path) -> None:
    svg = svg_of(tmp_path, GpuTrace(FEW))
    ((_, bottom, top), *_), ((_, slow_bottom, slow_top), *_) = ticks(svg, CALM), ticks(svg, STALL)
    assert (slow_bottom - slow_top) / (bottom - top) == pytest.approx(39 / 22, rel=0.01)


def test_it_tells_those_who_cannot_see_it(tmp_path: Path) -> None:
    root = ET.fromstring(svg_of(tmp_path, GpuTrace(FEW)))
    assert root.get("role") == "img"
    said = (
        "While a prompt is read, every beat is 1.8 times as long. 12 engine steps, found in 3,732 GPU kernels of vLLM"
    )
    assert root.get("aria-label") == f"{said} 0.32.0."


def test_the_same_trace_gives_the_same_bytes(tmp_path: Path) -> None:
    assert svg_of(tmp_path, GpuTrace(FEW)) == svg_of(tmp_path, GpuTrace(FEW))


def test_a_step_in_which_kernels_were_tried_out_is_grey_and_does_not_dwarf_the_others(tmp_path: Path) -> None:
    steps = (*FEW[:4], MadeStep(2200.0, 2000, tries=200), *FEW[4:])
    svg = svg_of(tmp_path, GpuTrace(steps))
    first = ticks(svg, CALM)[0][0]
    ((_, bottom, top),) = [tick for tick in ticks(svg, MUTED) if tick[0] > first and tick[1] - tick[2] > 20]
    ((_, slow_bottom, slow_top), *_) = ticks(svg, STALL)
    assert (bottom - top) / (slow_bottom - slow_top) < 1.5
    assert "2.2 s: kernels were tried out" in svg


@pytest.mark.parametrize(
    "steps",
    [
        [MadeStep(22.0)] * 8,
        [MadeStep(39.0, 353)] * 8,
        [*[MadeStep(22.0)] * 6, MadeStep(39.0, 353)],
        [MadeStep(39.0, 353), *[MadeStep(22.0)] * 6],
        [*[MadeStep(1.0)] * 150, *[MadeStep(3.0, 353)] * 3, *[MadeStep(1.0)] * 100],
    ],
)
def test_every_kind_of_trace_can_be_drawn(tmp_path: Path, steps: list[MadeStep]) -> None:
    draw(findings_of(GpuTrace(steps)), tmp_path / "beat.png")
    data = (tmp_path / "beat.png").read_bytes()
    assert data.startswith(b"\x89PNG")
    assert (int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")) == (1200, 400)


def test_without_steps_there_is_nothing_to_draw(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no heartbeat to draw"):
        draw(findings_of([kernel(GEMM, at * 10.0, 5.0) for at in range(5)]), tmp_path / "beat.png")


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"none/beat.png: the picture cannot be written \(No such file"):
        draw(findings_of(GpuTrace(FEW)), tmp_path / "none" / "beat.png")


def test_without_matplotlib_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ChartsMissingError, match=r"pip install 'prefillwatch\[charts\]'"):
        draw(findings_of(GpuTrace(FEW)), tmp_path / "beat.png")
