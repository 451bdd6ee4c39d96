"""`/api/state`: what is going on right now, in plain JSON. Times in Unix seconds, durations in seconds."""

from __future__ import annotations

from typing import Any, Final

from prefillwatch.core.view import RelayNow, RequestNow, View
from prefillwatch.units import NS

#: Streams and prefills listed; the counts beside the lists are always of all.
MOST_LISTED: Final = 500


def streams_now(view: View, wall_offset: float) -> dict[str, Any]:
    """Decoding streams, the longest silent first, and requests without a first token, the oldest first."""
    streams = [(each, own) for each in view.requests for own in each.sequences if not own.over]
    streams.sort(key=lambda stream: -stream[1].silent_s)
    prefills = sorted((each for each in view.requests if each.in_prefill), key=lambda each: each.sent_ns)
    return {
        "decoding": len(streams),
        "prefilling": len(prefills),
        "streams": [
            {
                **_common(each, wall_offset),
                "choice": own.choice,
                "silent_seconds": own.silent_s,
                "frozen": own.frozen,
            }
            for each, own in streams[:MOST_LISTED]
        ],
        "prefills": [
            {
                **_common(each, wall_offset),
                "waited_seconds": (view.known_ns - each.sent_ns) / NS,
                "in_service": each.in_service,
            }
            for each in prefills[:MOST_LISTED]
        ],
        "clear_step_seconds": view.clear_step_s or None,
    }


def _common(request: RequestNow, wall_offset: float) -> dict[str, Any]:
    ttft = (request.first_ns - request.received_ns) / NS if request.first_ns and request.received_ns else None
    return {
        "request_id": request.request_id,
        "model": request.model,
        "endpoint": request.endpoint,
        "streaming": request.streaming,
        "received_at": request.received_ns / NS + wall_offset if request.received_ns else None,
        "ttft_seconds": ttft,
        "prompt_tokens": request.prompt_tokens,
        "prompt_tokens_source": "usage" if request.prompt_exact else "estimate",
        "token_events": request.token_events,
        "client_blocked": request.client_blocked,
    }


def relay_state(relay: RelayNow) -> dict[str, Any]:
    """What a relay reported last, and how well it could be followed."""
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
        "followed": relay.followed,
        "behind_seconds": relay.behind_s,
        "dropped_packets": relay.dropped,
        "repaired_streams": relay.closed + relay.taken_in + relay.caught_up,
        "lost_streams": relay.lost_streams,
    }
