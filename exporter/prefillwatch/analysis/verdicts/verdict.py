"""Why did a stream stall? Rules on what is known of the gap, in order; the first that holds names the cause.

What the rules rest on:

- A token that came in time but was handed on late comes in a bunch with others: then no prompt is to blame.
- A gap in which other streams got tokens is not a long step: this stream was left out of the batch.
- A prompt is to blame if it was in service and what it costs can fill the gap, generously.
- What the server does not report, or reported too long ago, is never evidence against anything.
- Where nothing fits, the cause is not known, and that is said.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from prefillwatch.analysis.delays import Evidence
from prefillwatch.analysis.tuning import DEFAULT, VerdictRules
from prefillwatch.contract.causes import (
    BUFFERING,
    CLIENT,
    ENGINE_PAUSE,
    FRONTEND,
    PREEMPTION,
    PREFILL,
    UNATTRIBUTED,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is known of one stall. Times in seconds, tokens of the prompts are uncached ones."""

    gap: float
    excess: float
    baseline: float = 0.0
    streams: int = 1  # that stalled together
    # Ourselves
    own_lag: float = 0.0  # in which we could not have read
    records_lost: bool = False
    blocked: float = 0.0  # in which the client took nothing from us
    # The other streams
    common_silence: float = 0.0  # longest time in the gap in which no stream got a token
    other_steps: int = 0  # steps of the engine seen inside the gap
    usual_steps: float = 1.0  # steps from one read of this stream to the next, where it does not read in each
    several_engines: bool = False  # streams of another engine may go on
    # What came after
    withheld: float = 0.0  # tokens that were due in the gap
    caught_up: float = 0.0  # tokens that came in a bunch at its end, beyond what was due then
    by_text: float = 0.0  # the same, by the length of the text in one event
    events: int = 1  # token events in the read that ended it
    burst_before: int = 0
    bursts: int = 0  # of late, short beside the silences and quicker than this server ever was for longer
    # Prompts in service
    prefill_tokens: int = 0
    prefill_possible: float = 0.0  # seconds that they can have taken at most
    cost_known: bool = False
    prefill_guessed: bool = False  # the engine's order is not known, so all that waited were taken to be in service
    # Upstream
    recomputed_tokens: int = 0  # of streams that came back to the batch with the end of this gap
    gauges_known: bool = False  # pages from around the gap are there
    preemptions: float = 0.0
    preemptions_counted: bool = False  # the server reported how many there were, before the gap and after it
    kv_usage: float | None = None
    answered_meanwhile: bool = False  # the server answered us while no stream moved
    prompts_stood_still: bool = False  # a short prompt waited through all of the gap
    rules: VerdictRules = DEFAULT.verdicts

    @property
    def left_out(self) -> bool:
        few = self.other_steps < self.rules.few_steps * max(1.0, self.usual_steps)
        return not few and self.common_silence < self.rules.most * self.gap

    @property
    def bunched(self) -> bool:
        return self.caught_up >= self._proof(self.rules.fewest_bunched) or self.merged

    def _proof(self, fewest: float) -> float:
        """So many tokens at once were made in the silence, whatever had been due by a pace that the engine may not have
        kept."""
        return max(fewest, min(self.rules.most * self.withheld, self.rules.enough_bunched))

    @property
    def merged(self) -> bool:
        """Several tokens in one event, which only the server can do."""
        few = self.streams <= self.rules.few_streams
        return self.by_text >= self._proof(self.rules.fewest_by_text if few else self.rules.fewest_bunched)

    @property
    def in_bursts(self) -> bool:
        sizes = self.events, self.burst_before
        return min(sizes) >= self.rules.burst and max(sizes) <= self.rules.alike_bursts * min(sizes)

    @property
    def preempted(self) -> bool:
        """A full cache is a sign only where preemptions are not counted: a count that stands still speaks
        against."""
        full = self.kv_usage is not None and self.kv_usage >= self.rules.full_cache
        return self.preemptions > 0 or (full and not self.preemptions_counted)

    @property
    def _is_bounded(self) -> bool:
        return self.cost_known and math.isfinite(self.prefill_possible)

    def evidence(self) -> Evidence:
        """Everything that speaks for or against something, ready for JSON."""
        known: Evidence = {
            "gap_seconds": round(self.gap, 4),
            "common_silence_seconds": round(self.common_silence, 4),
            "engine_steps_inside": self.other_steps,
            "tokens_withheld": round(self.withheld, 1),
            "tokens_caught_up": round(max(self.caught_up, self.by_text), 1),
            "prefill_tokens_in_service": self.prefill_tokens,
            "prefill_possible_seconds": round(self.prefill_possible, 4) if self._is_bounded else None,
            "prefill_cost_known": self.cost_known,
            "prefill_guessed": self.prefill_guessed,
            "engine_gauges_known": self.gauges_known,
        }
        if self.gauges_known:
            counted = self.preemptions if self.preemptions_counted else None
            known |= {"preemptions": counted, "kv_cache_usage_ratio": self.kv_usage}
        optional: Evidence = {
            "client_blocked_seconds": round(self.blocked, 4),
            "own_lag_seconds": round(self.own_lag, 4),
            "tap_records_lost": self.records_lost,
            "held_back_bursts": self.bursts,
            "recomputed_tokens": self.recomputed_tokens,
            "server_answered_meanwhile": self.answered_meanwhile,
            "prompts_stood_still": self.prompts_stood_still,
        }
        return known | {name: value for name, value in optional.items() if value}


def judge(case: Case) -> str:
    """The cause."""
    return next((cause for cause, holds in _RULES if holds(case)), UNATTRIBUTED)


def _ourselves(case: Case) -> bool:
    return case.records_lost or case.own_lag >= case.rules.most * case.gap


def _client(case: Case) -> bool:
    return case.blocked >= case.rules.most * case.gap


def _buffering(case: Case) -> bool:
    # One burst alone may be a server that fell behind; a stream for itself, or bursts of one size, are a hop.
    if case.bursts >= case.rules.few_bursts:
        return True
    return case.bunched and not case.merged and (case.in_bursts or case.left_out)


def _frontend(case: Case) -> bool:
    return case.bunched


def _preempted_alone(case: Case) -> bool:
    return case.left_out and not case.several_engines and (case.preempted or not case.gauges_known)


def _left_out(case: Case) -> bool:
    return case.left_out and not case.several_engines


def _recomputed(case: Case) -> bool:
    return case.recomputed_tokens > (0 if case.prefill_guessed else case.prefill_tokens)


def _prefill(case: Case) -> bool:
    if case.prefill_guessed and _preempted(case):
        return False
    return case.prefill_tokens > 0 and case.excess <= case.prefill_possible


def _preempted(case: Case) -> bool:
    return case.preemptions > 0 and (case.kv_usage is None or case.kv_usage >= case.rules.full_cache)


def _engine_pause(case: Case) -> bool:
    return not case.left_out and (case.answered_meanwhile or case.prompts_stood_still)


_RULES: Final[tuple[tuple[str, Callable[[Case], bool]], ...]] = (
    (UNATTRIBUTED, _ourselves),
    (CLIENT, _client),
    (BUFFERING, _buffering),
    (FRONTEND, _frontend),
    (PREEMPTION, _preempted_alone),
    (UNATTRIBUTED, _left_out),
    (PREEMPTION, _recomputed),
    (PREFILL, _prefill),
    (PREEMPTION, _preempted),
    (ENGINE_PAUSE, _engine_pause),
)
