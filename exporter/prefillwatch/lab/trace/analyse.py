"""From the kernels of a trace to what it tells."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Final, TypeVar

import numpy as np

from prefillwatch.lab.trace.autotuner import tuning_launches
from prefillwatch.lab.trace.errors import TraceError
from prefillwatch.lab.trace.families import Family, short_name
from prefillwatch.lab.trace.findings import (
    CadenceFigures,
    FamilyFigures,
    Findings,
    GapFigures,
    LayerFigures,
    Part,
    PhaseFigures,
    PrefillFigures,
    Share,
    TickFigures,
    TuningFigures,
)
from prefillwatch.lab.trace.gaps import Busy, decode_gaps
from prefillwatch.lab.trace.reading import TraceReader, pieces_of
from prefillwatch.lab.trace.steps import Cadence, Flags, Step, find_steps, why_no_steps
from prefillwatch.lab.trace.timeline import TimelineBuilder, Work
from prefillwatch.units import NS

Amount = TypeVar("Amount", int, float)

_KERNELS_NAMED: Final = 5
_FILLERS_NAMED: Final = 4


def read_file(path: Path) -> tuple[Findings, TraceReader]:
    """Reads and analyses a trace file. The reader's `problem` says why the file was not read to its end, if it was not.
    Raises TraceError, naming the file, when nothing can be learned from it.

    Raises TraceError, naming the file, where there is nothing to tell.
    """
    reader = TraceReader(pieces_of(path))
    try:
        return analyse(path.name, reader), reader
    except TraceError as error:
        raise TraceError(f"{path}: {error}") from None


def analyse(name: str, reader: TraceReader) -> Findings:
    """Reads the trace and works out everything. Raises TraceError where it holds no kernels and no ops."""
    builder = TimelineBuilder()
    for event in reader:
        builder.add(event)
    work = builder.finish()
    if not len(work):
        raise TraceError(reader.problem or _nothing(reader))
    return _Analysis(work).findings(name, reader)


def _nothing(reader: TraceReader) -> str:
    return (
        f"none of its {reader.events:,} events is a GPU kernel or a CPU op with a time and a duration; a trace of "
        "vLLM's worker is needed (…rank0….pt.trace.json.gz), not that of its API server (…async_llm…)"
    )


class _Analysis:
    """The questions asked of one trace, each answered by a method."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.busy = Busy.of(work)
        self.start_ns = int(work.starts[0])
        self.end_ns = int(work.ends.max())
        self.tries = tuning_launches(work)
        self.cadence = find_steps(work)
        self.steps = _marked(self.cadence.steps, work.starts[self.tries]) if self.cadence else []
        self.in_prefill = self._rows_in_prefill()

    def findings(self, name: str, reader: TraceReader) -> Findings:
        runs = [list(run) for prefill, run in groupby(self.steps, key=lambda step: step.prefill) if prefill]
        prefills = [self._prefill(run) for run in runs]
        main = max(range(len(runs)), key=lambda at: _weight(runs[at]), default=None)
        work = self.work
        return Findings(
            file=name,
            vllm_version=reader.vllm_version or None,
            source=work.source,
            device=work.device,
            other_devices=[device for device in work.devices if device != work.device],
            events=reader.events,
            kernels=len(work),
            start_microseconds=self.start_ns / 1000,
            span_seconds=(self.end_ns - self.start_ns) / NS,
            busy_ratio=self.busy.share(self.start_ns, self.end_ns),
            families=self._families(),
            phases=self._phases(),
            layers=self._layers(),
            tuning=self._tuning(),
            cadence=self._cadence_figures(prefills[main] if main is not None else None),
            prefills=prefills,
            main_prefill=main,
            decode_gaps=self._gaps(),
            steps=[self._tick(step) for step in self.steps],
            notes=self._notes(reader),
        )

    def _seconds(self, time_ns: int) -> float:
        return (time_ns - self.start_ns) / NS

    def _share(self, rows: Flags) -> Share:
        return Share(int(rows.sum()), int(self.work.own[rows].sum()) / NS)

    def _rows_in_prefill(self) -> Flags:
        edges = np.array([step.start_ns for step in self.steps], np.int64)
        kinds = np.array([False, *(step.prefill for step in self.steps)])
        rows: Flags = kinds[np.searchsorted(edges, self.work.starts, side="right")]
        return rows

    def _families(self) -> list[FamilyFigures]:
        by_family: dict[Family, list[int]] = {}
        for name, family in enumerate(self.work.families):
            by_family.setdefault(family, []).append(name)
        figures = [self._family(family, names) for family, names in by_family.items()]
        return sorted((one for one in figures if one.launches), key=lambda one: (-one.seconds, one.name))

    def _family(self, family: Family, names: list[int]) -> FamilyFigures:
        rows = np.isin(self.work.names, names) & ~self.tries
        whole = self._share(rows)
        counts = Counter[str]()
        for name, count in enumerate(np.bincount(self.work.names[rows], minlength=len(self.work.texts)).tolist()):
            if count:
                counts[short_name(self.work.texts[name])] += count
        return FamilyFigures(
            name=family.name,
            kind=family.kind,
            phase=family.phase,
            launches=whole.launches,
            seconds=whole.seconds,
            in_prefill_steps=self._share(rows & self.in_prefill) if self.steps else None,
            in_decode_steps=self._share(rows & ~self.in_prefill) if self.steps else None,
            kernels=_most(counts, _KERNELS_NAMED),
        )

    def _of_layers(self, kind: str) -> Flags:
        return self.work.mask(family.kind == kind for family in self.work.families) & ~self.tries

    def _phases(self) -> PhaseFigures:
        of_layers = self._of_layers("attention") | self._of_layers("linear attention")

        def share(phase: str | None) -> Share:
            return self._share(self.work.mask(family.phase == phase for family in self.work.families) & of_layers)

        return PhaseFigures(share("prefill"), share("decode"), share(None))

    def _layers(self) -> LayerFigures:
        full, linear = self._of_layers("attention"), self._of_layers("linear attention")
        has_full = bool(full.any())
        return LayerFigures(
            full_attention=self.cadence.layers if self.cadence and has_full else 0,
            linear_attention=self._linear_layers(),
            full_share=self._share(full),
            linear_share=self._share(linear),
            full_decode_share=self._share(full & ~self.in_prefill) if self.steps else Share(),
            linear_decode_share=self._share(linear & ~self.in_prefill) if self.steps else Share(),
        )

    def _linear_layers(self) -> int:
        """How many times per step the kernel ran that each linear layer runs once, in most steps."""
        families = self.work.families
        counts: Counter[int] = Counter()
        for phase, steps in (("decode", [s for s in self.steps if not s.prefill]), ("prefill", self.steps)):
            wanted = [f.kind == "linear attention" and f.layer_call and f.phase == phase for f in families]
            times = self.work.starts[self.work.mask(wanted) & ~self.tries]
            for step in steps:
                end = step.start_ns + step.interval_ns if step.interval_ns else step.end_ns
                counts[int(np.searchsorted(times, end) - np.searchsorted(times, step.start_ns))] += 1
            del counts[0]
            if counts:
                return counts.most_common(1)[0][0]
        return 0

    def _tuning(self) -> TuningFigures | None:
        if not self.tries.any():
            return None
        texts, families = self.work.texts, self.work.families
        kinds = ("copy", "elementwise", "other")
        tried = [name for name in np.unique(self.work.names[self.tries]).tolist() if families[name].kind not in kinds]
        whole = self._share(self.tries)
        tuned_steps = sum(step.tuning for step in self.steps)
        return TuningFigures(whole.launches, whole.seconds, [short_name(texts[name]) for name in tried], tuned_steps)

    def _tick(self, step: Step) -> TickFigures:
        end = step.start_ns + step.interval_ns if step.interval_ns else step.end_ns
        return TickFigures(
            start_seconds=self._seconds(step.start_ns),
            interval_seconds=None if step.interval_ns is None else step.interval_ns / NS,
            busy_ratio=self.busy.share(step.start_ns, end),
            prefill=step.prefill,
            prompts=step.prompts,
            prompt_tokens=step.prompt_tokens,
            answers=step.answers,
            tuning=step.tuning,
        )

    def _prefill(self, run: list[Step]) -> PrefillFigures:
        last = run[-1]
        end = last.start_ns + last.interval_ns if last.interval_ns else last.end_ns
        told = [step.prompt_tokens for step in run if step.prompt_tokens is not None]
        return PrefillFigures(
            self._seconds(run[0].start_ns),
            self._seconds(end),
            len(run),
            sum(told) if told else None,
            max((step.prompts for step in run if step.prompts is not None), default=None),
        )

    def _cadence_figures(self, main: PrefillFigures | None) -> CadenceFigures | None:
        if self.cadence is None:
            return None
        begin = main.start_seconds if main else float("inf")
        end = main.end_seconds if main else float("inf")
        before: list[Step] = []
        during: list[Step] = []
        after: list[Step] = []
        for step in self.steps:
            at = self._seconds(step.start_ns)
            if begin <= at < end:
                during.append(step)
            elif not step.prefill:
                (before if at < begin else after).append(step)
        return CadenceFigures(
            steps=len(self.steps),
            cut_by=self.cadence.how,
            prefill_told_by=self.cadence.evidence,
            before=self._part(before),
            during=self._part(during),
            after=self._part(after),
            annotated_steps=self.cadence.annotated,
            agreeing_steps=self.cadence.agreeing,
        )

    def _part(self, steps: list[Step]) -> Part:
        calm = [step for step in steps if not step.tuning] or steps
        times = np.array([step.interval_ns for step in calm if step.interval_ns is not None]) / NS
        if not len(times):
            return Part(len(steps), None, None, None, None)
        whole = sum(step.interval_ns for step in calm if step.interval_ns)
        busy = sum(
            self.busy.until(step.start_ns + step.interval_ns) - self.busy.until(step.start_ns)
            for step in calm
            if step.interval_ns
        )
        return Part(
            len(steps), float(np.median(times)), float(np.percentile(times, 90)), float(times.max()), busy / whole
        )

    def _gaps(self) -> GapFigures | None:
        found = decode_gaps(self.work, self.steps) if self.steps else None
        if found is None:
            return None
        p50, p90, p99 = (float(np.percentile(found.gaps_ns, q)) / NS for q in (50, 90, 99))
        return GapFigures(
            kernel=found.kernel,
            samples=len(found.gaps_ns),
            p50_seconds=p50,
            p90_seconds=p90,
            p99_seconds=p99,
            max_seconds=int(found.gaps_ns.max()) / NS,
            widest_start_seconds=self._seconds(found.widest_start_ns),
            widest_busy_ratio=self.busy.share(found.widest_start_ns, found.widest_end_ns),
            widest_filled_by=self._filling(found.widest_start_ns, found.widest_end_ns),
        )

    def _filling(self, start_ns: int, end_ns: int) -> dict[str, float]:
        work = self.work
        rows = np.flatnonzero((work.starts < end_ns) & (work.ends > start_ns))
        seconds: dict[str, float] = defaultdict(float)
        for row in rows.tolist():
            inside = min(int(work.ends[row]), end_ns) - max(int(work.starts[row]), start_ns)
            seconds[work.families[int(work.names[row])].kind] += min(inside, int(work.own[row])) / NS
        return _most(seconds, _FILLERS_NAMED)

    def _notes(self, reader: TraceReader) -> list[str]:
        notes = []
        if reader.problem:
            notes.append(
                f"the trace could not be read to its end: {reader.problem}. The figures cover what came before."
            )
        if reader.unreadable:
            notes.append(f"{reader.unreadable:,} events are no valid JSON and were left out.")
        if self.work.without_duration:
            notes.append(f"{self.work.without_duration:,} kernels without a time or duration were left out.")
        if len(self.work.devices) > 1:
            notes.append(f"the trace holds {len(self.work.devices)} devices; the figures are of the busiest.")
        notes += _notes_on_steps(self.work, self.cadence)
        if any(step.tuning for step in self.steps):
            notes.append(
                "kernels were tried out during the trace (Triton's autotuner). Those launches and steps are no work of "
                "the model and are left out; send a prompt of that size once before capturing."
            )
        return notes


def _most(amounts: Mapping[str, Amount], count: int) -> dict[str, Amount]:
    """The largest, in an order that does not depend on that of the file."""
    return dict(sorted(amounts.items(), key=lambda item: (-item[1], item[0]))[:count])


def _notes_on_steps(work: Work, cadence: Cadence | None) -> list[str]:
    if cadence is None:
        return [f"no steps: {why_no_steps(work)}."]
    notes = []
    if cadence.how == "annotations" and len(cadence.steps) > 1:
        why = "do not agree with the engine's annotations" if cadence.layers else "are not known by name"
        notes.append(f"the attention kernels {why}; the steps are those that the engine annotated.")
    if cadence.annotated and not work.located and not cadence.agreeing:
        notes.append(
            f"the CPU noted {cadence.annotated:,} steps, the kernels show {len(cadence.steps):,}; since the CPU runs "
            "ahead of the GPU, which belongs to which is not known."
        )
    if cadence.evidence == "length":
        notes.append(
            "neither kernel names nor annotations tell which steps carried a prompt; the long ones are taken for it."
        )
    if cadence.evidence == "none" and not cadence.annotated:
        notes.append("nothing tells that a step carried prompt work; capture with a prompt coming in.")
    return notes


def _marked(steps: list[Step], tries: np.ndarray[tuple[int], np.dtype[np.int64]]) -> list[Step]:
    """The steps, with `tuning` where kernels were tried out."""
    if not len(tries):
        return steps
    edges = np.searchsorted(tries, [*(step.start_ns for step in steps), np.iinfo(np.int64).max])
    return [replace(step, tuning=bool(count)) for step, count in zip(steps, np.diff(edges), strict=True)]


def _weight(run: list[Step]) -> tuple[int, int, int]:
    """What makes a prefill the main one: its tokens if they are known, then its time without autotuning, then all its
    time."""
    tokens = sum(step.prompt_tokens or 0 for step in run)
    times = [(step.interval_ns or step.end_ns - step.start_ns, step.tuning) for step in run]
    return tokens, sum(time for time, tuning in times if not tuning), sum(time for time, _ in times)
