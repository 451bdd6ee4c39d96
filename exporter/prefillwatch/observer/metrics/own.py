"""Figures about ourselves: relays, the tap, our processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prefillwatch.core.view import RelayNow, TapNow
from prefillwatch.export import table
from prefillwatch.export.registry import Labels, Registry
from prefillwatch.observer.intake import ProcessFigures
from prefillwatch.settings.control import SERVING, Control, ProcessNow


def publish_relays(registry: Registry, relays: Iterable[RelayNow], tap: TapNow) -> None:
    for relay in relays:
        _publish_relay(registry, str(relay.index), relay)
    unparsed = registry.counter(table.UNPARSED_EVENTS)
    unparsed.set_total(("tap_record",), tap.unreadable)
    unparsed.set_total(("tap_order",), tap.out_of_order)
    for reason, bodies in tap.bodies_unread.items():
        registry.counter(table.REQUEST_BODIES_UNREAD).set_total((reason,), bodies)


def _publish_relay(registry: Registry, name: str, relay: RelayNow) -> None:
    registry.counter(table.TAP_PACKETS).set_total((name,), relay.packets)
    registry.counter(table.TAP_DROPPED).set_total((name,), relay.dropped)
    registry.counter(table.RELAY_LOST_STREAMS).set_total((name,), relay.lost_streams)
    repaired = registry.counter(table.TAP_REPAIRED_STREAMS)
    repaired.set_total((name, "closed"), relay.closed)
    repaired.set_total((name, "taken_in"), relay.taken_in)
    repaired.set_total((name, "caught_up"), relay.caught_up)
    registry.counter(table.TAP_SKIPPED_BYTES).set_total((name,), relay.skipped_bytes)
    registry.counter(table.RELAY_RETRIES).set_total((name,), relay.retries)
    registry.counter(table.RELAY_CONNECT_FAILURES).set_total((name,), relay.connect_failures)
    registry.counter(table.RELAY_TURNED_AWAY).set_total((name,), relay.turned_away)
    registry.counter(table.RELAY_DISPLACED).set_total((name,), relay.displaced)
    registry.counter(table.RELAY_USAGE_REFUSED).set_total((name,), relay.usage_refused)
    stats = relay.stats
    if stats is None:
        return
    connections = registry.gauge(table.RELAY_CONNECTIONS)
    connections.set((name, "client"), stats.client_connections)
    connections.set((name, "upstream"), stats.upstream_connections)
    connections.set((name, "upstream_idle"), stats.idle_upstream_connections)
    registry.gauge(table.RELAY_CLIENT_LIMIT).set((name,), stats.most_clients)
    held = registry.gauge(table.RELAY_HELD_BYTES)
    held.set((name, "requests"), stats.request_bytes)
    held.set((name, "answers"), stats.unsent_bytes)
    registry.gauge(table.RELAY_USAGE_RESTS).set((name,), float(stats.usage_rests))
    registry.histogram(table.RELAY_LOOP_LAG).set_counts((name,), relay.lag_counts, relay.lag_sum)


def publish_processes(
    registry: Registry, processes: Iterable[ProcessNow], read: Callable[[int], ProcessFigures | None]
) -> None:
    """CPU time, time without a core, and memory of every process of ours; upstream's are not ours to report."""
    memory = registry.gauge(table.PROCESS_RESIDENT_MEMORY)
    memory.clear()
    for process in processes:
        figures = read(process.pid) if process.role != "upstream" else None
        if figures is None:
            continue
        name = (process.role if process.index < 0 else f"{process.role}-{process.index}",)
        registry.counter(table.PROCESS_CPU_SECONDS).set_total(name, figures.cpu_seconds)
        registry.counter(table.PROCESS_CORE_WAIT).set_total(name, figures.core_wait_seconds)
        memory.set(name, figures.resident_bytes)


def publish_control(registry: Registry, control: Control) -> None:
    registry.gauge(table.DRAINING).set((), float(control.draining))
    registry.counter(table.RELAY_RESTARTS).set_total((), control.restarts.relay)
    registry.counter(table.OBSERVER_RESTARTS).set_total((), control.restarts.observer)
    serving: dict[Labels, float | None] = {
        (str(relay.index),): float(relay.state == SERVING) for relay in control.relays
    }
    registry.gauge(table.RELAY_SERVING).replace(serving)
    if control.upstream is not None:
        registry.gauge(table.UPSTREAM_HEALTH_DURATION).set((), control.upstream.check_seconds)
        for reason, count in control.upstream.failures.items():
            registry.counter(table.UPSTREAM_HEALTH_FAILURES).set_total((reason,), count)
    for listener, expires_at in control.certificates.items():
        registry.gauge(table.CERTIFICATE_EXPIRY).set((listener,), expires_at)
