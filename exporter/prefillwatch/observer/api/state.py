"""`/api/state`: what is going on right now, in plain JSON. Times in Unix seconds, durations in seconds."""

from __future__ import annotations

from typing import Any, Final

from prefillwatch.analysis.ledger import Ledger
from prefillwatch.analysis.requests import ModelNames, Request
from prefillwatch.core.relays import RelayTap
from prefillwatch.units import NS

#: Streams and prefills listed; the counts beside the lists are always of all.
MOST_LISTED: Final = 500


def streams_now(ledger: Ledger, names: ModelNames, now_ns: int, wall_offset: float) -> dict[str, Any]:
    """Decoding streams, the longest silent first, and requests without a first token, the oldest first."""
    silent = {each.slot: each for each in ledger.silences(now_ns)}
    in_service = {rid for rid, _ in ledger.timeline.in_service_now()}
    streams: list[dict[str, Any]] = []
    prefills: list[dict[str, Any]] = []
    for request in ledger.requests.values():
        if not request.generating:
            continue
        common = _common(request, names, wall_offset)
        if request.in_prefill:
            waited = (now_ns - request.sent_ns) / NS
            prefills.append({**common, "waited_seconds": waited, "in_service": request.rid in in_service})
        for choice, slot in request.slots.items():
            if choice in request.over:
                continue
            silence = silent.get(slot)
            seconds, frozen = (silence.seconds, silence.frozen) if silence is not None else (0.0, False)
            streams.append({**common, "choice": choice, "silent_seconds": seconds, "frozen": frozen})
    streams.sort(key=lambda stream: -float(stream["silent_seconds"]))
    prefills.sort(key=lambda prefill: -float(prefill["waited_seconds"]))
    return {
        "decoding": len(streams),
        "prefilling": len(prefills),
        "streams": streams[:MOST_LISTED],
        "prefills": prefills[:MOST_LISTED],
        "clear_step_seconds": ledger.heartbeat.clear_step_ns / NS or None,
    }


def _common(request: Request, names: ModelNames, wall_offset: float) -> dict[str, Any]:
    ttft = (request.first_ns - request.received_ns) / NS if request.first_ns and request.received_ns else None
    return {
        "request_id": request.request_id,
        "model": names.labels[request.model],
        "endpoint": request.endpoint,
        "streaming": request.streaming,
        "received_at": request.received_ns / NS + wall_offset if request.received_ns else None,
        "ttft_seconds": ttft,
        "prompt_tokens": request.prompt_tokens,
        "prompt_tokens_source": "usage" if request.prompt_exact else "estimate",
        "token_events": request.events,
        "client_blocked": bool(request.blocked_since_ns),
    }


def relay_now(relay: RelayTap, now_ns: int) -> dict[str, Any]:
    """What a relay said last, and how well it could be followed."""
    stats = relay.stats
    if stats is None:
        return {}
    return {
        "client_connections": stats.client_connections,
        "upstream_connections": stats.upstream_connections,
        "idle_upstream_connections": stats.idle_upstream_connections,
        "exchanges": stats.exchanges,
        "client_limit": stats.most_clients,
        "request_bytes_held": stats.request_bytes,
        "answer_bytes_held": stats.unsent_bytes,
        "followed": len(relay.streams),
        "behind_seconds": (now_ns - relay.last_ns) / NS if relay.is_behind(now_ns) else 0.0,
        "dropped_packets": relay.dropped,
        "repaired_streams": relay.closed + relay.taken_in + relay.caught_up,
        "lost_streams": relay.lost_streams,
    }
