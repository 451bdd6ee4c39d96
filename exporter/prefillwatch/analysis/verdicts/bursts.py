"""Whether tokens come in bursts: from a hop that collects them, by size or by time, and lets them go at once or one
quickly after another.

A burst is what a stream reads between two long gaps. An engine makes tokens in steps, and a stream that flowed for a
while has shown how long these take. A hop shows another picture: all that a stream reads comes in bursts, each of them
short beside the silence before it, and quicker than any step.

Example, in milliseconds: a gap of 2,000, then 100 tokens within 60, then 2,050, then 103 tokens within 62, and so on.
Nobody ever saw this server make a token every 0.6 for longer than that, so nothing speaks for its steps being so short.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from prefillwatch.analysis.tuning import VerdictRules

_MOST: Final = 512


@dataclass(frozen=True, slots=True)
class Burst:
    """Reads of a stream between two long gaps."""

    begun_ns: int
    ended_ns: int
    #: Of the two gaps the shorter one.
    silence_ns: int
    events: int

    @property
    def pace_ns(self) -> float:
        return (self.ended_ns - self.begun_ns) / max(1, self.events - 1)


class Bursts:
    """Those of all streams of late."""

    def __init__(self, rules: VerdictRules) -> None:
        self._rules = rules
        self._bursts: deque[Burst] = deque(maxlen=_MOST)
        self._since: dict[int, tuple[int, int, int]] = {}  # slot: end of its last long gap, its length, events before

    def begin(self, slot: int, waited_ns: int, first_ns: int) -> None:
        """The first token is the beginning of a burst, if it had been waited for."""
        self._since[slot] = (first_ns, waited_ns, 0)

    def leave(self, slot: int) -> None:
        self._since.pop(slot, None)

    def gap(self, slot: int, start_ns: int, end_ns: int, events_before: int) -> None:
        """A long gap, while it lasts or when it is over; the stream had read so many token events before it."""
        begun_ns, silence_ns, had = self._since.get(slot, (0, 0, 0))
        if begun_ns and begun_ns <= start_ns and events_before > had:
            shorter_ns = min(silence_ns, end_ns - start_ns)
            self._bursts.append(Burst(begun_ns, start_ns, shorter_ns, events_before - had))
        self._since[slot] = (end_ns, end_ns - start_ns, events_before)

    def around(self, start_ns: int, end_ns: int, usual_ns: float) -> int:
        """How many different bursts of late look like those of a hop, with ``usual_ns`` what a stream that flows takes
        per token (0: none ever did); 0 where others do not."""
        near = self._rules.bursts_within_ns
        late = [each for each in self._bursts if start_ns - near <= each.ended_ns and each.begun_ns <= end_ns + near]
        held = [each for each in late if self._is_held(each, usual_ns)]
        # Two or three tokens at once may be anything.
        counted = [each for each in late if each.events == 1 or each.events >= self._rules.burst]
        if len(held) < self._rules.bursts_part * len(counted):
            return 0
        # Streams whose bursts come together prove it once.
        count, last_ns = 0, 0
        for each in sorted(held, key=lambda burst: burst.begun_ns):
            if not count or each.begun_ns > last_ns + each.silence_ns // 2:
                count, last_ns = count + 1, each.begun_ns
        return count

    def _is_held(self, burst: Burst, usual_ns: float) -> bool:
        quickest_ns = self._rules.quickest_token_ns if not usual_ns else self._rules.most * usual_ns
        short = burst.ended_ns - burst.begun_ns <= self._rules.burst_part * burst.silence_ns
        return burst.events >= self._rules.burst and short and burst.pace_ns <= quickest_ns
