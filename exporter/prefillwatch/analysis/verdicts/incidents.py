"""Incidents: delays that belong together become one thing to look at.

Delays of one kind and cause that follow each other closely are one incident, however many streams and gaps it takes. A
delay is in it from the moment it is noticed, with a provisional cause; when the cause changes it moves on, and an
incident that lost all its delays was none. The figures of an incident are those of its final delays and, while it
lasts, of the provisional ones as well.
"""

from __future__ import annotations

from prefillwatch.analysis.delays import Delay, Incident
from prefillwatch.analysis.tuning import DEFAULT, IncidentRules


class IncidentBook:
    """The incidents that are not closed yet."""

    def __init__(self, rules: IncidentRules = DEFAULT.incidents) -> None:
        self._chain_ns = rules.chain_ns
        self.open: list[Incident] = []
        self._count = 0
        self._of: dict[Delay, Incident] = {}  # of each provisional delay

    def hold(self, delay: Delay, now_ns: int) -> None:
        """A provisional delay, seen for the first time or judged anew."""
        self._place(delay, now_ns)

    def settle(self, delay: Delay, now_ns: int) -> None:
        """The verdict is final."""
        incident = self._place(delay, now_ns)
        del self._of[delay]
        incident.settle(delay, now_ns)

    def drop(self, delay: Delay) -> None:
        """It was no delay after all."""
        incident = self._of.pop(delay, None)
        if incident is not None:
            incident.live.pop(delay, None)
            self._forget_if_empty(incident)

    def close(self, now_ns: int) -> list[Incident]:
        """Those that nothing can be added to any more, in the order in which they began."""
        over = [each for each in self.open if self._is_over(each, now_ns)]
        for incident in over:
            self.open.remove(incident)
        return sorted(over, key=lambda each: each.started_ns)

    def _is_over(self, incident: Incident, now_ns: int) -> bool:
        if incident.live or now_ns <= incident.ended_ns + self._chain_ns:
            return False
        # One that is provisional elsewhere may yet turn out to belong here.
        return not any(
            delay.kind == incident.kind
            and delay.started_ns <= incident.ended_ns + self._chain_ns
            and (not delay.ended_ns or delay.ended_ns >= incident.started_ns - self._chain_ns)
            for other in self.open
            for delay in other.live
        )

    def _place(self, delay: Delay, now_ns: int) -> Incident:
        old = self._of.get(delay)
        if old is not None and old.cause == delay.cause:
            old.stretch(delay)
            return old
        incident = next((each for each in reversed(self.open) if each.takes(delay, now_ns)), None)
        if incident is None:
            incident = self._begin(delay)
        if old is not None:
            old.live.pop(delay, None)
            if self._forget_if_empty(old):
                # The first verdict was wrong as a whole: the incident goes on under its number with another cause.
                incident.number = min(incident.number, old.number)
        incident.live[delay] = None
        incident.stretch(delay)
        self._of[delay] = incident
        return incident

    def _begin(self, delay: Delay) -> Incident:
        self._count += 1
        ended_ns = delay.ended_ns or delay.started_ns
        incident = Incident(self._count, delay.kind, delay.cause, delay.started_ns, ended_ns, chain_ns=self._chain_ns)
        self.open.append(incident)
        return incident

    def _forget_if_empty(self, incident: Incident) -> bool:
        empty = not incident.live and not incident.final.delays
        if empty and incident in self.open:
            self.open.remove(incident)
        return empty
