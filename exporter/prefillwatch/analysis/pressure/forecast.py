"""What a prompt that comes now would do: when its first token comes, the longest step that it makes for others.

A forecast costs a few microseconds, since every prompt is forecast when it arrives, and held against what then happened
(`Forecaster.sent`, `Forecaster.first_token`): that is how far a forecast is to be trusted, and what of a first token is
on its way besides the engine's steps.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple

from prefillwatch.analysis.cost import Costs, StepLaw
from prefillwatch.analysis.engines import Engines
from prefillwatch.analysis.tuning import DEFAULT, PressureRules
from prefillwatch.units import NS

#: Prompts that wait, of which the largest is looked for: a bound on work.
_MOST_LOOKED_AT: Final = 1024
#: The line through steps is drawn anew so often at most: it costs as much as some hundred forecasts.
_LAW_HOLDS_NS: Final = NS
#: Clear steps after which a prompt that has to wait for nobody is in a step: the one that runs, and one that is made up
#: while it runs.
_JOINS_AFTER: Final = 2.0
#: Forecasts kept with what came of them; a tenth of them lies beyond either end of the range.
_CHECKED: Final = 64
_BEYOND: Final = 0.1


class Forecast(NamedTuple):
    """Of one prompt."""

    #: Until its first token. The range is that of eight in ten forecasts of late, None while too few were checked.
    first_token_s: float
    range_s: tuple[float, float] | None
    #: The fullest step that it rides in, with what waited before it: the gap that the others see.
    gap_s: float
    #: Streams that would see it.
    streams: int
    #: Steps from now until its first token.
    steps: int
    #: Uncached prompt tokens that are read before it.
    ahead: int


@dataclass(slots=True)
class _Pending:
    """A prompt that waits."""

    #: Uncached tokens of it that are not read yet.
    left: int
    sent_ns: int
    forecast_ns: float
    #: Nothing was ahead of it.
    first: bool
    #: The part of its wait that one longer prompt makes.
    held_up: float


class Check(NamedTuple):
    """What came of a prompt that waited."""

    #: Its time to first token over what was forecast; None: nothing was.
    ratio: float | None
    held_up: float


class Forecaster:
    """Of one server. ``model`` of a call is the one whose steps the law is drawn from."""

    def __init__(self, costs: Costs, engines: Engines, rules: PressureRules = DEFAULT.pressure) -> None:
        self._costs = costs
        self._engines = engines
        self._timeline = engines.timeline
        self._fewest = rules.fewest_requests
        self._pending: dict[Hashable, _Pending] = {}
        self._ahead = 0
        self._largest = 0
        self._law: StepLaw | None = None
        self._law_until_ns = 0
        self._overhead_ns = 0.0
        self._beside: deque[float] = deque(maxlen=_CHECKED)
        """Of prompts that had nothing ahead: time to first token beyond the engine's steps."""
        self._logs: deque[float] = deque(maxlen=_CHECKED)
        """Logarithms of what happened over what was forecast."""
        self._range: tuple[float, float] | None = None

    # --- Each prompt ---

    def sent(self, rid: Hashable, model: int, tokens: int, uncached: int, now_ns: int) -> float:
        """A prompt goes upstream. Returns the part of its wait that one longer prompt makes: that by which the longest
        of those ahead exceeds it, of all that is ahead."""
        ahead = self._ahead
        held_up = min(1.0, max(0, self._largest - uncached) / ahead) if ahead > 0 else 0.0
        law = self._law_now(model, now_ns)
        forecast_ns = self._first_token_ns(law, uncached, tokens - uncached, now_ns)[0] if law is not None else 0.0
        self._pending[rid] = _Pending(uncached, now_ns, forecast_ns, ahead <= 0, held_up)
        self._ahead = ahead + uncached
        self._largest = max(self._largest, uncached)
        return held_up

    def first_token(self, rid: Hashable, time_ns: int) -> Check | None:
        """Its first token came. None: it did not wait."""
        pending = self._forget(rid)
        if pending is None:
            return None
        took_ns, forecast_ns = time_ns - pending.sent_ns, pending.forecast_ns
        if forecast_ns <= 0 or took_ns <= 0:
            return Check(None, pending.held_up)
        ratio = took_ns / forecast_ns
        self._logs.append(math.log(ratio))
        if pending.first:
            self._beside.append(took_ns - forecast_ns + self._overhead_ns)
        return Check(ratio, pending.held_up)

    def gone(self, rid: Hashable) -> Check | None:
        """It ended without one. None: it did not wait."""
        pending = self._forget(rid)
        return Check(None, pending.held_up) if pending is not None else None

    def _forget(self, rid: Hashable) -> _Pending | None:
        pending = self._pending.pop(rid, None)
        if pending is not None:
            self._ahead -= pending.left
            if not self._pending:
                self._ahead = self._largest = 0
        return pending

    def advance(self) -> None:
        """Steps have been worked through: what they read of those that wait longest is not ahead any more."""
        if not self._pending:
            return
        for rid, left in self._timeline.unread_prompts():
            pending = self._pending.get(rid)
            if pending is not None:
                self._ahead += left - pending.left
                pending.left = left
        self._largest = max(each.left for each in islice(self._pending.values(), _MOST_LOOKED_AT))

    # --- A prompt that might come ---

    def forecast(self, model: int, tokens: int, cached: int, now_ns: int) -> Forecast | None:
        """None: what a prompt costs on this server is not known yet."""
        law = self._law_now(model, now_ns)
        if law is None:
            return None
        uncached = max(1, tokens - cached)
        first_token_ns, steps, chunk, step_tokens = self._first_token_ns(law, uncached, tokens - uncached, now_ns)
        engine_ns = self._timeline.engine.cost.expect_ns(chunk, tokens - chunk) + law.token_ns * (step_tokens - chunk)
        gap_ns = self._clear_ns(law) + max(law.token_ns * step_tokens, engine_ns)
        first_token_s = first_token_ns / NS
        known = self._range
        around = (first_token_s * known[0], first_token_s * known[1]) if known is not None else None
        return Forecast(first_token_s, around, gap_ns / NS, self._engines.decoding, steps, max(0, self._ahead))

    def _first_token_ns(self, law: StepLaw, uncached: int, cached: int, now_ns: int) -> tuple[float, int, int, int]:
        """Time to the first token, the steps until then, and of the fullest step that it is in: tokens of it, and of
        all prompts."""
        engine, decoding, ahead = self._timeline.engine, self._engines.decoding, max(0, self._ahead)
        clear_ns = self._clear_ns(law)
        whole = ahead + uncached
        per_step = max(1, engine.budget - decoding) if engine.budget and engine.proven else whole
        chunk = min(uncached, engine.cap, per_step if engine.chunked else uncached)
        steps = max(-(-whole // per_step), -(-uncached // chunk)) if engine.chunked else 1 + ahead // per_step
        # Attention makes the tokens of a long prompt dearer than the mean that the line knows.
        own_ns = max(law.token_ns * uncached, engine.cost.expect_ns(uncached, cached))
        time_ns = steps * clear_ns + law.token_ns * ahead + own_ns
        # What has waited for longer than steps without a prompt take is in the step that runs, which is half over in
        # the mean; and this prompt is not in it.
        runs = 0
        oldest = next(iter(self._pending.values()), None)
        if oldest is not None and now_ns - oldest.sent_ns > _JOINS_AFTER * clear_ns:
            runs = min(ahead, per_step)
            time_ns -= law.token_ns * runs / 2
        elif decoding:
            time_ns += clear_ns / 2
        step_tokens = max(chunk, min(per_step, ahead - runs + chunk))
        return max(time_ns + self._overhead_ns, clear_ns), steps, chunk, step_tokens

    def _clear_ns(self, law: StepLaw) -> float:
        return self._engines.clear_step_ns or law.base_ns

    def _law_now(self, model: int, now_ns: int) -> StepLaw | None:
        if now_ns >= self._law_until_ns:
            self._law_until_ns = now_ns + _LAW_HOLDS_NS
            self._law = self._costs.line(model)
            if len(self._beside) >= self._fewest:
                self._overhead_ns = sorted(self._beside)[len(self._beside) // 2]
            if len(self._logs) >= self._fewest:
                logs = sorted(self._logs)
                beyond = int(_BEYOND * len(logs))
                self._range = math.exp(logs[beyond]), math.exp(logs[-1 - beyond])
        return self._law
