"""Whether a relay serves, from its signs of life. Pure: it is fed starts, ends, pulses and the passing of seconds.

Time is counted in ticks of the supervisor, one a second, not read from a clock: after a machine has slept or stood
still, no relay is taken for mute that had no chance to speak.
"""

from __future__ import annotations

import enum
from typing import Final

from prefillwatch.relay.supervisor_line import Pulse
from prefillwatch.settings.control import SERVING

#: Pulses come every second; a relay that sent none for so many is not serving its clients.
MUTE_AFTER: Final = 3
#: A process that starts gets longer: a slow disk, a throttled container.
START_LIMIT: Final = 60
#: A relay that has served for this long is over its trouble.
SETTLED_AFTER: Final = 10


class RelayState(enum.Enum):
    """The value is the word in ``/api/state`` and in the log."""

    STARTING = "starting"
    SERVING = SERVING
    REFUSING = "not accepting"  # it lives, and cannot take new connections
    MUTE = "mute"
    AWAY = "away"  # it ended, and is started again


class RelayWatch:
    """One relay, over all its processes. After ``limit`` ticks of silence it is killed; 0: never."""

    def __init__(self, name: str, limit: int) -> None:
        self.name = name
        self.state = RelayState.AWAY
        self._limit = limit
        self._silent = 0
        self._trouble = 0
        self._served = 0

    @property
    def trouble(self) -> int:
        """For how many ticks it has not served, or has served too briefly to be settled."""
        return self._trouble

    def started(self) -> None:
        self.state, self._silent = RelayState.STARTING, 0

    def ended(self) -> None:
        self.state, self._silent = RelayState.AWAY, 0

    def pulsed(self, pulse: Pulse) -> None:
        if self.state is not RelayState.AWAY:
            self.state, self._silent = RelayState.SERVING if pulse.accepting else RelayState.REFUSING, 0

    def tick(self) -> bool:
        """A second has passed. True: it is to be killed."""
        self._silent += 1
        if self._silent >= MUTE_AFTER and self.state in (RelayState.SERVING, RelayState.REFUSING):
            self.state = RelayState.MUTE
        lives = self.state in (RelayState.SERVING, RelayState.REFUSING)
        self._served = self._served + 1 if lives else 0
        self._trouble = 0 if self._served >= SETTLED_AFTER or (lives and not self._trouble) else self._trouble + 1
        if self.state is RelayState.STARTING:
            return bool(self._limit) and self._silent >= max(START_LIMIT, self._limit)
        return self.state is RelayState.MUTE and 0 < self._limit <= self._silent

    def words(self) -> str:
        """What is wrong with it; empty when nothing is."""
        return {
            RelayState.STARTING: f"{self.name} is starting",
            RelayState.SERVING: "",
            RelayState.REFUSING: f"{self.name} cannot accept connections: it has no free descriptor, memory or place",
            RelayState.MUTE: f"{self.name} is mute: no sign of life for {self._silent} s",
            RelayState.AWAY: f"{self.name} ended and is started again",
        }[self.state]
