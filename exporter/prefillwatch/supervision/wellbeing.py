"""What ``/readyz`` and ``/healthz`` say. Pure: from what is known of relays, upstream and the supervisor itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from prefillwatch.supervision.relay_watch import RelayWatch

#: A relay without which we have been for so many seconds does not come back by itself. Above the time after which a
#: mute one is killed and a new one has started.
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
    """Why only another start of everything would help; empty: it is not so."""
    long = [f"{relay.name} has not served for {relay.trouble} s" for relay in relays if relay.trouble >= LONG]
    return "; ".join(long)
