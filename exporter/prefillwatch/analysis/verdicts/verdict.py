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
from typing import Final, NamedTuple

from prefillwatch.analysis.delays import Evidence
from prefillwatch.analysis.tokens import OF_STREAM
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
    several_engines: bool = False  # streams of another engine may go on: which one its stream is on is not known well
    engine_sure: float = 1.0  # how likely its stream is on the engine that it was judged by
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
    prefill_likely: float | None = math.inf  # the same by prompts about as long; None: none was seen
    cost_known: bool = False
    waiting_possible: float = 0.0  # generously, of all that waited when the gap began
    prefill_guessed: bool = False  # the engine's order is not known, so all that waited were taken to be in service
    # Upstream
    recomputed_tokens: int = 0  # of streams that came back to the batch with the end of this gap
    gauges_known: bool = False  # pages from around the gap are there
    preemptions: float = 0.0
    preemptions_counted: bool = False  # the server reported how many there were, before the gap and after it
    kv_usage: float | None = None
    answered_meanwhile: bool = False  # the server answered us while no stream moved
    prompts_stood_still: bool = False  # a short prompt waited through all of the gap
    page_silent: bool = False  # a page of the server's metrics was due in the gap, and did not come
    page_answers_in_prefill: bool = False  # this server was seen to answer while it read prompts
    # What else may have kept the engine busy
    unread_work: bool = False  # requests on endpoints that nobody reads
    departed: bool = False  # a prompt whose client left a moment ago, and which the server may still read
    more_running: bool = False  # the server's page knows of more requests than we do
    doubtful: bool = False  # requests of which records were lost
    # Sureness
    hole_near: bool = False  # records were lost around the gap
    held_against: str = OF_STREAM  # whose gaps the baseline is of
    pace_known: bool = True  # a stream flowed for a while, so that its usual gap is known
    ends_at_first_token: bool = False  # of one of the prompts in service
    asked_for: str = ""  # why somebody wanted the engine to stand still, through us
    asked_for_part: float = 0.0  # of the gap
    rules: VerdictRules = DEFAULT.verdicts

    @property
    def left_out(self) -> bool:
        few = self.other_steps < self.rules.few_steps * max(1.0, self.usual_steps)
        return not few and self.common_silence < self.rules.most * self.gap

    @property
    def bunched(self) -> bool:
        # An API server that stands still gives no page either, and hands on what it had.
        with_page = self.page_silent and max(self.caught_up, self.by_text) >= self.rules.fewest_by_text
        return with_page or self.caught_up >= self._proof(self.rules.fewest_bunched) or self.merged

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
    def busy(self) -> bool:
        """The engine may have worked on something that we do not see."""
        waiting = self.excess <= self.waiting_possible
        return self.unread_work or self.departed or self.more_running or self.doubtful or waiting

    @property
    def is_bounded(self) -> bool:
        return math.isfinite(self.prefill_possible)

    @property
    def unseen(self) -> bool:
        """No prompt about as long was seen."""
        return self.prefill_likely is None

    @property
    def unusual(self) -> bool:
        """No prompt about as long was seen, and a token of this one would cost more than one usually does beside what a
        step takes."""
        return self.unseen and self.excess > self.rules.usual_price * self.baseline * self.prefill_tokens

    @property
    def odd_price(self) -> bool:
        """… and more than one does anywhere."""
        return self.unseen and self.excess > self.rules.odd_price * self.baseline * self.prefill_tokens

    @property
    def unlikely(self) -> bool:
        """Longer than was seen of prompts about as long."""
        return self.prefill_likely is not None and self.excess > self.prefill_likely

    @property
    def some_bunched(self) -> bool:
        """More tokens came at once than a step makes, though not as many as had been due."""
        few = self.streams <= self.rules.few_streams
        return self.by_text >= (self.rules.fewest_by_text if few else self.rules.few_bunched)

    def evidence(self) -> Evidence:
        """Everything that speaks for or against something, ready for JSON."""
        known: Evidence = {
            "gap_seconds": round(self.gap, 4),
            "baseline_of": self.held_against,
            "common_silence_seconds": round(self.common_silence, 4),
            "engine_steps_inside": self.other_steps,
            "tokens_withheld": round(self.withheld, 1),
            "tokens_caught_up": round(max(self.caught_up, self.by_text), 1),
            "prefill_tokens_in_service": self.prefill_tokens,
            "prefill_possible_seconds": round(self.prefill_possible, 4) if self.is_bounded else None,
            "prefill_cost_known": self.cost_known,
            "prefill_guessed": self.prefill_guessed,
            "engine_gauges_known": self.gauges_known,
        }
        if self.gauges_known:
            counted = self.preemptions if self.preemptions_counted else None
            known |= {"preemptions": counted, "kv_cache_usage_ratio": self.kv_usage}
        if self.engine_sure < 1.0:
            known["engine_sureness"] = round(self.engine_sure, 3)
        optional: Evidence = {
            "price_not_seen_before": self.unusual and _prefill(self),
            "client_blocked_seconds": round(self.blocked, 4),
            "own_lag_seconds": round(self.own_lag, 4),
            "tap_records_lost": self.records_lost,
            "held_back_bursts": self.bursts,
            "recomputed_tokens": self.recomputed_tokens,
            "server_answered_meanwhile": self.answered_meanwhile,
            "prompts_stood_still": self.prompts_stood_still,
            "page_of_metrics_did_not_come": self.page_silent,
            "unread_requests": self.unread_work,
            "prompt_of_a_client_that_left": self.departed,
            "server_knows_of_more_requests": self.more_running,
            "ends_at_first_token": self.ends_at_first_token,
            "pause_reason": self.asked_for or ("server gave no answer" if self.page_silent and not self.busy else ""),
        }
        return known | {name: value for name, value in optional.items() if value}


class Judgement(NamedTuple):
    cause: str
    #: Of the evidence for the cause that holds first, from 0 to 1; one below `NAMED_FROM` is not named.
    strength: float


NAMED_FROM: Final = 0.5
#: So many points for a cause make it certain.
_CERTAIN: Final = 4.0


def weigh(case: Case) -> Judgement:
    """The first cause that holds, if what speaks for it weighs enough."""
    for cause, holds, points in _RULES:
        if holds(case):
            strength = round(min(max(points(case) / _CERTAIN, 0.0), 1.0), 2)
            return Judgement(cause if strength >= NAMED_FROM else UNATTRIBUTED, strength)
    return Judgement(UNATTRIBUTED, 0.0)


def judge(case: Case) -> str:
    """The cause."""
    return weigh(case).cause


def _ourselves(case: Case) -> bool:
    return case.records_lost or case.own_lag >= case.rules.most * case.gap


def _client(case: Case) -> bool:
    return case.blocked >= case.rules.most * case.gap


def _buffering(case: Case) -> bool:
    # One burst alone may be a server that fell behind; a stream for itself, or bursts of one size, are a hop.
    if case.bursts >= case.rules.few_bursts:
        return True
    return case.bunched and not case.merged and (case.in_bursts or case.left_out)


def _withheld(case: Case) -> bool:
    """Of one stream while others flow: a parser may wait for the end of something, on purpose."""
    return case.bunched and case.merged and case.left_out and case.streams == 1


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
    return not case.left_out


def _asked_for(case: Case) -> bool:
    return case.asked_for_part >= case.rules.most


# --- What speaks for a cause that holds, in points: two are enough to name it ---


def _certain(_: Case) -> float:
    return _CERTAIN


def _for_prefill(case: Case) -> float:
    """That a prompt was there, and dear enough, is enough; what a host that stops leaves behind speaks against it, and
    so does a price that was not seen before."""
    surprise = case.unlikely or case.odd_price
    points = 2.5 + case.ends_at_first_token + 0.5 * (not case.prefill_guessed and not case.unlikely and not case.unseen)
    points -= 2.5 * (not case.pace_known) + 1.5 * case.some_bunched + 0.5 * case.unseen + 1.75 * surprise
    if case.page_silent:
        points -= 2.0 if case.page_answers_in_prefill else 1.0
    return points


def _for_bunched(case: Case) -> float:
    """Tokens in a bunch are a sign only where it is known that they do not always come so."""
    sure = case.bursts >= case.rules.few_bursts or case.merged or case.left_out
    return 3.0 if sure else 1.0 + 2.0 * case.pace_known


def _for_preemption(case: Case) -> float:
    """A stream that seems left out beside a hole in our records may have been read there."""
    unsure = case.hole_near or (case.held_against != OF_STREAM and case.left_out)
    return 2.0 + case.preempted - unsure


def _for_engine_pause(case: Case) -> float:
    """The house has to be empty, and somebody has to say that the engine stood still and not only the way to us."""
    points = -2.0 if case.busy else 1.0
    points += case.answered_meanwhile + case.prompts_stood_still + case.page_silent
    return points - 2.0 * (not case.pace_known) - 2.0 * case.several_engines - case.hole_near


_RULES: Final[tuple[tuple[str, Callable[[Case], bool], Callable[[Case], float]], ...]] = (
    (UNATTRIBUTED, _ourselves, _certain),
    (CLIENT, _client, _certain),
    (ENGINE_PAUSE, _asked_for, _certain),
    (BUFFERING, _buffering, _for_bunched),
    (UNATTRIBUTED, _withheld, _certain),
    (FRONTEND, _frontend, _for_bunched),
    (PREEMPTION, _preempted_alone, _for_preemption),
    (UNATTRIBUTED, _left_out, _certain),
    (PREEMPTION, _recomputed, _for_preemption),
    (PREFILL, _prefill, _for_prefill),
    (PREEMPTION, _preempted, _for_preemption),
    (ENGINE_PAUSE, _engine_pause, _for_engine_pause),
)
