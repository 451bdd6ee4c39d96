"""The confusion matrix: stall seconds by true cause (rows) and by the cause that the sidecar named (columns)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.real.truth.said import Incident, Said
from tests.real.truth.true_causes import DISCARDED, TrueStall

#: Column of true stalls that no incident covers, row of incidents in which nobody stalled.
UNSEEN = "unseen"
NOTHING = "nothing"
_SLACK_NS = 30_000_000


@dataclass
class Confusion:
    """`seconds` by (true cause, named cause). A named cause has as many seconds as our metrics counted for it."""

    seconds: defaultdict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))
    blamed: float = 0.0
    really_in_prefill: float = 0.0
    rightly_shared: float = 0.0

    def __add__(self, other: Confusion) -> Confusion:
        seconds = defaultdict(float, self.seconds)
        for key, more in other.seconds.items():
            seconds[key] += more
        return Confusion(
            seconds,
            self.blamed + other.blamed,
            self.really_in_prefill + other.really_in_prefill,
            self.rightly_shared + other.rightly_shared,
        )

    def true(self, cause: str) -> float:
        return sum(seconds for (true, _), seconds in self.seconds.items() if true == cause)

    def named(self, cause: str) -> float:
        """Without what the machine itself caused."""
        return sum(s for (true, named), s in self.seconds.items() if named == cause and true not in DISCARDED)

    @property
    def precision(self) -> float:
        return ratio(self.seconds["prefill", "prefill"], self.named("prefill"))

    @property
    def recall(self) -> float:
        return ratio(self.seconds["prefill", "prefill"], self.true("prefill"))

    @property
    def membership(self) -> float:
        """Blame on requests whose prompts were in the engine's steps of those stalls."""
        return ratio(self.really_in_prefill, self.blamed)

    @property
    def sharing(self) -> float:
        """Blame on the right requests in the right parts."""
        return ratio(self.rightly_shared, self.blamed)

    @property
    def discarded(self) -> float:
        return sum(map(self.true, DISCARDED))


def ratio(part: float, whole: float) -> float:
    return part / whole if whole else 1.0


def confusion(said: Said, stalls: Iterable[TrueStall]) -> Confusion:
    """Every true stall is laid on the incidents at that time; what the metrics counted for their cause is spread over
    the true causes of the stalls in them. Where this errs it errs against the sidecar: a stall of another cause that it
    did not see counts as named like the chain that was going on around it."""
    found = Confusion()
    laid: dict[int, list[tuple[TrueStall, float]]] = defaultdict(list)
    freezes = said.freezes()
    for stall in stalls:
        there = [(number, each) for number, each in enumerate(freezes) if _covers(each, stall)]
        density = sum(each.density for _, each in there)
        for number, each in there:
            laid[number].append((stall, stall.excess_ns * each.density / density))
        if not there:
            found.seconds[stall.cause, UNSEEN] += stall.excess_ns / 1e9
    for number, incident in enumerate(freezes):
        _spread(found, incident, laid[number])
    return _as_counted(found, said)


def _covers(incident: Incident, stall: TrueStall) -> bool:
    since, until = max(incident.start_ns - _SLACK_NS, stall.start_ns), min(incident.end_ns + _SLACK_NS, stall.end_ns)
    shorter = min(incident.end_ns - incident.start_ns, stall.end_ns - stall.start_ns)
    return until - since >= max(1, shorter / 2)


def _spread(found: Confusion, incident: Incident, laid: list[tuple[TrueStall, float]]) -> None:
    total = sum(weight for _, weight in laid)
    if not total:
        found.seconds[NOTHING, incident.cause] += incident.seconds
    for stall, weight in laid:
        seconds = incident.seconds * weight / total
        found.seconds[stall.cause, incident.cause] += seconds
        if stall.cause == incident.cause == "prefill":
            found.blamed += seconds
    _hold_names(found, incident, laid)


def _hold_names(found: Confusion, incident: Incident, laid: list[tuple[TrueStall, float]]) -> None:
    """Names are told for an incident as a whole, so they are held against all prompts in its stalls of prefill."""
    true = [(stall, weight) for stall, weight in laid if stall.cause == "prefill"]
    if incident.cause != "prefill" or not true:
        return
    seconds = incident.seconds * sum(weight for _, weight in true) / sum(weight for _, weight in laid)
    right: defaultdict[str, float] = defaultdict(float)
    for stall, weight in true:
        for request, tokens in stall.tokens.items():
            right[request] += weight * tokens / sum(stall.tokens.values())
    shares, whole = incident.shares(), sum(right.values())
    found.really_in_prefill += seconds * sum(share for request, share in shares.items() if right[request])
    # An incident lists ten culprits; with more, only those listed can be compared.
    if incident.document["culprit_count"] > len(shares):
        whole = sum(right[request] for request in shares) or 1.0
    found.rightly_shared += seconds * sum(min(share, right[request] / whole) for request, share in shares.items())


def _as_counted(found: Confusion, said: Said) -> Confusion:
    """Incidents and metrics tell the same seconds; where they differ, what was asked for is the metric."""
    counted = said.seconds()
    told: defaultdict[str, float] = defaultdict(float)
    for (_, named), seconds in found.seconds.items():
        told[named] += seconds
    for cause, seconds in counted.items():
        if not told[cause]:
            found.seconds[NOTHING, cause] += seconds
            continue
        for true, named in list(found.seconds):
            if named == cause:
                found.seconds[true, named] *= seconds / told[cause]
    return found
