from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from prefillwatch.doctor.examine import examine
from prefillwatch.doctor.look import Look
from prefillwatch.doctor.render import render

LookAt = Callable[[str, str], Look]
SCENARIOS = ("unchunked", "chunked", "healthy", "harmless", "preemption", "queue", "single", "idle", "fresh")


def plain(text: str, _: str) -> str:
    return text


def text(look: Look, width: int = 100) -> str:
    return "\n".join(render(examine(look), "http://x:1/metrics", plain, width))


def test_the_worst_comes_first_and_the_answer_at_the_top(look: LookAt) -> None:
    lines = text(look("unchunked", "sidecar")).splitlines()
    assert lines[0] == (
        "http://x:1/metrics: prefillwatch in front of vLLM, watched for 8.51 s, up to 8 streams at once"
    )
    assert lines[1] == "1 symptom seen, 2 that cannot be known"
    assert lines[3] == "SEEN      Streams pause when a long prompt arrives"
    marks = [line.split("  ")[0] for line in lines if line and line[0].isalpha()][2:]
    order = ["SEEN", "note", "unknown", "not seen", "Measured"]
    assert sorted(marks, key=order.index) == marks


def test_what_a_page_cannot_tell_is_said_once(look: LookAt) -> None:
    shown = text(look("unchunked", "server"))
    assert "vLLM's own metrics" in shown
    assert shown.count("prefillwatch serve --upstream URL") == 1
    assert "Not known from here: whether long prompts" in " ".join(shown.split())


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("kind", ["sidecar", "server"])
@pytest.mark.parametrize("width", [72, 100])
def test_it_fits_a_terminal(look: LookAt, scenario: str, kind: str, width: int) -> None:
    first, *lines = text(look(scenario, kind), width).splitlines()
    assert "None" not in first
    assert all(len(line) <= width for line in lines)
    assert not any(" nan" in line or " inf" in line for line in lines)


def test_flags_of_another_server_are_not_passed_off_as_its_own(look: LookAt) -> None:
    report = examine(look("unchunked", "sidecar"))
    foreign = replace(report, figures=replace(report.figures, engine="sglang"))
    words = "Flags are named as vLLM has them; this server has its own."
    assert words in list(render(foreign, "u", plain))
    assert words not in list(render(report, "u", plain))


def test_colours_are_the_painters_business(look: LookAt) -> None:
    painted = list(render(examine(look("unchunked", "sidecar")), "u", lambda text, colour: f"<{colour}>{text}</>", 100))
    assert "<red>SEEN      </><bold>Streams pause when a long prompt arrives</>" in painted
