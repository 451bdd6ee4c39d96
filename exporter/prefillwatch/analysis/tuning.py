"""The one sheet of tunables: every number of the method that somebody may want to move.

A group per stage, in the order in which a token meets them. Each field says its unit, where its value comes from, and
which tests notice when it moves; `sheet` lists them all, docs/method.md has the list as a table, and `make sensitivity`
moves each by 30 %. A `Tuning` is handed to the books when they are made, so two of them can be compared in one process.

Bounds on memory and on work per call are no tunables: they stand where they are used.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, NamedTuple, TypeVar

from prefillwatch.units import MS, NS

T = TypeVar("T", int, float)


def tunable(value: T, unit: str, origin: str, noticed: str) -> T:
    """A field with a unit, the reason for its value, and what notices when it moves by 30 %: names of test files, and
    "recordings" (`make sensitivity`)."""
    return field(default=value, metadata={"unit": unit, "origin": origin, "noticed": noticed})


@dataclass(frozen=True, slots=True)
class StepClock:
    """Reads to steps (`steps.heartbeat`)."""

    most_of_a_step: float = tunable(
        0.8,
        "clear steps",
        "reads of one step come within a fraction of it; no second step begins before a whole one",
        "test_heartbeat",
    )
    after_a_long_step: float = tunable(
        1.5,
        "clear steps",
        "delivery after a long step spread over 10 ms where clear steps took 9",
        "test_heartbeat, recordings",
    )
    widest_spread_ns: int = tunable(
        50 * MS, "ns", "reads further apart are never one step, also while no clear step is known", "recordings"
    )


@dataclass(frozen=True, slots=True)
class EngineRules:
    """Streams to engines, where there are several behind one door (`engines.co_movement`)."""

    near_ns: int = tunable(
        3 * MS, "ns", "streams of one step are read within one or two milliseconds", "test_co_movement"
    )
    missed: float = tunable(0.05, "of reads", "of the same engine and not near the others'", "test_co_movement")
    weight: float = tunable(0.5, "of a read", "neighbouring reads tell the same story twice", "test_co_movement")
    fades: float = tunable(
        0.995,
        "per read",
        "engines in step by chance are not for 200 steps",
        "test_co_movement",
    )
    most_sure: float = tunable(12.0, "log odds", "what was certain can be unlearned soon", "test_co_movement")
    enough: float = tunable(3.0, "log odds", "twenty to one", "test_engines")
    patience_ns: int = tunable(1500 * MS, "ns", "a stream that reads seldom is placed by guess", "test_engines")
    named_from: float = tunable(
        0.9, "likelihood", "of its engine, before a stall is judged by that engine alone", "test_engines"
    )


@dataclass(frozen=True, slots=True)
class ClearSteps:
    """What a step takes without a prompt (`cost.clear_step`)."""

    kept: int = tunable(
        64, "steps", "of each level of concurrency; follows a growing context within seconds", "test_clear_step"
    )
    enough: int = tunable(8, "steps", "the median of fewer jumps", "test_clear_step")
    standard_deviations: float = tunable(
        5.0, "deviations", "the scatter of real steps has long tails", "test_clear_step"
    )
    least_rise: float = tunable(0.15, "of a clear step", "a batch grows by as much without a prompt", "test_clear_step")
    quick_quantile: float = tunable(
        0.25,
        "of all steps",
        "where requests wait all the time, the quickest steps are those without a prompt",
        "test_clear_step",
    )
    quick_spread: float = tunable(
        2.0, "times that quantile", "up to here a step counts as one of the quick ones", "test_clear_step"
    )


@dataclass(frozen=True, slots=True)
class FirstTokens:
    """First tokens to steps (`steps.open_steps`, `steps.engine_reported`, `steps.timeline`)."""

    after_first_read_ns: int = tunable(
        15 * MS,
        "ns",
        "largest distance seen from a step's first read to a first token of the same step",
        "test_open_steps, test_reported_steps, recordings",
    )
    before_first_read_ns: int = tunable(
        10 * MS, "ns", "the same, where the first token was delivered first", "test_open_steps"
    )
    after_reported_end_ns: int = tunable(
        20 * MS,
        "ns",
        "longer than after a first read: delivery lies between the engine's own clock and us as well",
        "test_engine_reported",
    )
    before_reported_end_ns: int = tunable(
        5 * MS,
        "ns",
        "shorter than before a first read: nothing is delivered before it is made; clocks differ a little",
        "test_engine_reported",
    )
    on_its_way_ns: int = tunable(
        100 * MS, "ns", "the API server tokenises a long prompt before the engine sees it", "test_timeline"
    )
    reported_late_ns: int = tunable(
        100 * MS,
        "ns",
        "the engine's report of a step is with us so long after its end, several API servers included",
        "test_timeline",
    )
    reports_stop_ns: int = tunable(
        5 * NS,
        "ns",
        "an engine that reports no step for so long does not report any more; then the heartbeat counts",
        "test_timeline",
    )


@dataclass(frozen=True, slots=True)
class PackingRules:
    """Prompts to steps (`steps.packing`)."""

    too_short: float = tunable(
        0.5,
        "of the expected time",
        "a step shorter than half of what its tokens should cost did not carry them",
        "test_open_steps",
    )
    full: float = tunable(
        0.99, "of the budget", "a step that uses so much of its budget has no room for a prompt", "test_packing"
    )
    explained: float = tunable(
        0.75,
        "of the excess time",
        "a step whose known prompts should take so much of it carried no unknown one",
        "test_packing",
    )
    clear_at_least: float = tunable(
        0.6,
        "clear steps",
        "a shorter one is a splinter of another step and does not show that no prompt was there",
        "test_open_steps",
    )
    size_error: float = tunable(
        0.1, "of the true size", "a prompt placed with a size so near to it teaches the cost", "test_packing"
    )


@dataclass(frozen=True, slots=True)
class BudgetSearch:
    """The engine's tokens per step (`steps.budget`)."""

    busy_times: int = tunable(64, "busy times", "kept to learn from; older ones weigh next to nothing", "test_budget")
    steps: int = tunable(256, "steps", "single steps kept to learn the cost from", "test_budget")
    forget: float = tunable(0.95, "per busy time", "a server may be started anew with another budget", "test_budget")
    fewest_tokens: int = tunable(64, "tokens", "fewer say more about the noise than about the engine", "test_budget")
    enough_sure: int = tunable(
        4, "busy times", "with all sizes known make those with estimated sizes unnecessary", "test_budget"
    )
    fewest_reported: int = tunable(
        3,
        "steps",
        "steps that the engine reported teach a cost from so many on: one may be long for any reason",
        "test_budget",
    )
    poor_fit: float = tunable(
        0.15,
        "of step time",
        "so much of it in the wrong place, and other budgets than powers of two are tried",
        "recordings",
    )
    much_better: float = tunable(
        0.7, "of the misfit before", "such a budget is taken when it leaves no more than this", "test_budget"
    )
    enough_steps: int = tunable(
        12, "steps", "beyond the first of each busy time, before other budgets are tried", "test_budget"
    )
    proven_by: float = tunable(
        0.5, "steps", "in the wrong place under an unlimited budget, or without chunks, to refute either", "test_budget"
    )


@dataclass(frozen=True, slots=True)
class TimelineRules:
    """When steps become final (`steps.timeline`)."""

    horizon_ns: int = tunable(
        120 * NS, "ns", "no prompt takes longer; older steps become final by guess", "test_timeline"
    )
    most_steps: int = tunable(20_000, "steps", "as many stay open at most, 120 s of 6 ms each", "test_timeline")
    long_busy_time: int = tunable(200, "steps", "a busy time of more is learned from in parts", "test_timeline")
    first_look: int = tunable(
        32, "steps", "the same while nothing is certain, since prompts wait for their place then", "test_timeline"
    )
    idle_ns: int = tunable(
        500 * MS, "ns", "no step for so long before a first token: it was waited for by itself", "test_bursts"
    )


@dataclass(frozen=True, slots=True)
class CostRules:
    """What prompt tokens cost (`cost`)."""

    low_quantile: float = tunable(
        0.35, "quantile", "whatever else happens in a busy time only adds to it", "test_busy_times"
    )
    trusted_from: int = tunable(
        6, "busy times", "from so many on the cost is good enough to find cached tokens", "test_busy_times"
    )
    busy_times_per_term: int = tunable(
        4, "busy times", "per term of the law, before the term is believed", "test_busy_times"
    )
    better: float = tunable(
        0.8, "of the error before", "a term of the law is believed when it leaves no more than this", "test_busy_times"
    )
    slack: float = tunable(
        2.0,
        "times the expected time",
        "what a prompt may take: at three, 128 tokens took the blame for 316 recomputed",
        "test_costs, recordings",
    )
    odd_step: float = tunable(
        3.0, "times the usual excess", "steps with prompts as long vary by as much, and hardly by more", "test_prefill"
    )
    alike: float = tunable(
        2.0, "times the size", "prompts up to twice or down to half as long cost alike per token", "test_costs"
    )
    fewest_alike: int = tunable(3, "steps", "the median of fewer is any one of them", "test_costs")
    fewest_steps: int = tunable(
        8, "steps", "with prompts, and as many without, before the straight line is drawn", "test_line"
    )
    outlier: float = tunable(1.5, "deviations", "Huber's constant, 95 % efficient on clean data", "test_line")


@dataclass(frozen=True, slots=True)
class AdviceRules:
    """Which budget is advised (`cost.advice`)."""

    worst_fit: float = tunable(
        0.5, "R squared", "a line that explains less than half of the step times advises nothing", "test_advice"
    )
    farthest: int = tunable(4, "times the fullest step", "beyond it the line is a guess", "test_advice")
    hardly: float = tunable(
        2.0, "clear steps", "a full step that takes no longer is an effect that nobody notices", "test_advice"
    )


@dataclass(frozen=True, slots=True)
class GapRules:
    """Gaps and what came with them (`ledger`)."""

    patience_ns: int = tunable(
        250 * MS,
        "ns",
        "a gap is clear or not by what is known then: its step has closed, and first tokens have come",
        "test_populations",
    )
    late_ns: int = tunable(
        20 * MS, "ns", "reads so near to the end of a time in which a relay did not run are late by it", "test_relays"
    )
    size_patience_ns: int = tunable(
        10 * NS,
        "ns",
        "a first token waits so long for the exact size of its prompt, while texts of a model are new",
        "test_exchange",
    )
    enough_events: int = tunable(
        5, "token events", "before it is known how long the text of one usually is", "test_stalls"
    )
    long_text: int = tunable(
        48, "characters", "more than one token has, so it may hold tokens that were held back", "test_when_final"
    )
    interval_events: int = tunable(
        2, "token events", "after the first, before usage shows how many tokens come at once", "test_intervals"
    )
    interval_answers: int = tunable(
        9, "answers", "the last of a model, of which the median counts: a server's interval is one", "test_intervals"
    )


@dataclass(frozen=True, slots=True)
class FlowRules:
    """Which gaps and steps may teach (`tokens.flow`)."""

    long_ns: int = tunable(100 * MS, "ns", "the shortest stall: what is shorter is no delay to anybody", "test_flow")
    jump: float = tunable(4.0, "times the gap before", "so much longer at once is a delay, as of stalls", "test_flow")
    most_aftermath_ns: int = tunable(
        250 * MS, "ns", "what was held back by a delay of any length is read within it", "test_flow"
    )
    quickest_ns: int = tunable(
        5 * MS, "ns", "tokens that come quicker right after a late first one were made before", "test_flow"
    )
    plateau_ns: int = tunable(
        20 * NS, "ns", "slow steps that nobody causes are what the engine takes now after so long", "test_populations"
    )


@dataclass(frozen=True, slots=True)
class BaselineRules:
    """What an undisturbed stream takes per token (`tokens.baselines`)."""

    kept: int = tunable(
        32, "gaps", "of a stream: the median's error is 22 % of the spread of the gaps", "test_baselines, recordings"
    )
    enough: int = tunable(5, "gaps", "of a stream, before it has a baseline of its own", "test_baselines")
    model_kept: int = tunable(1024, "gaps", "of a model", "test_baselines")
    model_enough: int = tunable(
        3, "gaps", "of a model: half of them have to be off before a median is", "test_baselines"
    )
    per_batch: int = tunable(
        16, "gaps", "of a model, from one batch: it looks back for seconds also with many streams", "test_baselines"
    )
    quick_quantile: float = tunable(
        0.25,
        "quantile",
        "of a model's gaps of which none was clear: the quickest are the least disturbed",
        "test_baselines",
    )
    quick_enough: int = tunable(
        64, "gaps", "of a model without a clear one: fewer may all be of the first prompt", "test_baselines"
    )


@dataclass(frozen=True, slots=True)
class VerdictRules:
    """Causes of stalls (`verdicts`)."""

    most: float = tunable(
        0.5, "of the gap", "what covers half of a gap explains more of it than all else together", "test_verdict"
    )
    few_steps: int = tunable(2, "steps", "a stream may miss a step by jitter, hardly two", "test_prefill")
    enough_bunched: float = tunable(
        32.0, "tokens", "no single step can have made so many of one stream", "test_verdict"
    )
    fewest_bunched: float = tunable(2.0, "tokens", "one more than usual at once is a rare word", "test_verdict")
    fewest_by_text: float = tunable(
        4.0, "tokens", "where only the length of a text shows it: some words are long", "test_verdict"
    )
    few_bunched: float = tunable(
        1.0, "tokens", "in the mean over several streams: no step makes two of each", "test_prices"
    )
    usual_price: float = tunable(
        0.02, "of a clear step", "a prompt's token costs less at every engine that was measured", "test_prices"
    )
    odd_price: float = tunable(
        0.05, "of a clear step", "so much is more than on slow machines with long contexts", "test_prefill"
    )
    generous: float = tunable(
        2.0, "times what is possible", "a silence that prompts may have filled is no certain pause", "test_prices"
    )
    few_streams: int = tunable(2, "streams", "up to so many the text of one word decides the mean", "test_verdict")
    full_cache: float = tunable(
        0.95, "of the KV cache", "from there on blocks have to be taken from a sequence", "test_verdict"
    )
    burst: int = tunable(4, "token events", "in one read, as a buffer lets go", "test_verdict")
    alike_bursts: float = tunable(2.0, "times the size", "a buffer's bursts are of about one size", "test_verdict")
    quick: float = tunable(
        1.5, "baseline gaps", "two steps that end no further apart have no prompt between them", "test_case"
    )
    spread_ns: int = tunable(20 * MS, "ns", "delivery spreads a step's reads so far after a long step", "test_case")
    back_together_ns: int = tunable(
        60 * MS, "ns", "streams that come back to the batch in one step read within it", "test_case"
    )
    pages_for_a_rhythm: int = tunable(4, "pages", "before it is known how often one comes", "test_evidence")
    page_is_due: float = tunable(
        1.6, "usual distances", "a page later than that did not come when due", "test_evidence"
    )
    departed_ns: int = tunable(
        20 * NS, "ns", "a server may read on the prompt of a client that left, at most so long", "test_case"
    )
    ours_ns: int = tunable(1500 * MS, "ns", "a page so near to a gap says whether others use the server", "test_case")
    beside_a_hole_ns: int = tunable(
        1500 * MS, "ns", "what was lost so near to a gap may have belonged to it", "test_case"
    )
    burst_part: float = tunable(
        0.15, "of the silence", "a hop lets go in far less time than it collects", "test_bursts"
    )
    bursts_part: float = tunable(0.8, "of all bursts", "a hop holds back all that passes it", "test_bursts")
    bursts_within_ns: int = tunable(20 * NS, "ns", "a hop's rhythm shows in bursts so near", "test_bursts")
    few_bursts: int = tunable(2, "bursts", "one may be a server that fell behind", "test_verdict")
    quickest_token_ns: int = tunable(
        5 * MS, "ns", "no server makes tokens of one stream much faster, and never flows", "test_bursts"
    )
    judged_together_ns: int = tunable(
        50 * MS, "ns", "stalls that began and ended so near to each other are one case", "recordings"
    )
    stale_page_ns: int = tunable(
        5 * NS, "ns", "a page of metrics so long before or after a gap says nothing of it", "test_when_final"
    )
    least_aftermath_ns: int = tunable(
        50 * MS, "ns", "a server hands on what it held back within so long at least", "test_when_final"
    )
    most_aftermath_ns: int = tunable(300 * MS, "ns", "and what comes later than this was made later", "test_stalls")
    ripe_ns: int = tunable(
        1500 * MS,
        "ns",
        "what speaks about a delay has come by then: held back tokens, own lag, a page every second",
        "test_when_final",
    )
    price_patience_ns: int = tunable(
        10 * NS, "ns", "a verdict on a prompt waits so long for others that show what it should take", "test_prices"
    )
    patience_ns: int = tunable(30 * NS, "ns", "a verdict waits no longer for the timeline", "test_when_final")


@dataclass(frozen=True, slots=True)
class LateRules:
    """Causes of late first tokens (`verdicts.waits`)."""

    unlearned_token_ns: int = tunable(
        5 * MS, "ns per token", "a very slow machine, so that a long prompt is no wait", "test_waits"
    )
    long: int = tunable(4, "times the size", "a prompt four times as long as the own one is long", "test_waits")
    overtaken: int = tunable(
        10, "requests", "so many later ones served first are no accident of scheduling", "test_waits"
    )
    young_ns: int = tunable(300 * NS, "ns", "a server compiles and warms up in its first minutes", "test_waits")
    first_requests: int = tunable(8, "requests", "that a young server is warmed up by", "test_waits")
    silent_ns: int = tunable(
        5 * NS,
        "ns",
        "an engine from which nothing came for so long is stuck, unless a prompt explains it",
        "test_waits",
    )


@dataclass(frozen=True, slots=True)
class IncidentRules:
    """Delays that belong together (`verdicts.incidents`)."""

    chain_ns: int = tunable(
        NS, "ns", "delays of one cause within a second of each other are one incident to a reader", "test_incidents"
    )


@dataclass(frozen=True, slots=True)
class PressureRules:
    """How far over the promises (`pressure`)."""

    capacity_s: float = tunable(
        30.0,
        "s",
        "time constant: two periods of an autoscaler that looks every 15 s, and less than any server starts in",
        "test_gauge",
    )
    interference_s: float = tunable(
        300.0,
        "s",
        "time constant: a worst thousandth needs thousands of gaps; for tickets, not for scaling",
        "test_gauge",
    )
    tail: float = tunable(
        2.3, "times the mean", "nine of ten waits of a queue are shorter: ln 10, as they fall off", "test_formula"
    )
    often: float = tunable(
        0.25,
        "of the time",
        "who decodes more seldom presses in proportion, and an idle server not at all",
        "test_formula",
    )
    drained_s: float = tunable(
        60.0, "s", "a backlog that was served within a minute is what more servers are wanted for", "test_formula"
    )
    most_backlog: float = tunable(
        3.0, "ratio", "no autoscaler should multiply by more at once: a stuck engine is no load", "test_formula"
    )
    least_room: float = tunable(
        0.5, "of the promised gap", "a clear step that leaves less is no matter of prompts", "test_gauge"
    )
    worst_gaps: float = tunable(
        0.001, "of all gaps", "those that the objective of the promise on gaps leaves out", "test_gauge"
    )
    fewest_worst: float = tunable(8.0, "gaps", "the mean of fewer is any one of them", "test_gauge")
    least_allowance: float = tunable(
        0.25, "of the promise", "may be waited by a prompt that nobody could read in time", "test_gauge"
    )
    fewest_requests: int = tunable(8, "requests", "before anything is said of a server", "test_gauge")


@dataclass(frozen=True, slots=True)
class Tuning:
    """All groups."""

    clock: StepClock = StepClock()
    clear_steps: ClearSteps = ClearSteps()
    engines: EngineRules = EngineRules()
    first_tokens: FirstTokens = FirstTokens()
    packing: PackingRules = PackingRules()
    budget: BudgetSearch = BudgetSearch()
    timeline: TimelineRules = TimelineRules()
    cost: CostRules = CostRules()
    advice: AdviceRules = AdviceRules()
    gaps: GapRules = GapRules()
    flow: FlowRules = FlowRules()
    baselines: BaselineRules = BaselineRules()
    verdicts: VerdictRules = VerdictRules()
    waits: LateRules = LateRules()
    incidents: IncidentRules = IncidentRules()
    pressure: PressureRules = PressureRules()

    def moved(self, name: str, factor: float) -> Tuning:
        """With one tunable (``group.field``) times a factor. A count stays whole, and moves by one at least."""
        group_name, field_name = name.split(".")
        group: Any = getattr(self, group_name)
        old = getattr(group, field_name)
        new = old * factor
        if isinstance(old, int):
            new = round(new) if round(new) != old else old + (1 if factor > 1 else -1)
        moved: Any = replace(group, **{field_name: new})
        return replace(self, **{group_name: moved})


#: What the product runs with.
DEFAULT: Final = Tuning()


class Tunable(NamedTuple):
    """One line of the sheet."""

    name: str
    value: float
    unit: str
    origin: str
    noticed: str


def sheet() -> list[Tunable]:
    """All tunables, ``group.field``, with the values the product runs with."""
    return [
        Tunable(f"{group.name}.{each.name}", getattr(its, each.name), **each.metadata)
        for group in fields(DEFAULT)
        for its in [getattr(DEFAULT, group.name)]
        for each in fields(its)
    ]
