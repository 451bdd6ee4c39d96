"""Engine steps found in the rhythm of the attention kernels, and held against vLLM's own annotations.

A step runs every attention layer once, whatever it carries. A fixed silence cannot tell one step's burst from the
next: in a step with a slice of a long prompt the layers lie further apart (28 ms where eight layers share 220 ms) than
whole steps do without (22 ms). So steps are cut where tokens were chosen, which happens once per step and never between
two layers; where no such kernel is known by name, at the silence that recurs every so many layers.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from prefillwatch.lab.trace.annotation import Annotation
from prefillwatch.lab.trace.numbers import Numbers
from prefillwatch.lab.trace.timeline import Work

How = Literal["token choice", "rhythm", "annotations"]
Evidence = Literal["annotations", "kernels", "length", "none"]
Flags = npt.NDArray[np.bool_]

#: Share of the steps that must have the same number of layer calls, or the cutting is not believed.
REGULAR: Final = 0.8
#: Share of vLLM's annotated steps that must hold exactly one step found here.
AGREED: Final = 0.9
#: Without better evidence, a step this many times as long as the short ones carried a prompt.
LONG: Final = 1.4
#: Within a step, nothing pauses for this long; between two steps the engine may have work of its own.
PAUSE_NS: Final = 500_000
_MOST_LAYERS: Final = 256
_FEWEST_CALLS: Final = 6
#: Steps that a trace may cut off, so that they are annotated or have kernels, but not both.
_CUT_OFF: Final = 2
#: Share of the silences within steps in which the kernel may appear that marks the end of a step.
_MARK_WITHIN: Final = 0.02
#: Enough steps to learn the rhythm from; it does not change.
_CALLS_LOOKED_AT: Final = 2000


@dataclass(frozen=True, slots=True)
class Step:
    """One engine step. Times are nanoseconds on the trace's clock."""

    start_ns: int
    #: When its last work ended, or when the next step began.
    end_ns: int
    #: To the start of the next step; None for the last.
    interval_ns: int | None
    #: Attention layers that ran in it.
    calls: int
    #: When the last of them began.
    last_call_ns: int
    prefill: bool = False
    #: Requests whose prompt was worked on, by the engine's annotation.
    prompts: int | None = None
    #: Of all of them.
    prompt_tokens: int | None = None
    answers: int | None = None
    #: Kernels were tried out in it, so that its length says nothing about the model.
    tuning: bool = False


@dataclass(frozen=True, slots=True)
class Cadence:
    """The steps of a trace."""

    steps: list[Step]
    how: How
    #: How steps with prompt work were told from those without.
    evidence: Evidence
    #: Attention layers per step.
    layers: int
    #: Steps that the engine annotated.
    annotated: int = 0
    #: Those of them that hold exactly one step found by the kernels.
    agreeing: int = 0


def find_steps(work: Work) -> Cadence | None:
    """The steps of the trace; None where they cannot be told apart."""
    calls = _layer_calls(work)
    annotations = _of_requests(work)
    found = _by_choice(work, calls) or _by_rhythm(work, calls)
    if work.located or not annotations:
        agreeing = _agreement(found, annotations) if found else 0
        if _tell(work, annotations, calls) and (found is None or agreeing < AGREED * len(annotations)):
            found = _from_annotations(work, annotations, calls)
    else:
        agreeing = len(annotations) if found and len(found.steps) == len(annotations) else 0
        if found and found.how == "rhythm" and abs(len(found.steps) - len(annotations)) > _CUT_OFF:
            return None
    if found is None:
        return None
    steps = _told(found.steps, annotations, located=work.located)
    told = any(step.prompt_tokens is not None for step in steps)
    evidence: Evidence = "annotations"
    if not told:
        steps, evidence = _judged(work, steps)
    return replace(found, steps=steps, evidence=evidence, annotated=len(annotations), agreeing=agreeing)


def why_no_steps(work: Work) -> str:
    """Where `find_steps` finds none."""
    calls, annotated = len(_layer_calls(work)), len(_of_requests(work))
    if annotated:
        return (
            f"the CPU noted {annotated:,} of them, ahead of the GPU, but neither launches nor a rhythm of the kernels "
            "tell which kernels belong to which"
        )
    if not calls:
        return "the engine noted none, and no attention kernel is known by name"
    if calls < _FEWEST_CALLS:
        return f"the engine noted none, and {calls} calls of attention layers are too few for a rhythm"
    return (
        f"the engine noted none, and nothing among the kernels between {calls:,} calls of attention layers shows where "
        "one step ends and the next begins"
    )


def _of_requests(work: Work) -> list[Annotation]:
    """A step without requests runs no attention."""
    return [step for step in work.annotations if step.prompts + step.answers > 0]


def _tell(work: Work, annotations: list[Annotation], calls: Numbers) -> bool:
    """Whether the annotations cover the work, so that they can tell the steps."""
    if not annotations or not len(calls):
        return bool(annotations)
    times = work.starts[calls]
    starts = np.array([step.start_ns for step in annotations])
    ends = np.array([step.end_ns for step in annotations])
    at = np.searchsorted(starts, times, side="right") - 1
    inside = (at >= 0) & (times < ends[np.maximum(at, 0)])
    return bool(inside.sum() * 2 >= len(calls))


def _layer_calls(work: Work) -> Numbers:
    """Rows of the attention kernels that count layers: one for each layer of a step.

    A model without attention over a KV cache is read by its linear layers. A backend with two kernels for one layer
    (prompts and answers apart) counts once: between two layers lies a matrix product.
    """
    kind = "attention" if any(f.kind == "attention" and f.layer_call for f in work.families) else "linear attention"
    calls = np.flatnonzero(work.mask(f.kind == kind and f.layer_call for f in work.families))
    products = np.cumsum(work.mask(f.kind in ("matrix product", "experts") for f in work.families))
    before = products[calls]
    if len(calls) < 2 or before[-1] == before[0]:
        return calls
    return calls[np.r_[True, np.diff(before) > 0]]


def _by_choice(work: Work, calls: Numbers) -> Cadence | None:
    """Cut where tokens were chosen between two layer calls."""
    choices = np.flatnonzero(work.mask(family.ends_step for family in work.families))
    if len(calls) < 2 or not len(choices):
        return None
    chosen_before = np.searchsorted(choices, calls)
    firsts = np.flatnonzero(np.diff(chosen_before, prepend=chosen_before[0]) > 0)
    if not len(firsts):
        return None
    bounds = np.r_[0, firsts, len(calls)]
    layers = _regular_size(np.diff(bounds))
    if layers is None:
        return None
    begins = [
        _first_row(work, int(choices[chosen_before[first] - 1]) + 1, int(calls[first])) for first in firsts.tolist()
    ]
    begin_rows = np.array([0, *begins])
    return Cadence(_made(work, begin_rows, calls, bounds), "token choice", "none", layers)


def _first_row(work: Work, after_choice: int, first_call: int) -> int:
    """The row that a step begins with: behind the last choice before it, or behind the pause if there is one.

    What follows a choice at once, the copy of the tokens to the host, is still of the step before.
    """
    rows = np.arange(after_choice, first_call + 1)
    holes = work.starts[rows] - np.maximum.accumulate(work.ends[after_choice - 1 : first_call])
    widest = int(holes.argmax())
    return after_choice + (widest if holes[widest] >= PAUSE_NS else 0)


def _regular_size(sizes: Numbers) -> int | None:
    """How many layer calls a step has, if nearly all steps have the same number. The trace may cut the first and the
    last."""
    inner = sizes[1:-1] if len(sizes) > 2 else sizes
    size, count = Counter(inner.tolist()).most_common(1)[0]
    # One layer between two choices is a draft model's, or a router that chooses experts by the same kernel.
    return int(size) if size > 1 and count >= REGULAR * len(inner) else None


def _by_rhythm(work: Work, calls: Numbers) -> Cadence | None:
    """Cut at the silence that is the longest of every L in a row, for the L where it always is at the same place.

    Only silences of one such row are compared with each other, so that slow and fast steps count alike.
    """
    if len(calls) < _FEWEST_CALLS:
        return None
    looked_at = min(len(calls), _CALLS_LOOKED_AT)
    silences = work.starts[calls[1:looked_at]] - work.ends[calls[: looked_at - 1]]
    best, layers, place = 0.0, 0, 0
    for size in range(2, min(_MOST_LAYERS, len(silences) // 3) + 1):
        rows = len(silences) // size
        longest = silences[: rows * size].reshape(rows, size).argmax(axis=1)
        votes = np.bincount(longest)
        share = float(votes.max()) / rows
        clearness = (share - 1 / size) * np.sqrt(rows)
        if share >= REGULAR and clearness > best:
            best, layers, place = clearness, size, int(votes.argmax())
    if not layers or not _is_marked(work, calls, layers, place):
        return None
    bounds = np.r_[0, np.arange(place + 1, len(calls), layers), len(calls)]
    return Cadence(_made(work, calls[bounds[:-1]], calls, bounds), "rhythm", "none", layers)


def _is_marked(work: Work, calls: Numbers, layers: int, place: int) -> bool:
    """Whether between two steps something runs that never runs between two layers: embedding, output, sampling.

    A model with two kinds of layers has a rhythm within its steps too, but the same kernels at every beat of it.
    """
    silence = np.searchsorted(calls, np.arange(len(work)), side="right") - 1
    between = (silence >= 0) & (silence < len(calls) - 1)
    pairs = np.unique(np.stack([work.names[between], silence[between]]), axis=1)
    ending = pairs[1] % layers == place
    ends = len(np.unique(pairs[1][ending]))
    others = max(1, len(calls) - 1 - ends)
    kinds = len(work.texts)
    at_ends = np.bincount(pairs[0][ending], minlength=kinds)
    within = np.bincount(pairs[0][~ending], minlength=kinds)
    return bool(((at_ends >= REGULAR * max(ends, 2)) & (within <= _MARK_WITHIN * others)).any())


def _made(work: Work, begin_rows: Numbers, calls: Numbers, bounds: Numbers) -> list[Step]:
    """Steps from the row that each begins with; step i has the layer calls from bounds[i] to bounds[i + 1]."""
    starts = work.starts[begin_rows]
    latest = np.maximum.accumulate(work.ends)
    last_rows = np.r_[begin_rows[1:] - 1, len(work) - 1]
    ends = latest[np.maximum(last_rows, begin_rows)]
    last_calls = work.starts[calls[bounds[1:] - 1]]
    return _steps(starts, ends, np.diff(bounds), last_calls)


def _steps(starts: Numbers, ends: Numbers, sizes: Numbers, last_calls: Numbers) -> list[Step]:
    following: list[int | None] = [*starts[1:].tolist(), None]
    columns = zip(starts.tolist(), ends.tolist(), sizes.tolist(), last_calls.tolist(), following, strict=True)
    return [
        Step(
            start_ns=start,
            end_ns=end if after is None else min(end, after),
            interval_ns=None if after is None else after - start,
            calls=size,
            last_call_ns=last_call,
        )
        for start, end, size, last_call, after in columns
    ]


def _agreement(found: Cadence, annotations: list[Annotation]) -> int:
    """How many annotated steps hold exactly one step found, by its last layer."""
    times = np.array([step.last_call_ns for step in found.steps])
    low = np.searchsorted(times, [step.start_ns for step in annotations])
    high = np.searchsorted(times, [step.end_ns for step in annotations])
    return int(np.sum(high - low == 1))


def _from_annotations(work: Work, annotations: list[Annotation], calls: Numbers) -> Cadence:
    starts = np.array([step.start_ns for step in annotations])
    ends = np.array([step.end_ns for step in annotations])
    call_starts = work.starts[calls]
    behind = np.searchsorted(call_starts, ends)
    sizes = behind - np.searchsorted(call_starts, starts)
    last_calls = np.where(sizes > 0, call_starts[np.maximum(behind - 1, 0)], ends) if len(calls) else ends
    steps = _steps(starts, ends, sizes, last_calls)
    return Cadence(steps, "annotations", "annotations", int(np.median(sizes)))


def _told(steps: list[Step], annotations: list[Annotation], *, located: bool) -> list[Step]:
    """The steps with what the engine says of them: by time where that is the GPU's, or by order of as many."""
    if not annotations:
        return steps
    starts = np.array([step.start_ns for step in annotations])
    in_order = len(steps) == len(annotations)
    told = []
    for index, step in enumerate(steps):
        at = int(np.searchsorted(starts, step.last_call_ns, side="right")) - 1
        fits = located and at >= 0 and step.last_call_ns <= annotations[at].end_ns
        said = annotations[at] if fits else annotations[index] if in_order else None
        told.append(
            replace(
                step,
                prompts=said.prompts,
                prompt_tokens=said.prompt_tokens,
                answers=said.answers,
                prefill=said.prompt_tokens > 0,
            )
            if said
            else step
        )
    return told


def _judged(work: Work, steps: list[Step]) -> tuple[list[Step], Evidence]:
    """Which steps carried a prompt, by kernels that only do that, or else by their length."""
    rows = work.mask(family.phase == "prefill" for family in work.families)
    if rows.any():
        times = work.starts[rows]
        # Up to the last layer only: cut by rhythm, a step ends with the first work of the next.
        flags = np.searchsorted(times, [step.last_call_ns for step in steps], side="right") > np.searchsorted(
            times, [step.start_ns for step in steps]
        )
        return [replace(step, prefill=bool(flag)) for step, flag in zip(steps, flags, strict=True)], "kernels"
    return _by_length(steps)


def _by_length(steps: list[Step]) -> tuple[list[Step], Evidence]:
    """Cut at the widest relative distance between two lengths, if it is wide enough."""
    lengths = np.array([step.interval_ns or step.end_ns - step.start_ns for step in steps], np.float64)
    ordered = np.sort(np.maximum(lengths, 1.0))
    if len(ordered) < 4:
        return steps, "none"
    ratios = ordered[1:] / ordered[:-1]
    at = int(ratios.argmax())
    if ratios[at] < LONG or np.median(ordered[at + 1 :]) < LONG * np.median(ordered[: at + 1]):
        return steps, "none"
    return [
        replace(step, prefill=bool(length > ordered[at])) for step, length in zip(steps, lengths, strict=True)
    ], "length"
