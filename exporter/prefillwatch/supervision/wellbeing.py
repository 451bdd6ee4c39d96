"""What ``/readyz`` and ``/healthz`` say. Pure: from what is known of relays, upstream and the supervisor itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from prefillwatch.supervision.relay_watch import RelayWatch

#: A relay that has not served for this many seconds does not come back by itself. Longer than it takes to kill a mute
#: one and start a new one.
LONG: Final = 30


def readiness(draining: bool, relays: Iterable[RelayWatch], up: bool | None, upstream: str) -> tuple[bool, str]:
    """Whether a new request would be served now, and why, in words. The observer has no say in it."""
    if draining:
        return False, "draining: no new requests are accepted"
    wrong = [words for relay in relays if (words := relay.words())]
    if wrong:
        return False, "; ".join(wrong)
    return bool(up), upstream


def unwell(relays: Iterable[RelayWatch]) -> str:
    """Why only a restart of everything would help; empty when it would not."""
    long = [f"{relay.name} has not served for {relay.trouble} s" for relay in relays if relay.trouble >= LONG]
    return "; ".join(long)
