"""A schedule that would fire thousands of requests a second is questioned before it is fired."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prefillwatch.errors import ConfigError

if TYPE_CHECKING:
    from prefillwatch.lab.arrivals.schedule import Schedule

#: Fewer at once are a burst such as traces have.
_IN_A_ROW: Final = 100
#: The busiest public traces of whole fleets stay below; one replica answers far fewer.
MOST_PER_SECOND: Final = 1000.0


def check_rate(schedule: Schedule, option: str) -> None:
    """Raises ConfigError where the busiest hundred arrivals come faster than any server answers, which more likely is a
    wrong unit; `option` is what the user sets to play it nevertheless."""
    times = [each.at_seconds for each in schedule.arrivals]
    pairs = zip(times, times[_IN_A_ROW - 1 :], strict=False)
    shortest = min((last - first for first, last in pairs), default=None)
    if shortest is None or shortest * MOST_PER_SECOND >= _IN_A_ROW:
        return
    busiest = f"{_IN_A_ROW / shortest:,.0f} a second" if shortest > 0 else f"{_IN_A_ROW} at the same moment"
    taken = "; ".join(schedule.said)
    raise ConfigError(
        f"{len(times):,} arrivals in {schedule.seconds:.3g} s, at their busiest {busiest}: is the unit of their times "
        f"right?{f' Taken: {taken}.' if taken else ''} Say it with --arrivals-unit, or give {option} to send them so"
    )
