"""Critical alerts: which of them would have paged somebody in a run, and whether there was a reason to.

Covered are those whose expression looks at nothing but the observer's own gauges of streams and waits. Not covered:
those on processes, certificates and health checks (`ExporterDown`, `RelayUnstable`, `CertificateExpires`,
`UpstreamDown`), which this simulation has none of, and those that look back for hours (`ITLBudgetBurn`). The
expressions are written again here, and `test_paging` holds the shipped ones against what they were when that was done.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from tests.core.script import Observed
from tests.simulation.engine import Span

from prefillwatch.export import table
from prefillwatch.export.spec import Spec

EVERY: Final = 5000.0  # a scrape, and a look at the rules

STREAM_FREEZE: Final = "StreamFreeze"
FIRST_TOKEN_STUCK: Final = "FirstTokenStuck"
#: For how long each has to hold, in milliseconds.
HOLDS: Final = {STREAM_FREEZE: 15_000.0, FIRST_TOKEN_STUCK: 30_000.0}
#: How long something has to last before it is one of the states that these are about.
LASTS: Final = {STREAM_FREEZE: 5_000.0, FIRST_TOKEN_STUCK: 120_000.0}
_LOOKS_BACK: Final = 60_000.0
_TOO_MANY: Final = 0.5


Values: TypeAlias = Mapping[Spec, Mapping[tuple[str, ...], float]]


@dataclass
class Pager:
    """Looks at the gauges as Prometheus would."""

    paged: dict[str, list[float]] = field(default_factory=lambda: {alert: [] for alert in HOLDS})
    _since: dict[str, float] = field(default_factory=dict)
    _frozen: list[tuple[float, float]] = field(default_factory=list)

    def look(self, observed: Observed, at: float) -> None:
        values = {family.spec: family.values for family in observed.snapshot()}
        for alert, holds in (
            (STREAM_FREEZE, self._stream_freeze(values, at)),
            (FIRST_TOKEN_STUCK, self._first_token_stuck(values)),
        ):
            if not holds:
                self._since.pop(alert, None)
            elif at - self._since.setdefault(alert, at) >= HOLDS[alert]:
                self.paged[alert].append(at)

    def _stream_freeze(self, values: Values, at: float) -> bool:
        gaps = values.get(table.OPEN_GAP, {})
        decoding = sum(values.get(table.DECODING_STREAMS, {}).values())
        if decoding:
            self._frozen.append((at, sum(values.get(table.FROZEN_STREAMS, {}).values()) / decoding))
        self._frozen = [(then, each) for then, each in self._frozen if then > at - _LOOKS_BACK]
        shares = [each for _, each in self._frozen]
        often = bool(shares) and sum(shares) / len(shares) > _TOO_MANY
        return any(gap > LASTS[STREAM_FREEZE] / 1000 or often for gap in gaps.values())

    def _first_token_stuck(self, values: Values) -> bool:
        costs = values.get(table.PREFILL_COST, {}).values()
        tokens = sum(values.get(table.PREFILLING_TOKENS, {}).values())
        excused = 4 * max(costs) * tokens if costs else -1.0
        waits = values.get(table.OLDEST_FIRST_TOKEN_WAIT, {}).values()
        return any(wait > LASTS[FIRST_TOKEN_STUCK] / 1000 and wait > excused for wait in waits)


def held_against(paged: Mapping[str, list[float]], reasons: Mapping[str, list[Span]]) -> Iterator[tuple[str, str]]:
    """Each alert that fired, with whether it was ``right`` or ``false``; and each state that nobody was paged for."""
    for alert, moments in paged.items():
        spans = [span for span in reasons.get(alert, []) if span[1] - span[0] >= LASTS[alert]]
        for number, at in enumerate(moments):
            if number and at - moments[number - 1] <= EVERY:
                continue  # still the same page
            right = any(since <= at and until > at - HOLDS[alert] - EVERY for since, until in spans)
            yield alert, "right" if right else "false"
        for since, until in spans:
            due = since + LASTS[alert] + HOLDS[alert] + 2 * EVERY
            if until > due and not any(since <= at <= until + EVERY for at in moments):
                yield alert, "missed"
