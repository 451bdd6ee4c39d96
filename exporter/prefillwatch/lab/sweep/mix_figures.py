"""From the answers of a mix to its figures. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from prefillwatch.analysis.requests import PromptBuckets
from prefillwatch.lab.arrivals import Arrival
from prefillwatch.lab.client import Answer
from prefillwatch.lab.sweep.figures import MixFigures, Spread, spread, stalls_of
from prefillwatch.lab.target import refusal
from prefillwatch.units import NS

FAILURES_KEPT: Final = 3
_BUCKETS: Final = PromptBuckets()


@dataclass(slots=True)
class Played:
    """What came back. Times are monotonic nanoseconds; answers may be in the middle when the mix ends."""

    start_ns: int = 0
    end_ns: int = 0
    arrivals: list[tuple[Arrival, Answer]] = field(default_factory=list)
    #: For each reader its answers, one after the other.
    readers: list[list[Answer]] = field(default_factory=list)
    turned_away: int = 0


def mix_figures(played: Played, seconds: float) -> MixFigures:
    """Rates are over the first ``seconds``, in which the arrivals came. What never got a first token counts with the
    time that it waited."""
    until_ns = played.start_ns + round(seconds * NS)
    answers = [answer for _, answer in played.arrivals]
    read = [answer for answers_of_one in played.readers for answer in answers_of_one]
    # Only gaps within answers: the pause between two of them is no gap.
    gaps = [[gap for answer in answers_of_one for gap in answer.gaps_seconds] for answers_of_one in played.readers]
    failed = [why for answer in answers if (why := _failure(answer))]
    ended = [answer for answer in [*answers, *read] if not _failure(answer) and 0 < answer.closed_ns <= until_ns]
    return MixFigures(
        seconds=seconds,
        requests=len(answers),
        answered=len(answers) - len(failed),
        failed=len(failed),
        turned_away=played.turned_away,
        gaps=spread((gap for each in gaps for gap in each), together=max(1, len(gaps))),
        first_token=spread(_first_token(answer, played.end_ns) for answer in answers if not refusal_of(answer)),
        first_token_by_size=_by_size(played),
        stalls=stalls_of(gaps),
        generated_tokens_per_second=sum(_tokens(answer, until_ns) for answer in [*answers, *read]) / seconds,
        prompt_tokens_per_second=_prompt_tokens(played.arrivals, until_ns) / seconds,
        requests_per_second=len(ended) / seconds,
        failures=tuple(f"{count} × {why}" for why, count in Counter(failed).most_common(FAILURES_KEPT)),
    )


def refusal_of(answer: Answer) -> str:
    """Why the server did not take the request; "" for one that waits or was cut, whose time counts."""
    return refusal(answer) if answer.status not in (0, 200) else ""


def _failure(answer: Answer) -> str:
    if answer.complete and answer.status == 200 and not answer.error:
        return ""
    if answer.error or answer.status not in (0, 200):
        return refusal(answer)
    return "no complete answer in time" if answer.reads_ns else "no first token in time"


def _first_token(answer: Answer, end_ns: int) -> float:
    waited_until_ns = answer.reads_ns[0] if answer.reads_ns else answer.closed_ns or end_ns
    return (waited_until_ns - answer.sent_ns) / NS


def _by_size(played: Played) -> dict[str, Spread]:
    sizes: dict[int, list[float]] = {}
    for arrival, answer in played.arrivals:
        if not refusal_of(answer):
            bucket = _BUCKETS.bucket(arrival.prompt_tokens)
            sizes.setdefault(bucket, []).append(_first_token(answer, played.end_ns))
    spreads = {_BUCKETS.labels[bucket]: spread(sizes[bucket]) for bucket in sorted(sizes)}
    return {label: found for label, found in spreads.items() if found is not None}


def _tokens(answer: Answer, until_ns: int) -> float:
    """Tokens that had come by then. Where usage shows that events brought several, each counts as that many."""
    events = sum(n for at, n in zip(answer.reads_ns, answer.read_events, strict=True) if at <= until_ns)
    per_event = answer.completion_tokens / answer.events if answer.completion_tokens and answer.events else 1.0
    return events * per_event


def _prompt_tokens(arrivals: Sequence[tuple[Arrival, Answer]], until_ns: int) -> int:
    done = [(arrival, answer) for arrival, answer in arrivals if answer.reads_ns and answer.reads_ns[0] <= until_ns]
    return sum(answer.prompt_tokens or arrival.prompt_tokens for arrival, answer in done)
