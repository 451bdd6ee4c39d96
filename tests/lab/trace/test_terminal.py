"""What a person reads."""

from __future__ import annotations

from tests.lab.trace.gpu_trace import GEMM, GpuTrace, MadeStep, kernel
from tests.lab.trace.looked_at import findings_of

from prefillwatch.lab.trace.findings import ClientSide
from prefillwatch.lab.trace.terminal import client_side, report, shown_steps


def test_the_report_of_the_article() -> None:
    lines = report(findings_of(GpuTrace())).splitlines()
    assert lines[0] == "made-up.json: vLLM 0.32.0, 17,113 GPU kernels in 1.45 s, at work 97 % of the time"
    assert lines[2] == "Heartbeat: 53 engine steps"
    assert "  during prefill     17   39 ms  39 ms  39 ms  97 %" in lines
    assert "  " + "▅" * 12 + "█" * 17 + "▅" * 23 in lines
    assert "  " + " " * 12 + "P" * 17 in lines
    text = " ".join(" ".join(lines).split())
    assert (
        "From 264 ms to 927 ms a prompt of 6,001 tokens was taken in: a step every 39 ms instead of every 22 ms" in text
    )
    assert "the engine's annotations agree in 53 of 53" in text
    assert "Layers: 8 with attention over the KV cache, 24 with linear attention" in text
    assert "p50 611 µs p90 1.32 ms p99 1.6 ms max 1.6 ms" in text


def test_no_line_is_wider_than_a_terminal_should_be() -> None:
    assert max(len(line) for line in report(findings_of(GpuTrace())).splitlines()) <= 110


def test_kernels_tried_out_are_named() -> None:
    steps = [*[MadeStep(22.0)] * 5, MadeStep(2200.0, 2000, tries=200), MadeStep(200.0, 2000), *[MadeStep(22.0)] * 5]
    text = report(findings_of(GpuTrace(steps)))
    assert "Kernels tried out, left out elsewhere: 400 launches" in text
    assert "in 1 step\n  chunk_fwd_kernel_o" in text
    assert "\n       +P\n" in text
    assert "Note: kernels were tried out" in text


def test_without_steps_there_is_no_heartbeat_but_a_note() -> None:
    text = report(findings_of([kernel(GEMM, at * 10.0, 5.0) for at in range(5)]))
    assert "Heartbeat" not in text
    assert "in decode steps" not in text
    assert "Layers: unknown, since no attention kernel is known by name" in text
    assert "Note: no steps: the engine noted none, and no attention kernel is known by name." in text


def test_with_nothing_but_prefill_there_is_nothing_to_compare() -> None:
    text = " ".join(report(findings_of(GpuTrace([MadeStep(40.0, 512)] * 6))).split())
    assert "the trace has no others to compare with" in text


def test_of_a_long_trace_the_steps_around_the_prompt_are_drawn() -> None:
    steps = [*[MadeStep(1.0)] * 150, *[MadeStep(3.0, 512)] * 4, *[MadeStep(1.0)] * 30]
    findings = findings_of(GpuTrace(steps))
    shown = shown_steps(findings, 50)
    assert len(shown) == 50
    assert sum(step.prefill for step in shown) == 4
    assert len(shown_steps(findings, 1000)) == 184


def test_what_the_clients_saw() -> None:
    seen = ClientSide(4, 6000, 0.7, 0.0213, 0.0392, 0.0214)
    assert client_side(seen) == (
        "Seen by the clients: median gap between tokens of 4 streams: before 21.3 ms, during 39.2 ms, after 21.4 ms\n"
        "  first token of the prompt of 6,000 tokens after 700 ms"
    )


def test_what_they_did_not_see() -> None:
    seen = ClientSide(1, None, None, 0.0213, None, None, problem="interrupted")
    assert client_side(seen).endswith("of 1 stream: before 21.3 ms, during –, after –")
