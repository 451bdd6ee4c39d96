"""Sums over the last hour, in slots of five minutes: what is older than that is let go of slot by slot."""

from __future__ import annotations

from typing import Final

from prefillwatch.units import NS

_SLOT_NS: Final = 300 * NS
#: With the running one: an hour, less what of the running one is still to come.
SLOTS: Final = 12


def slot_of(now_ns: int) -> int:
    return now_ns // _SLOT_NS


def first_slot(now_ns: int) -> int:
    """The oldest that counts."""
    return slot_of(now_ns) - SLOTS + 1
