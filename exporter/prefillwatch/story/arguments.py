"""What speaks for a verdict and what against it, sentence by sentence, from its evidence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from prefillwatch.contract.causes import (
    BEFORE_ENGINE,
    BUFFERING,
    CLIENT,
    ENGINE_PAUSE,
    FRONTEND,
    PREEMPTION,
    PREFILL,
    QUEUEING,
    STUCK,
    UNATTRIBUTED,
    WARMUP,
)
from prefillwatch.report import counted, duration, share

Evidence = Mapping[str, Any]
Side = Literal["for", "against", "open"]


@dataclass(frozen=True, slots=True)
class Argument:
    """For or against a cause; ``open``: what would tell is not known."""

    cause: str
    side: Side
    words: str


#: Evidence that is there or not.
_PLAIN: Final = {
    "held_back_bursts": Argument(
        FRONTEND, "for", "the stream came in bursts before: a hop on the way holds tokens back."
    ),
    "page_of_metrics_did_not_come": Argument(
        ENGINE_PAUSE, "for", "the server did not answer our question for metrics."
    ),
    "unread_requests": Argument(ENGINE_PAUSE, "open", "The server had requests whose work cannot be read."),
    "prompt_of_a_client_that_left": Argument(
        ENGINE_PAUSE, "open", "The engine may still have read the prompt of a client that had left."
    ),
    "server_knows_of_more_requests": Argument(
        ENGINE_PAUSE, "open", "The server counted more running requests than came through here."
    ),
}
#: Causes that the evidence does not tell apart: what is bunched is one or the other by how the bunches look.
_ALIKE: Final = {BUFFERING: FRONTEND}


def arguments(kind: str, evidence: Evidence, usual: float = 0.0) -> list[Argument]:
    """On each cause that evidence says something about. ``usual``: what the worst gap should have taken."""
    return list(_freeze(evidence, usual) if kind == "freeze" else _wait(evidence))


def weighed(cause: str, found: list[Argument]) -> tuple[list[str], list[str], list[str]]:
    """What speaks for the verdict, what against it, and what could not be known: a word for another cause is one
    against this one, and a word against another cause is one for it."""
    cause = _ALIKE.get(cause, cause)
    speaks_for = [each.words for each in found if each.cause == cause and each.side == "for"]
    speaks_for += [
        f"{_not(each.cause)}{each.words}" for each in found if each.cause != cause and each.side == "against"
    ]
    against = [each.words for each in found if each.cause == cause and each.side == "against"]
    for each in found:
        # An engine that is in one long step stands still for everybody as well: the prompt in it explains that.
        explained = cause == PREFILL and each.cause == ENGINE_PAUSE
        if each.cause != cause and each.side == "for" and not explained:
            against.append(f"{_yet(each.cause)}{each.words}")
    return speaks_for, against, [each.words for each in found if each.side == "open"]


def _not(cause: str) -> str:
    return f"Not {cause.replace('_', ' ')}: " if cause != UNATTRIBUTED else ""


def _yet(cause: str) -> str:
    return f"It might be {cause.replace('_', ' ')}: " if cause != UNATTRIBUTED else ""


def _freeze(evidence: Evidence, usual: float) -> Iterator[Argument]:
    gap = float(evidence.get("gap_seconds") or 0.0)
    yield from _prompts(evidence, gap, max(0.0, gap - usual))
    yield from _others_went_on(evidence, gap)
    withheld, caught_up = (float(evidence.get(name) or 0.0) for name in ("tokens_withheld", "tokens_caught_up"))
    due = f"{counted(round(withheld), 'token')} {'was' if round(withheld) == 1 else 'were'} due in the gap"
    if caught_up >= max(2.0, 0.5 * withheld):
        words = f"{due}, and {caught_up:.0f} came in a bunch at its end: made in time, handed on late."
        yield Argument(FRONTEND, "for", words)
    elif withheld >= 1:
        words = f"{due}, and no bunch of them came at its end: they had not been made either."
        yield Argument(FRONTEND, "against", words)
    blocked = float(evidence.get("client_blocked_seconds") or 0.0)
    if blocked:
        yield Argument(CLIENT, "for", f"the client took nothing from us for {duration(blocked)} of it.")
    else:
        yield Argument(CLIENT, "against", "the client took whatever there was.")
    yield from _gauges(evidence)
    if evidence.get("server_answered_meanwhile"):
        yield Argument(FRONTEND, "against", "the API server answered us while no stream moved.")
    if evidence.get("prompts_stood_still"):
        yield Argument(ENGINE_PAUSE, "for", "a short prompt waited through all of it without a first token.")
    if evidence.get("pause_reason"):
        yield Argument(ENGINE_PAUSE, "for", f"a reason is known: {evidence['pause_reason']}.")
    yield from (argument for name, argument in _PLAIN.items() if evidence.get(name))
    yield from _ourselves(evidence, gap)


def _prompts(evidence: Evidence, gap: float, excess: float) -> Iterator[Argument]:
    tokens = int(evidence.get("prefill_tokens_in_service") or 0)
    if not tokens:
        yield Argument(PREFILL, "against", "no prompt was being read.")
        return
    possible = evidence.get("prefill_possible_seconds")
    said = f"{counted(tokens, 'token')} of prompts {'was' if tokens == 1 else 'were'} being read in the worst gap"
    if possible is None:
        yield Argument(PREFILL, "for", f"{said} of {duration(gap)}; what a token costs here was not learned by then.")
    elif possible >= excess:
        yield Argument(PREFILL, "for", f"{said}: they can fill {duration(possible)} here, and it took {duration(gap)}.")
    else:
        yield Argument(
            PREFILL, "against", f"{said}, but they can fill no more than {duration(possible)} of {duration(gap)}."
        )
    if evidence.get("prefill_guessed"):
        words = "In which steps the engine read which prompt did not show: all that waited were taken to be read."
        yield Argument(PREFILL, "open", words)


def _others_went_on(evidence: Evidence, gap: float) -> Iterator[Argument]:
    common, inside = float(evidence.get("common_silence_seconds") or 0.0), int(evidence.get("engine_steps_inside") or 0)
    if common >= 0.5 * gap:
        words = (
            f"no stream at all got a token for {duration(common)} of {duration(gap)}: the whole engine was in one step."
        )
        yield Argument(PREEMPTION, "against", words)
    else:
        words = f"{counted(inside, 'step')} of the engine went by inside the gap: others got tokens meanwhile."
        yield Argument(PREEMPTION, "for", words)
    recomputed = int(evidence.get("recomputed_tokens") or 0)
    if recomputed:
        yield Argument(
            PREEMPTION, "for", f"{counted(recomputed, 'token')} of streams that came back had to be read anew."
        )


def _gauges(evidence: Evidence) -> Iterator[Argument]:
    if not evidence.get("engine_gauges_known"):
        yield Argument(PREEMPTION, "open", "The server's own metrics from around then are not there.")
        return
    usage, count = evidence.get("kv_cache_usage_ratio"), evidence.get("preemptions")
    cache = f", and its cache was {share(usage)} full" if usage is not None else ""
    if count:
        yield Argument(PREEMPTION, "for", f"the server counted {counted(count, 'preemption')} meanwhile{cache}.")
    elif count is not None:
        yield Argument(PREEMPTION, "against", f"the server counted no preemption meanwhile{cache}.")
    elif usage is not None:
        words = f"The server does not count preemptions; its cache was {share(usage)} full."
        yield Argument(PREEMPTION, "open", words)


def _ourselves(evidence: Evidence, gap: float) -> Iterator[Argument]:
    lag = float(evidence.get("own_lag_seconds") or 0.0)
    if evidence.get("tap_records_lost"):
        yield Argument(
            UNATTRIBUTED, "for", "Records between relay and observer were lost meanwhile, so reads may be missing."
        )
    if lag:
        words = f"prefillwatch itself did not run for {duration(lag)} of {duration(gap)}."
        yield Argument(UNATTRIBUTED, "for", words)


def _wait(evidence: Evidence) -> Iterator[Argument]:
    waited, expected = (float(evidence.get(name) or 0.0) for name in ("waited_seconds", "expected_seconds"))
    ahead, long = (int(evidence.get(name) or 0) for name in ("prompt_tokens_ahead", "long_prompt_tokens_ahead"))
    late = f"{duration(waited)} where its own prompt takes {duration(expected)}"
    if ahead:
        words = f"{late}, and {counted(ahead, 'prompt token')} of others were read or in line before it."
        yield Argument(PREFILL if long * 2 >= ahead else QUEUEING, "for", words)
        if long:
            yield Argument(PREFILL, "for", f"{counted(long, 'token')} of these are of prompts far longer than its own.")
    else:
        yield Argument(QUEUEING, "against", f"{late}, and no other prompt was in line before it.")
    overtaken = int(evidence.get("overtaken_by") or 0)
    if overtaken:
        words = (
            f"{counted(overtaken, 'request')} sent later had {'its' if overtaken == 1 else 'their'} first token before."
        )
        yield Argument(STUCK, "for", words)
    else:
        yield Argument(STUCK, "against", "nobody who came later was served before.")
    silent = float(evidence.get("engine_silent_seconds") or 0.0)
    if silent >= 0.5 * waited:
        yield Argument(STUCK, "for", f"nothing came from the engine for {duration(silent)}.")
    if evidence.get("server_just_started"):
        yield Argument(WARMUP, "for", "it was among the first requests of a server that had just started.")
    else:
        yield Argument(WARMUP, "against", "the server had been running for a while.")
    unknown, waiting = (
        int(evidence.get(name) or 0) for name in ("requests_unknown_to_engine", "pages_with_waiting_requests")
    )
    if not evidence.get("engine_gauges_known"):
        yield Argument(BEFORE_ENGINE, "open", "The server's own metrics from around then are not there.")
        return
    if unknown:
        words = f"the engine did not know of {counted(unknown, 'request')} that had been sent to the server."
        yield Argument(BEFORE_ENGINE, "for", words)
    if waiting:
        yield Argument(QUEUEING, "for", "the server's own metrics had requests waiting.")
