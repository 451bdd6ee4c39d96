"""How long upstream keeps idle connections, learned from those that it closed.

A request that is sent on a connection just as upstream closes it is lost or has to be sent again. Few servers announce
their limit, but one that is kept to shows: connections are closed at the same age again and again. Some keep none after
an answer, and do not say so (llama.cpp after a stream): that shows too. Pure: times are handed in.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from prefillwatch.units import NS

#: So many in a row have to be of one age. A server that is restarted closes connections too, of whatever age they are.
_AGREEING: Final = 3
#: Ages that differ by less are the same: timers of a busy server run late.
_TOLERANCE: Final = 0.1
_TOLERANCE_S: Final = 0.05
#: Closed within this time of each other, connections point to one event and not of a limit.
_ONE_EVENT_NS: Final = NS // 2
#: No server is set to less: what is closed younger than this was not going to be kept at all.
_LEAST_S: Final = 0.5
#: So many closings of that kind count only within this time of each other: restarts are rarer.
_AT_ONCE_WITHIN_NS: Final = 60 * NS
#: A limit is believed for as long, since the server may be another one by then.
_BELIEVED_NS: Final = 600 * NS
#: Stay below it by a fifth: upstream counts from when it had sent the answer, and a busy one acts late.
_SAFE: Final = 0.8


class IdleLimit:
    """``safe_s`` says for how long a connection can be kept."""

    def __init__(self) -> None:
        self._ages: deque[float] = deque(maxlen=_AGREEING)
        self._at_once_ns: deque[int] = deque(maxlen=_AGREEING)
        self._last_ns = -NS
        self._limit_s = float("inf")
        self._learned_ns = 0

    def closed(self, age_ns: int, now_ns: int) -> None:
        """Upstream has closed a connection that had been idle for so long."""
        age = age_ns / NS
        if now_ns - self._last_ns < _ONE_EVENT_NS:
            return
        self._last_ns = now_ns
        if age < _LEAST_S:
            self._at_once_ns.append(now_ns)
            if len(self._at_once_ns) == _AGREEING and now_ns - self._at_once_ns[0] <= _AT_ONCE_WITHIN_NS:
                self._limit_s = 0.0
                self._learned_ns = now_ns
            return
        self._ages.append(age)
        least, most = min(self._ages), max(self._ages)
        if len(self._ages) == _AGREEING and most - least <= _TOLERANCE * most + _TOLERANCE_S:
            self._limit_s = least
            self._learned_ns = now_ns

    def safe_s(self, now_ns: int) -> float:
        """Seconds; infinite where nothing is known, 0 where upstream keeps none."""
        if now_ns - self._learned_ns > _BELIEVED_NS:
            return float("inf")
        return self._limit_s * _SAFE
