"""The findings as a person reads them in a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from prefillwatch.lab.trace.findings import (
    CadenceFigures,
    ClientSide,
    Findings,
    GapFigures,
    PhaseFigures,
    PrefillFigures,
    Share,
    TickFigures,
)
from prefillwatch.report import ABSENT, columns, counted, duration, share, text_table, wrapped

_WIDTH: Final = 110
_FAMILIES_SHOWN: Final = 14
_BARS: Final = "▁▂▃▄▅▆▇█"
_CUT_BY: Final = {
    "token choice": "cut where tokens were chosen",
    "rhythm": "cut at the silence that comes back after as many layers",
    "annotations": "as the engine annotated them",
}


def report(findings: Findings) -> str:
    """The whole report; ends without a line break."""
    sections = [
        _heading(findings),
        *([_heartbeat(findings, findings.cadence)] if findings.cadence else []),
        *([_phases(findings.phases)] if findings.phases.prefill.launches + findings.phases.decode.launches else []),
        _layers(findings),
        *([_gaps(findings, findings.decode_gaps)] if findings.decode_gaps else []),
        *([_tuning(findings)] if findings.tuning else []),
        _families(findings),
        [line for note in findings.notes for line in wrapped(f"Note: {note}", _WIDTH, rest="  ")],
    ]
    return "\n\n".join("\n".join(section) for section in sections if section)


def client_side(seen: ClientSide) -> str:
    """What clients saw while the trace was made."""
    gaps = (("before", seen.gap_before_seconds), ("during", seen.gap_during_seconds), ("after", seen.gap_after_seconds))
    told = ", ".join(f"{name} {duration(gap)}" for name, gap in gaps)
    lines = [f"Seen by the clients: median gap between tokens of {counted(seen.victims, 'stream')}: {told}"]
    if seen.prompt_tokens:
        lines.append(
            f"  first token of the prompt of {seen.prompt_tokens:,} tokens after {duration(seen.ttft_seconds)}"
        )
    return "\n".join(lines)


def _heading(findings: Findings) -> list[str]:
    what = "GPU kernels" if findings.source == "gpu" else "CPU ops"
    made_by = f"vLLM {findings.vllm_version}, " if findings.vllm_version else ""
    span, busy = duration(findings.span_seconds), share(findings.busy_ratio)
    return [f"{findings.file}: {made_by}{findings.kernels:,} {what} in {span}, at work {busy} of the time"]


def _heartbeat(findings: Findings, cadence: CadenceFigures) -> list[str]:
    lines = [f"Heartbeat: {counted(cadence.steps, 'engine step')}"]
    if cadence.steps > 1:
        parts = (("before", cadence.before), ("during", cadence.during), ("after", cadence.after))
        rows = [
            (
                f"{name} prefill" if findings.prefills else "all",
                f"{part.steps:,}",
                *map(duration, (part.median_seconds, part.p90_seconds, part.max_seconds)),
                share(part.busy_ratio),
            )
            for name, part in parts
            if part.steps
        ]
        lines += text_table(("", "steps", "median", "p90", "max", "busy"), rows, "  ")
    lines += [f"  {line}" for line in _beat_lines(findings)]
    for line in _verdict(findings, cadence):
        lines += wrapped(line, _WIDTH, "  ")
    agreed = (
        f"; the engine's annotations agree in {cadence.agreeing_steps} of {cadence.annotated_steps}"
        if cadence.annotated_steps and cadence.cut_by != "annotations"
        else ""
    )
    return [*lines, f"  Steps are {_CUT_BY[cadence.cut_by]}{agreed}."]


def shown_steps(findings: Findings, most: int) -> Sequence[TickFigures]:
    """At most so many steps: those around the main prefill, else the first."""
    steps = findings.steps
    if len(steps) <= most:
        return steps
    first = 0
    if findings.main_prefill is not None:
        main = findings.prefills[findings.main_prefill]
        middle = (main.start_seconds + main.end_seconds) / 2
        at = next(index for index, step in enumerate(steps) if step.start_seconds >= middle or index == len(steps) - 1)
        first = min(max(at - most // 2, 0), len(steps) - most)
    return steps[first : first + most]


def _beat_lines(findings: Findings) -> list[str]:
    steps = [step for step in shown_steps(findings, _WIDTH) if step.interval_seconds is not None]
    top = max((step.interval_seconds or 0 for step in steps if not step.tuning), default=0)
    if not top:
        return []
    heights = ((step.interval_seconds or 0) / top for step in steps)
    bars = "".join(_BARS[min(int(height * len(_BARS)), len(_BARS) - 1)] for height in heights)
    marks = "".join("+" if step.tuning else "P" if step.prefill else " " for step in steps).rstrip()
    legend = "each bar a step, as high as it was long; P: with a prompt in it" + (
        ", +: kernels tried out" if "+" in marks else ""
    )
    return [bars, *([marks, f"({legend})"] if marks else [])]


def _verdict(findings: Findings, cadence: CadenceFigures) -> Iterator[str]:
    if len(findings.steps) == 1:
        yield from _single(findings)
        return
    if findings.main_prefill is None:
        return
    main = findings.prefills[findings.main_prefill]
    prompt = " ".join(prompts_of(main))
    calm = _calm(cadence)
    slow = cadence.during.median_seconds
    span = f"From {duration(main.start_seconds)} to {duration(main.end_seconds)}"
    if slow is None or calm is None:
        yield f"{span} {prompt} taken in, in {counted(main.steps, 'step')}; the trace has no others to compare with."
        return
    yield (
        f"{span} {prompt} taken in: a step every {duration(slow)} instead of every {duration(calm)}, "
        f"{slow / calm:.1f} times as long."
    )


def prompts_of(main: PrefillFigures) -> tuple[str, str]:
    """What a run of steps carried, with its verb."""
    if not main.prompt_tokens:
        return "a prompt", "was"
    if main.most_prompts is None or main.most_prompts < 2:
        return f"a prompt of {main.prompt_tokens:,} tokens", "was"
    together = f"prompts of {main.prompt_tokens:,} tokens together"
    return f"{main.most_prompts:,} {together}" if main.steps == 1 else together, "were"


def _single(findings: Findings) -> Iterator[str]:
    """A trace of a single step has no rhythm to report, only what ran in it and for how long."""
    (step,) = findings.steps
    end = findings.span_seconds - step.start_seconds
    told = ""
    if step.prompt_tokens is not None:
        prompts = f"{counted(step.prompts or 0, 'prompt')} of {step.prompt_tokens:,} tokens" if step.prompts else ""
        answers = counted(step.answers, "answer") if step.answers else ""
        told = ", with " + " and ".join(part for part in (prompts, answers) if part)
    yield f"One step of {duration(end)}{told}."


def _calm(cadence: CadenceFigures) -> float | None:
    """Median of the pure decode steps after the prefill, or else before it."""
    return cadence.after.median_seconds or cadence.before.median_seconds


def _launched(part: Share) -> tuple[str, ...]:
    """Cells: the total and the mean duration of some launches."""
    return (
        f"{part.launches:,} launches",
        duration(part.seconds),
        f"{duration(part.mean_seconds)} each" if part.launches else "",
    )


def _phases(phases: PhaseFigures) -> list[str]:
    parts = (("prompts", phases.prefill), ("answers", phases.decode), ("both", phases.both))
    lines = columns([(name, *_launched(part)) for name, part in parts if part.launches], "  ")
    if phases.prefill.launches and phases.decode.launches:
        times = phases.prefill.launches / phases.decode.launches
        lines.append(f"  {times:.1f} times as many launches for prompts as for answers")
    return ["Attention of all kinds, by what the kernels' names say they work on", *lines]


def _layers(findings: Findings) -> list[str]:
    layers = findings.layers
    if not layers.full_share.launches and not layers.linear_share.launches:
        return ["Layers: unknown, since no attention kernel is known by name"]
    known = f"Layers: {layers.full_attention or 'unknown'} with attention over the KV cache"
    if not layers.linear_attention:
        return [f"{known}, none with linear attention"]
    rows = []
    for name, full, linear in (
        ("in all", layers.full_share, layers.linear_share),
        ("in decode steps", layers.full_decode_share, layers.linear_decode_share),
    ):
        whole = full.seconds + linear.seconds
        if whole:
            rows += [
                (f"{name}, {kind}", *_launched(part), share(part.seconds, whole))
                for kind, part in (("KV cache", full), ("linear", linear))
            ]
    return [f"{known}, {layers.linear_attention} with linear attention", *columns(rows, "  ")]


def _gaps(findings: Findings, gaps: GapFigures) -> list[str]:
    who = "GPU" if findings.source == "gpu" else "worker"
    filling = ", ".join(f"{kind} {duration(seconds)}" for kind, seconds in gaps.widest_filled_by.items())
    figures = (
        ("p50", gaps.p50_seconds),
        ("p90", gaps.p90_seconds),
        ("p99", gaps.p99_seconds),
        ("max", gaps.max_seconds),
    )
    busy = f"at {duration(gaps.widest_start_seconds)}, the {who} was at work {share(gaps.widest_busy_ratio)}"
    return [
        f"Gaps between decode kernels ({gaps.kernel}; {gaps.samples:,} gaps in pure decode steps)",
        "  " + "   ".join(f"{name} {duration(seconds)}" for name, seconds in figures),
        *wrapped(f"In the widest, {busy} of the time" + (f": {filling}" if filling else ""), _WIDTH, "  "),
    ]


def _tuning(findings: Findings) -> list[str]:
    tuning = findings.tuning
    assert tuning is not None
    size = f"{tuning.launches:,} launches, {duration(tuning.seconds)}, in {counted(tuning.steps, 'step')}"
    return [f"Kernels tried out, left out elsewhere: {size}", f"  {', '.join(tuning.kernels[:6])}"]


def _families(findings: Findings) -> list[str]:
    families = findings.families
    whole = sum(family.seconds for family in families)
    of_gpu = findings.source == "gpu"
    head = ("", "launches" if of_gpu else "calls", "time", "share", "each")
    in_steps = ("in prefill steps", "in decode steps") if findings.steps else ()
    rows = [
        (
            family.name,
            f"{family.launches:,}",
            duration(family.seconds),
            share(family.seconds, whole),
            duration(family.seconds / family.launches),
            *(
                duration(part.seconds) if part and part.launches else ABSENT
                for part, _ in zip((family.in_prefill_steps, family.in_decode_steps), in_steps, strict=False)
            ),
        )
        for family in families[:_FAMILIES_SHOWN]
    ]
    if rest := families[_FAMILIES_SHOWN:]:
        seconds, launches = sum(family.seconds for family in rest), sum(family.launches for family in rest)
        cells = (f"({len(rest)} further)", f"{launches:,}", duration(seconds), share(seconds, whole), "")
        rows.append((*cells, *("" for _ in in_steps)))
    return ["Kernel families" if of_gpu else "Families of ops", *text_table((*head, *in_steps), rows, "  ")]
