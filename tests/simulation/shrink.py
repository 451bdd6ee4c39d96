"""From a run with a wrong verdict to its smallest scene that still has one, and that scene as a test.

`python -m tests.simulation --shrink SEED` prints it: as a scene of `tests/scenarios/playbook.py` where that can tell it
and gets the same verdict, else as a run of this simulation with few requests.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, Field, dataclass, fields, replace
from itertools import accumulate, groupby, pairwise
from typing import Any, Final, TypeVar

from tests.scenarios.playbook import Scene as Playbook
from tests.simulation.delivery import Event
from tests.simulation.engine import Job, Scheduling, Speed
from tests.simulation.faults import Hardships
from tests.simulation.judge import NAMELESS, NO_CAUSE, UNSEEN, pairs
from tests.simulation.play import Run, Scene, played
from tests.simulation.shapes import Asked, Shape

T = TypeVar("T")

#: So many scenes are tried; each is a fraction of a second.
MOST_TRIES: Final = 250
#: A wrong verdict on so many seconds is one.
LEAST: Final = 0.05
_AFTERWARDS: Final = 800.0  # milliseconds that a scene goes on after what is wrong in it
_EARLIEST: Final = 1000.0
_ALIKE: Final = 0.2  # gaps that differ by no more are written as one
_SPANS: Final = ("engine", "api_server", "relay", "readers", "lost")


@dataclass(frozen=True)
class Complaint:
    """What something was, and what it was called."""

    true: str
    named: str

    def seconds(self, run: Run) -> float:
        return sum(seconds for complaint, seconds, _ in verdicts(run) if complaint == self)

    def first_end(self, run: Run) -> float:
        return min(end for complaint, _, end in verdicts(run) if complaint == self)

    @property
    def justified(self) -> bool:
        return self.named != self.true and not (self.true in NAMELESS and self.named in NO_CAUSE)


def verdicts(run: Run) -> Iterator[tuple[Complaint, float, float]]:
    """Each, its seconds, and when the gap ended."""
    for said, true in pairs(run):
        if true is not None:
            named = said.cause if said is not None else UNSEEN
            yield Complaint(true.cause, named), true.excess / 1000, true.end


def worst(run: Run) -> Complaint | None:
    """The one with the most seconds; what is wrong before what is only not known."""
    seconds: dict[Complaint, float] = {}
    for complaint, each, _ in verdicts(run):
        seconds[complaint] = seconds.get(complaint, 0.0) + each
    found = [complaint for complaint, each in seconds.items() if complaint.justified and each >= LEAST]
    return max(found, key=lambda each: (each.named not in NO_CAUSE, seconds[each]), default=None)


class Shrinker:
    def __init__(self, complaint: Complaint) -> None:
        self.complaint, self.tries = complaint, 0

    def holds(self, scene: Scene) -> bool:
        """Whether the complaint is one of this scene, too."""
        if self.tries >= MOST_TRIES:
            return False
        self.tries += 1
        return self.complaint.seconds(played(scene)) >= LEAST

    def shrink(self, scene: Scene) -> Scene:
        while True:
            before = self.tries, size_of(scene)
            scene = self._shorter(scene)
            scene = self._fewer_ask(scene)
            scene = self._less_goes_wrong(scene)
            scene = self._earlier(scene)
            if size_of(scene) == before[1] or self.tries >= MOST_TRIES:
                return scene

    def _fewer_ask(self, scene: Scene) -> Scene:
        def with_(jobs: list[Job]) -> Scene:
            return replace(scene, jobs=jobs)

        return with_(self._fewer(scene.jobs, with_))

    def _shorter(self, scene: Scene) -> Scene:
        until = self.complaint.first_end(played(scene)) + _AFTERWARDS
        kept = [job for job in scene.jobs if job.arrives < until]
        shorter = replace(scene, until=until, jobs=kept)
        return shorter if until < scene.until and self.holds(shorter) else scene

    def _earlier(self, scene: Scene) -> Scene:
        """Everything that comes after the beginning, by so much."""
        for by in (4000.0, 2000.0, 1000.0, 500.0):
            later = [job for job in scene.jobs if job.arrives >= _EARLIEST]
            spans = [span for kind in _SPANS for span in getattr(scene.hardships, kind)]
            if not min([*(job.arrives for job in later), *(span[0] for span in spans)], default=0.0) >= _EARLIEST + by:
                continue
            moved = [replace(job, **_moved(job, by)) if job.arrives >= _EARLIEST else job for job in scene.jobs]
            spans_: dict[str, Any] = {
                kind: [(since - by, until - by) for since, until in getattr(scene.hardships, kind)] for kind in _SPANS
            }
            hardships = replace(scene.hardships, **spans_)
            earlier = replace(scene, jobs=moved, hardships=hardships, until=scene.until - by)
            if self.holds(earlier):
                scene = earlier
        return scene

    def _less_goes_wrong(self, scene: Scene) -> Scene:
        for kind in _SPANS:
            spans = getattr(scene.hardships, kind)

            def without(spans: list[Any], scene: Scene = scene, kind: str = kind) -> Scene:
                changed: dict[str, Any] = {kind: spans}
                return replace(scene, hardships=replace(scene.hardships, **changed))

            if spans:
                scene = without(self._fewer(spans, without))
        return scene

    def _fewer(self, all_: Sequence[T], scene_with: Callable[[list[T]], Scene]) -> list[T]:
        """Leaves out halves, then quarters, down to single ones."""
        kept, size = list(all_), max(len(all_) // 2, 1)
        while True:
            at = 0
            while at < len(kept):
                fewer = kept[:at] + kept[at + size :]
                if self.holds(scene_with(fewer)):
                    kept = fewer
                else:
                    at += size
            if size == 1:
                return kept
            size //= 2


def _moved(job: Job, by: float) -> dict[str, Any]:
    return {"arrives": job.arrives - by} | ({"leaves": job.leaves - by} if job.leaves is not None else {})


def size_of(scene: Scene) -> tuple[int, int, float]:
    return len(scene.jobs), sum(len(getattr(scene.hardships, kind)) for kind in _SPANS), scene.until


# --- As a test ---


def as_test(scene: Scene, complaint: Complaint, name: str) -> str:
    run = played(scene)
    for exactly in (False, True):
        text = _as_playbook(scene, run, complaint, name, exactly=exactly)
        if text and _fails(text, name):
            return text
    return _as_simulation(scene, complaint, name)


def _head(complaint: Complaint, name: str) -> str:
    said = "nothing was noticed" if complaint.named == UNSEEN else f"called {complaint.named}"
    return f'def test_{name}() -> None:\n    """It was {complaint.true}, and {said}."""\n'


def _expected(complaint: Complaint) -> str:
    if complaint.named in NO_CAUSE:
        return f'assert set(scene.stalls()) == {{"{complaint.true}"}}'
    return f'assert "{complaint.named}" not in scene.stalls()'


def _as_playbook(scene: Scene, run: Run, complaint: Complaint, name: str, *, exactly: bool) -> str:
    """Nothing where a playbook has no words for it: other endpoints, several answers, lost packets."""
    seen = [job for job in scene.jobs if job.seen]
    plain = all(job.endpoint == "chat" and job.answers == 1 and not job.background for job in seen)
    if not plain or scene.hardships.lost or scene.hardships.asked:
        return ""
    lines = [f"    scene = Scene(){'':2s}# {scene.shape.name}"]
    sent = scene.sent
    for job in sorted(seen, key=lambda job: job.arrives):
        media = ", media=True" if job.encoded else ""
        begun = f'scene.prompt({sent[job.name]:.1f}, {job.prompt}, "{job.name}"{media})'
        events = run.delivery.events.get(job.name, [])
        if not job.streams:
            ready = max(
                (t.made for rank in run.ranks for t in rank.tokens if t.sequence.job.name == job.name), default=0
            )
            lines.append(f"    {begun}" + (f".answers_in_json({ready + 2:.1f})" if ready else ""))
            continue
        lines += _reads(job, begun, events, exactly=exactly)
        end = max([scene.until + 20, *(event.read for event in events)])
        done = sum(len(event.tokens) for event in events) == job.answer - job.hidden
        if job.leaves is not None:
            lines.append(f"    {_variable(job)}.client_leaves({job.leaves:.1f})")
        else:
            lines.append(f"    {_variable(job)}.{'ends' if done else 'client_leaves'}({end:.1f})")
        for since, until in run.delivery.blocked.get(job.name, ()):
            lines.append(f"    {_variable(job)}.blocked({since:.1f}, {until:.1f})")
    for since, until in scene.hardships.relay:
        lines.append(f"    scene.relay_lags({until:.1f}, {(until - since) / 1000:.3f})")
    lines += _pages(scene, run)
    return _head(complaint, name) + "\n".join([*lines, "    scene.play()", f"    {_expected(complaint)}", ""])


def _variable(job: Job) -> str:
    return job.name.replace("-", "_")


def _reads(job: Job, begun: str, events: list[Event], *, exactly: bool) -> Iterator[str]:
    yield f"    {_variable(job)} = {begun}"
    reads = [(at, [len(event.tokens) for event in each]) for at, each in groupby(events, key=lambda event: event.read)]
    for counts, same in groupby(reads, key=lambda read: read[1]):
        moments = [at for at, _ in same]
        text = f', text="{" word" * counts[0]}"' if counts[0] > 1 else ""
        several = f", {len(counts)}" if len(counts) > 1 else ""
        yield f"    {_variable(job)}.answers({_moments(moments, exactly=exactly)}{several}{text})"


def _moments(moments: list[float], *, exactly: bool) -> str:
    if len(moments) < 4:
        return str([round(at, 1) for at in moments])
    gaps = [later - before for before, later in pairwise(moments)]
    parts = [f"[{moments[0]:.1f}]"]
    alike: list[list[float]] = []
    for gap in gaps:
        if alike and not exactly and abs(gap - alike[-1][0]) <= _ALIKE * alike[-1][0]:
            alike[-1].append(gap)
        else:
            alike.append([gap])
    parts += [f"[{sum(each) / len(each):.2f}] * {len(each)}" if len(each) > 1 else f"[{each[0]:.1f}]" for each in alike]
    return f"accumulate({' + '.join(parts)})"


def _pages(scene: Scene, run: Run) -> Iterator[str]:
    if scene.hardships.page != "there":
        return
    at = 500.0
    while at < scene.until:
        if not any(since <= at < until for since, until in scene.hardships.api_server):
            states = [rank.state(at) for rank in run.ranks[: len(run.ranks) - scene.shape.unseen]]
            running, waiting = sum(each.running for each in states), sum(each.waiting for each in states)
            usage = max(each.usage for each in states)
            taken = sum(each.preemptions for each in states)
            yield (
                f"    scene.gauges({at:.0f}, running={running}, waiting={waiting}, kv_usage={usage:.2f}, "
                f"preemptions={taken}.0, engines={len(states)})"
            )
        at += 1000.0


def _fails(text: str, name: str) -> bool:
    """Whether the test fails as it should: by its last line, and by nothing else."""
    room: dict[str, Any] = {"Scene": Playbook, "accumulate": accumulate}
    exec(compile(text, name, "exec"), room)  # what was just written here
    try:
        room[f"test_{name}"]()
    except AssertionError as error:
        return traceback.extract_tb(error.__traceback__)[-1].filename == name
    return False


def _as_simulation(scene: Scene, complaint: Complaint, name: str) -> str:
    jobs = ",\n        ".join(map(_told, scene.jobs))
    scene_ = (
        f"Scene(\n        {_told(scene.shape)},\n        {_told(scene.pace)},\n        jobs,\n        "
        f"{_told(scene.hardships)},\n        {scene.until:.0f},\n        {scene.seed!r},\n    )"
    )
    return (
        f"{_head(complaint, name)}    jobs = [\n        {jobs},\n    ]\n    scene = {scene_}\n"
        f"    said = judge(played(scene)).seconds\n"
        f"    assert not said[{complaint.true!r}, {complaint.named!r}]\n"
    )


def _told(thing: Job | Shape | Speed | Hardships | Scheduling | Asked) -> str:
    """As it is written, without what is usual."""
    parts = []
    for each in fields(thing):
        value = getattr(thing, each.name)
        if value == _usual(each) or (each.name, isinstance(thing, Shape)) == ("like", True):
            continue
        written = _told(value) if isinstance(value, (Scheduling, Asked)) else repr(_short(value))
        parts.append(f"{each.name}={written}")
    return f"{type(thing).__name__}({', '.join(parts)})"


def _usual(each: Field[Any]) -> Any:
    return each.default if each.default_factory is MISSING else each.default_factory()


def _short(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 2)
    if isinstance(value, (list, tuple)):
        return type(value)(map(_short, value))
    return value
