"""What surrounds the streams as of one moment: relays and their taps, and the links to plugins inside engines."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from prefillwatch.analysis.tokens import SlidingWindows
from prefillwatch.core.bodies import UNREAD_REASONS
from prefillwatch.core.engine_steps import EngineSteps
from prefillwatch.core.inputs import EngineLinks
from prefillwatch.core.relays import Relays, RelayTap
from prefillwatch.units import NS
from prefillwatch.wire.tap import RelayStats


class RelayNow(msgspec.Struct, frozen=True):
    """What a relay reported last, and how well it could be followed. Counts are of all its processes."""

    index: int
    stats: RelayStats | None
    #: How old what it sends now is; 0: it keeps up.
    behind_s: float
    #: Exchanges in flight that we know of.
    followed: int
    packets: int
    dropped: int
    lost_streams: int
    closed: int
    taken_in: int
    caught_up: int
    skipped_bytes: int
    retries: int
    connect_failures: int
    turned_away: int
    displaced: int
    usage_refused: int
    lag_counts: tuple[int, ...]
    lag_sum: float


class TapNow(msgspec.Struct, frozen=True):
    """Of all taps together."""

    unreadable: int
    out_of_order: int
    #: By reason.
    bodies_unread: dict[str, int]


class EngineLinkNow(msgspec.Struct, frozen=True):
    """How the links to plugins go, and in seconds what each part of the way adds to the 99th percentile of the gaps, by
    window and part."""

    connected: int
    steps: int
    dropped: int
    unused: int  # left out of the timeline: too late, or by another clock
    unreadable: int
    #: Tokens that the engine computed, by `PHASES`.
    tokens: dict[str, int]
    #: Requests whose answers ended, and seconds that these spent in the scheduler's queue together.
    finished: int
    queued_s: float
    parts: dict[tuple[int, str], float]


def relay_now(index: int, relay: RelayTap, now_ns: int) -> RelayNow:
    return RelayNow(
        index,
        relay.stats,
        (now_ns - relay.last_ns) / NS if relay.is_behind(now_ns) else 0.0,
        len(relay.streams),
        relay.packets,
        relay.dropped,
        relay.lost_streams,
        relay.closed,
        relay.taken_in,
        relay.caught_up,
        relay.skipped_bytes,
        relay.retries,
        relay.connect_failures,
        relay.turned_away,
        relay.displaced,
        relay.usage_refused,
        tuple(relay.lag_counts),
        relay.lag_sum,
    )


def tap_now(relays: Relays) -> TapNow:
    unread = {reason: relays.bodies.unread[reason] for reason in UNREAD_REASONS}
    return TapNow(relays.unreadable, relays.out_of_order, unread)


def engine_link_now(
    links: EngineLinks,
    steps: EngineSteps,
    unused: int,
    wire: Iterable[SlidingWindows],
    windows_s: Iterable[int],
    now_ns: int,
) -> EngineLinkNow:
    """``wire`` are the windows of the gaps that the taps showed."""
    steps.advance(now_ns)
    wire = list(wire)
    parts = {(seconds, part): value for seconds in windows_s for part, value in steps.parts(wire, seconds).items()}
    return EngineLinkNow(
        connected=links.connected,
        steps=steps.steps,
        dropped=links.dropped,
        unused=unused,
        unreadable=links.unreadable,
        tokens=dict(steps.tokens),
        finished=steps.finished,
        queued_s=steps.queued_s,
        parts=parts,
    )
