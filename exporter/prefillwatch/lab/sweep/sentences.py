"""What a sweep found, in sentences: the same in the terminal and on the page. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Final

from prefillwatch.lab.probe import figures as probe
from prefillwatch.lab.probe.sentences import Side, compare
from prefillwatch.lab.sweep.choice import Choice, Cost, Population, Slo, choose
from prefillwatch.lab.sweep.figures import Outcome, ProbeFigures, Spread, p99_ranks_from_top
from prefillwatch.lab.sweep.pareto import TOLERANCE, beaten_by, goals, pareto_front
from prefillwatch.lab.sweep.quantities import bounds, named, rate
from prefillwatch.report import duration, listed

#: Medians within this factor of each other are called equal.
_ALIKE: Final = 1.2
#: p99s that contradict each other by less than this factor are not worth a sentence.
_CONTRADICTING: Final = 1.1
#: When our own lateness reaches this share of the gaps' p99, the report says so.
_LAG_SHARE: Final = 0.2
#: The smallest number of samples whose largest bounds a p99 from above.
FEWEST_TO_BOUND: Final = next(n for n in itertools.count(1) if p99_ranks_from_top(n)[1])

_POPULATIONS: Final[dict[Population, str]] = {
    "window": "in the injection window",
    "overall": "over all gaps of the probe",
    "mix": "in the mix",
}


def sentences(outcomes: Sequence[Outcome], slo: Slo, victims: int) -> list[str]:
    """The sentences of the report, from the result to how far it can be trusted."""
    measured = [outcome for outcome in outcomes if outcome.failure is None]
    if not measured:
        return ["No setting could be measured.", *on_trouble(outcomes)]
    found = on_choice(measured, slo)
    for inject in sorted({each.inject for outcome in measured for each in outcome.probes}, reverse=True):
        found += on_probes(measured, inject)
    found.append(on_medians(measured))
    found += [on_front(measured), on_samples(measured, victims), *on_trouble(outcomes)]
    return [sentence for sentence in found if sentence]


def on_probes(outcomes: Sequence[Outcome], inject: int) -> list[str]:
    """The best and the worst setting for the victims; and where the two populations order settings differently."""
    rows = [(o.label, p) for o in outcomes for p in o.probes if p.inject == inject and p.window and p.overall]
    if len(rows) < 2:
        return []
    at_once = f"With {inject} prompt{'s' if inject != 1 else ''} at once: "
    if not any(each.stalls.stalls for _, each in rows):
        worst = max(each.window.p99_seconds for _, each in rows if each.window)
        calm = f"{at_once}no victim stalled with any setting (p99 in the injection window at most {duration(worst)})."
        return [f"{calm} This model on this machine takes such prompts in too fast for these flags to matter."]
    rows.sort(key=lambda row: row[1].window.p99_seconds if row[1].window else 0.0)
    flipped = _most_contradicting(rows)
    pair = (rows[0], rows[-1])
    said = [at_once + compare(*map(_side, pair))]
    if flipped is not None and not _contradiction(*pair):
        said.append(at_once + compare(*map(_side, flipped)))
    return said


def on_medians(outcomes: Sequence[Outcome]) -> str:
    """Says that the median does not move, if it does not."""
    probes = [each for outcome in outcomes for each in outcome.probes]
    medians = [each.overall.p50_seconds for each in probes if each.overall]
    if len(outcomes) < 2 or not medians or max(medians) > _ALIKE * min(medians):
        return ""
    if not any(each.stalls.stalls for each in probes):
        return ""
    between = duration(min(medians))
    if duration(max(medians)) != between:
        between = f"{between} to {duration(max(medians))}"
    return f"The victims' median gap over a whole run is {between} with every setting: it tells nothing of all this."


def _most_contradicting(
    rows: Sequence[tuple[str, ProbeFigures]],
) -> tuple[tuple[str, ProbeFigures], tuple[str, ProbeFigures]] | None:
    """The pair of which one is better over all gaps and the other in the window, by the most."""
    found = [
        (contradiction, pair) for pair in itertools.combinations(rows, 2) if (contradiction := _contradiction(*pair))
    ]
    return max(found, key=lambda each: each[0])[1] if found else None


def _contradiction(one: tuple[str, ProbeFigures], other: tuple[str, ProbeFigures]) -> float:
    """The product of both factors where the order by window is not the order over all; else 0."""
    a, b = one[1], other[1]
    if not (a.window and b.window and a.overall and b.overall):
        return 0.0
    by_window = b.window.p99_seconds / a.window.p99_seconds
    by_all = a.overall.p99_seconds / b.overall.p99_seconds
    if min(by_window, by_all) > _CONTRADICTING or max(by_window, by_all) < 1 / _CONTRADICTING:
        return abs(math.log(by_window) * math.log(by_all))
    return 0.0


def _side(row: tuple[str, ProbeFigures]) -> Side:
    label, figures = row
    return Side(named(label), _spread(figures.overall), _spread(figures.window))


def _spread(own: Spread | None) -> probe.Spread:
    if own is None:
        return probe.Spread(0)
    return probe.Spread(own.samples, own.p50_seconds, own.p99_seconds, own.max_seconds)


def on_front(outcomes: Sequence[Outcome]) -> str:
    front = pareto_front(outcomes)
    if not front or len(outcomes) < 2:
        return ""
    said = f"On the Pareto front: {listed(named(outcome.label) for outcome in front)}."
    beaten: dict[str, list[str]] = {}
    for outcome in outcomes:
        if (winner := beaten_by(outcome, outcomes)) is not None:
            beaten.setdefault(winner.label, []).append(outcome.label)
    for winner_label, labels in beaten.items():
        verb = "is" if len(labels) == 1 else "are"
        said += f" {_capital(listed(map(named, labels)))} {verb} beaten by {named(winner_label)}."
    return said


def on_choice(outcomes: Sequence[Outcome], slo: Slo) -> list[str]:
    """Which setting keeps the promise, and what it costs."""
    if not slo.is_given:
        return []
    choice = choose(outcomes, slo)
    if choice is None:
        return [f"{_promise(slo)}: nothing was measured that it is about."]
    return [f"{_promise(slo)}: {_met(choice, slo)}", *([_cost(choice)] if len(outcomes) > 1 else [])]


def _promise(slo: Slo) -> str:
    parts = []
    if slo.gap_seconds is not None:
        parts.append(f"gaps with a p99 of at most {duration(slo.gap_seconds)} {_POPULATIONS[slo.over]}")
    if slo.first_token_seconds is not None:
        parts.append(f"first tokens with a p99 of at most {duration(slo.first_token_seconds)}")
    return f"Promised are {' and '.join(parts)}"


def _met(choice: Choice, slo: Slo) -> str:
    name, gaps = named(choice.setting.label), slo.gaps_of(choice.setting)
    first = slo.first_tokens_of(choice.setting)
    has = []
    if slo.gap_seconds is not None and gaps is not None:
        has.append(f"p99 of gaps {duration(gaps.p99_seconds)}, 95 % interval {bounds(gaps)}")
    if slo.first_token_seconds is not None and first is not None:
        has.append(f"p99 of {first.samples} first tokens {duration(first.p99_seconds)}")
    measured = "; ".join(has)
    if not choice.met:
        return f"no setting keeps that. The nearest is {name} ({measured})."
    others = [named(label) for label in choice.meeting if label != choice.setting.label]
    also = f" So {'do' if len(others) > 1 else 'does'} {listed(others)}." if others else ""
    return f"{name} keeps that ({measured}).{also}{_doubt(slo, gaps)}"


def _doubt(slo: Slo, gaps: Spread | None) -> str:
    if slo.gap_seconds is None or gaps is None:
        return ""
    if gaps.p99_high_seconds is None:
        return f" The samples do not bound it from above; the longest gap seen was {duration(gaps.max_seconds)}."
    if slo.gap_seconds < gaps.p99_high_seconds:
        return " What was promised lies within that interval, so measure longer before relying on it."
    return ""


def _cost(choice: Choice) -> str:
    name = _capital(named(choice.setting.label))
    if not choice.costs:
        by = f"{TOLERANCE * 100:.0f} %"
        return f"{name} costs nothing against the other settings: none is better by more than {by} in anything."
    return f"{name} costs, against the best of the others: {'; '.join(map(_cost_of, choice.costs))}."


def _cost_of(cost: Cost) -> str:
    if cost.goal == "rate":
        less = 1 - cost.own / cost.best
        said = f"{rate(cost.own)} generated tokens/s in the mix instead of {rate(cost.best)} ({less * 100:.0f} % less)"
        return f"{said} with {named(cost.label)}"
    what = "a p99 of gaps of" if cost.goal == "gap" else "first tokens after"
    median = "" if cost.goal == "gap" else " in the median"
    times = cost.own / cost.best
    return (
        f"{what} {duration(cost.own)}{median} instead of {duration(cost.best)} ({times:.1f} ×) with {named(cost.label)}"
    )


def on_samples(outcomes: Sequence[Outcome], victims: int) -> str:
    """How far the p99 of the injection window can be trusted, and what would bound it."""
    probes = [probe for outcome in outcomes if (probe := outcome.heaviest) is not None and probe.window is not None]
    if not probes:
        return ""
    fewest = min(probes, key=lambda each: each.window.samples if each.window else 0)
    assert fewest.window is not None
    steps = max(1, fewest.window.samples // victims)
    said = (
        f"The p99 of the window rests on as few as {fewest.window.samples:,} gaps. {victims} victims that wait for the "
        f"same step are one witness, which makes it {steps:,} steps"
    )
    if steps >= FEWEST_TO_BOUND:
        return f"{said}, enough to bound it on both sides with 95 % confidence."
    needed = math.ceil(FEWEST_TO_BOUND / steps * fewest.runs)
    return (
        f"{said}. So few do not bound it from above: take it for the longest steps that were seen. {FEWEST_TO_BOUND} "
        f"steps would bound it with 95 % confidence (about --repeats {needed})."
    )


def on_trouble(outcomes: Iterable[Outcome]) -> list[str]:
    """What a reader must know before believing a row."""
    found = []
    for outcome in outcomes:
        name = _capital(named(outcome.label))
        if outcome.failure is not None:
            found.append(f"{name} was not measured: {outcome.failure}")
        found += [f"{name}, {each.inject} prompts at once: {why}" for each in outcome.probes for why in each.failures]
        mix = outcome.mix
        if mix is not None and (mix.failed or mix.turned_away):
            found.append(
                f"{name}, mix: {mix.failed} of {mix.requests} requests failed ({'; '.join(mix.failures) or 'none'}), "
                f"{mix.turned_away} more were not sent because too many ran."
            )
        if mix is not None and mix.left_out:
            found.append(f"{name}, mix: arrivals left out, too long for the model: {mix.left_out}.")
        found += _on_lag(name, outcome)
        if outcome.failure is None and goals(outcome) is None:
            found.append(f"{name} has no place on the chart: no victim or no prompt got tokens.")
    return found


def _on_lag(name: str, outcome: Outcome) -> list[str]:
    lag, own = outcome.client_lag, goals(outcome)
    if lag is None or own is None or lag.p99_seconds < _LAG_SHARE * own.gap:
        return []
    late = f"late by {duration(lag.p99_seconds)} in the p99 and {duration(lag.max_seconds)} at most"
    return [f"{name}: this program itself was {late}; gaps are in part its own. Measure where there is less to do."]


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
