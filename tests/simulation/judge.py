"""Verdicts held against truth, in seconds of stalls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.core.script import EPOCH_NS
from tests.simulation.learned import Learned
from tests.simulation.play import Run
from tests.simulation.truth import UNSEEN_PROMPT, TrueStall

from prefillwatch.analysis.delays import Stall
from prefillwatch.units import MS

UNATTRIBUTED = "unattributed"
UNSEEN = "no stall"
NO_CAUSE = frozenset((UNATTRIBUTED, UNSEEN))
#: What nobody but us can know of, and what is long without a cause: the right verdict is none.
NAMELESS = frozenset(("ours", "none", "blind", UNSEEN_PROMPT))
SAME = 0.1  # milliseconds
NEAR = 50.0  # milliseconds from a hole in our own records


@dataclass(frozen=True)
class Said:
    """A verdict; times in milliseconds from the start of the run, ``names`` with their parts of the blame."""

    name: str
    start: float
    end: float
    cause: str
    names: dict[str, float]


@dataclass
class Figures:
    """``seconds`` that readers waited by (true cause, named cause)."""

    seconds: Counter[tuple[str, str]] = field(default_factory=Counter)
    wrong_names: float = 0.0
    learned: list[Learned] = field(default_factory=list)  # one of each run
    pages: Counter[tuple[str, str]] = field(default_factory=Counter)  # alert, and whether it was right, false, missed

    def __add__(self, other: Figures) -> Figures:
        return Figures(
            self.seconds + other.seconds,
            self.wrong_names + other.wrong_names,
            self.learned + other.learned,
            self.pages + other.pages,
        )

    @property
    def total(self) -> float:
        return sum(self.seconds.values())

    def true(self, cause: str) -> float:
        return sum(each for (true, _), each in self.seconds.items() if true == cause)

    def named(self, cause: str) -> float:
        return sum(each for (_, named), each in self.seconds.items() if named == cause)

    @property
    def precision(self) -> float:
        return share(self.seconds["prefill", "prefill"], self.named("prefill"), 1.0)

    @property
    def recall(self) -> float:
        return share(self.seconds["prefill", "prefill"], self.true("prefill"), 1.0)

    @property
    def right_names(self) -> float:
        """Of the seconds rightly called prefill."""
        return 1.0 - share(self.wrong_names, self.seconds["prefill", "prefill"], 0.0)

    @property
    def falsely_certain(self) -> float:
        """Share of all stall seconds for which a cause was named that was not theirs."""
        wrong = sum(each for (true, named), each in self.seconds.items() if named not in (true, *NO_CAUSE))
        return share(wrong, self.total, 0.0)

    @property
    def unattributed(self) -> float:
        """Share of the seconds that had a cause to be named, for which none was."""
        nameable = {pair: each for pair, each in self.seconds.items() if pair[0] not in NAMELESS}
        without = sum(each for (_, named), each in nameable.items() if named == UNATTRIBUTED)
        return share(without, sum(nameable.values()), 0.0)

    def pages_that(self, were: str) -> float:
        """Share of all pages, missed ones among them."""
        return share(sum(each for (_, how), each in self.pages.items() if how == were), sum(self.pages.values()), 0.0)

    def told(self, most: int = 3) -> str:
        """The largest of what was taken for something else."""
        wrong = {pair: each for pair, each in self.seconds.items() if pair[0] != pair[1] and pair[0] not in NAMELESS}
        wrong |= {pair: each for pair, each in self.seconds.items() if pair[0] in NAMELESS and pair[1] not in NO_CAUSE}
        largest = sorted(wrong.items(), key=lambda item: -item[1])[:most]
        return ", ".join(f"{each:.0f} s of {true} were {named}" for (true, named), each in largest if each >= 0.5)


def share(part: float, whole: float, of_nothing: float) -> float:
    return part / whole if whole > 0 else of_nothing


def pairs(run: Run) -> Iterator[tuple[Said | None, TrueStall | None]]:
    """Every verdict with what it is a verdict on, if there was such a stall; then the stalls that nobody noticed.

    Of what only just is a stall, and what is beside a hole in our records, nobody has to notice."""
    found: set[int] = set()
    for said in map(_said, run.said):
        true = _counterpart(said, run.truth.get(said.name, []), found)
        if true is not None:
            found.add(id(true))
        yield said, true
    for true in (each for own in run.truth.values() for each in own):
        hole = any(since - NEAR < true.end and true.start < until + NEAR for since, until in run.hardships.lost)
        if id(true) not in found and true.plain and not hole:
            yield None, true


def judge(run: Run) -> Figures:
    figures = Figures(learned=[run.learned], pages=Counter(run.pages))
    nothing = "blind" if run.hardships.lost else "none"
    for said, true in pairs(run):
        named = said.cause if said is not None else UNSEEN
        if true is None:
            assert said is not None
            figures.seconds[nothing, named] += (said.end - said.start) / 1000  # type: ignore[assignment]  # floats count as well
            continue
        figures.seconds[true.cause, named] += true.excess / 1000  # type: ignore[assignment]  # floats count as well
        if said is not None and true.cause == named == "prefill":
            figures.wrong_names += true.excess / 1000 * (1 - agreement(said, true))
    return figures


def agreement(said: Said, true: TrueStall) -> float:
    """What the shares of both have in common."""
    tokens = sum(true.culprits.values())
    return sum(min(part, true.culprits.get(name, 0) / tokens) for name, part in said.names.items()) if tokens else 0.0


def _said(stall: Stall) -> Said:
    start, end = ((at - EPOCH_NS) / MS for at in (stall.started_ns, stall.ended_ns))
    names = {each.request.request_id: each.part for each in stall.shares}
    return Said(stall.request.request_id, start, end, stall.cause, names)


def _counterpart(said: Said, own: list[TrueStall], found: set[int]) -> TrueStall | None:
    """Choices of one answer can have gaps at the same time: each is found once."""
    for true in own:
        if id(true) not in found and abs(true.end - said.end) < SAME and abs(true.start - said.start) < SAME:
            return true
    return None
