"""The picture of an account: who stood still, in which steps, and whose prompts were in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from prefillwatch.report import counted, duration, listed
from prefillwatch.story.account import Account, Prompt, Step, Stream
from prefillwatch.story.drawing import Bar, Lane, Lanes, Span, draw

_MOST_LANES: Final = 16
_MOST_BARS: Final = 6
#: Of what is long only the beginning is shown.
_LONGEST_S: Final = 20.0
#: Shown before and after, as a part of it.
_AROUND: Final = 0.12
NAMELESS: Final = "(no id)"


def picture(account: Account) -> str:
    """SVG."""
    incident = account.incident
    lasted = min(float(incident["duration_seconds"]), _LONGEST_S)
    around = max(_AROUND * lasted, 0.05)
    begin, end = -around, lasted + around
    subjects = [each for each in account.prompts if each.share] or list(account.prompts)
    bars = subjects[:_MOST_BARS]
    begin = min([begin, *(each.sent - around / 2 for each in bars if each.sent > -lasted)])
    shown = account.streams[:_MOST_LANES]
    rest = [
        counted(account.stream_count - len(shown), "more stream") if account.stream_count > len(shown) else "",
        counted(len(subjects) - len(bars), "more prompt") if len(subjects) > len(bars) else "",
    ]
    part = f"shown: the first {duration(_LONGEST_S)} of {duration(incident['duration_seconds'])}"
    notes = [part if incident["duration_seconds"] > _LONGEST_S else ""]
    notes.append(f"not shown: {listed(filter(None, rest))}" if any(rest) else "")
    return draw(
        Lanes(
            title=title(account),
            begin=begin,
            end=end,
            lanes=[_lane(each, shown, end) for each in shown],
            steps=[_span(each) for each in account.steps if each.tokens and each.end > begin and each.start < end],
            prompts=[Bar(name_of(each), each.sent, each.first) for each in bars],
            more="; ".join(filter(None, notes)),
        )
    )


def title(account: Account) -> str:
    incident = account.incident
    what = "Freeze" if incident["kind"] == "freeze" else "Wait"
    return f"{what} by {str(incident['cause']).replace('_', ' ')}, {duration(incident['duration_seconds'])}"


def name_of(each: Stream | Prompt) -> str:
    return each.request_id or NAMELESS


def _lane(stream: Stream, shown: Sequence[Stream], end: float) -> Lane:
    several = sum(each.request_id == stream.request_id for each in shown) > 1
    name = f"{name_of(stream)} #{stream.choice}" if several and stream.request_id else name_of(stream)
    gaps = [(stop.start, end if stop.end is None else stop.end) for stop in stream.stops]
    return Lane(name, stream.reads, gaps)


def _span(step: Step) -> Span:
    return Span(step.start, step.end, (duration(step.end - step.start), counted(step.tokens, "token")))
