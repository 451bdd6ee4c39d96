"""What telling tenants apart costs per request: the same requests with it and without, in turns and in one run.

    python -m tests.bench.tenants

The relay's part is making what the observer is told of a request's head. The observer's is all that it does for a
request of a few tokens, of one of 200 tenants, and for a token.
"""

from __future__ import annotations

import itertools
import json
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator

from tests.bench.observer import DATA, Feeder, Record, chunk

from prefillwatch.analysis.settings import AnalysisSettings
from prefillwatch.core.inputs import Models
from prefillwatch.observer.observation import Observation
from prefillwatch.relay.http_head import parse_request
from prefillwatch.relay.observed_head import observed_request, sender_by
from prefillwatch.settings.sources import load
from prefillwatch.settings.views import analysis_view, relay_view
from prefillwatch.units import NS
from prefillwatch.wire.sender import TenantIds
from prefillwatch.wire.tap import End, Finish, Kind, RequestHead, ResponseHead, encode_payload

ROUNDS = 9
REQUESTS = 1500
TOKENS = 8
HEADS = 20_000
TENANTS = 200
#: By what is asked for.
SIDES: dict[str, dict[str, str]] = {
    "off": {},
    "header": {"tenant_header": "x-tenant"},
    "credential": {"tenant_from": "api_key_id"},
    "user": {"tenant_from": "user"},
    "header, priorities": {"tenant_header": "x-tenant", "priorities": "true"},
}
HEAD = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nUser-Agent: OpenAI/Python 1.99\r\nAccept: application/json\r\n"
    b"Content-Type: application/json\r\nContent-Length: 300\r\nAuthorization: Bearer sk-0123456789abcdef0123456789\r\n"
    b"X-Request-Id: 7b0c1c2e-8d4f-4f0e-9a51-0d2f5a1f7b6e\r\nX-Tenant: acme-corp\r\nX-Vllm-Priority: 1\r\n\r\n"
)


def relay_us(flags: dict[str, str]) -> float:
    """Microseconds for a head."""
    sender = sender_by(relay_view(load(flags, {}), upstream="http://u", listen_fds=()))
    request = parse_request(HEAD)
    begin = time.thread_time_ns()
    for _ in range(HEADS):
        encode_payload(observed_request(request, 0, sender))
    return (time.thread_time_ns() - begin) / HEADS / 1000


class SettledFeeder(Feeder):
    """With settings of its own."""

    def __init__(self, settings: AnalysisSettings) -> None:
        super().__init__()
        self.observation = Observation(settings, clock=lambda: self.now)
        self.observation.feed(Models(("bench",)))


def observer_us(flags: dict[str, str]) -> float:
    """Microseconds for a request of a few tokens."""
    feeder = SettledFeeder(analysis_view(load(flags, {})))
    if flags.get("tenant_from") == "user":
        feeder.observation.core.relays.bodies.name_user = TenantIds("key")
    for record in requests(named=bool(flags) and flags.get("tenant_from") != "user"):
        feeder.take(record)
    feeder.work(feeder.now + NS)
    return feeder.cpu_ns / REQUESTS / 1000


def requests(*, named: bool) -> Iterator[Record]:
    """One after another, 2 ms apart."""
    for number in range(1, REQUESTS + 1):
        now, tenant = NS + number * 2_000_000, f"tenant-{number % TENANTS}"
        content = [{"role": "user", "content": "word " * 200}]
        body = json.dumps({"model": "bench", "stream": True, "messages": content, "user": tenant}).encode()
        head = RequestHead("POST", "/v1/chat/completions", "application/json", "", len(body))
        if named:
            head = RequestHead(
                "POST", "/v1/chat/completions", "application/json", "", len(body), tenant=tenant, priority=number % 3
            )
        yield now, number, Kind.REQUEST, encode_payload(head)
        yield now, number, Kind.REQUEST_BODY, body
        yield now, number, Kind.REQUEST_END, len(body).to_bytes(8, "little")
        yield now, number, Kind.SENT, b""
        yield now, number, Kind.RESPONSE, encode_payload(ResponseHead(200, "text/event-stream"))
        for token in range(TOKENS):
            yield now + 100_000 * (token + 1), number, DATA, chunk(number, token)
        yield now + 100_000 * (TOKENS + 1), number, Kind.END, encode_payload(End(Finish.COMPLETE, 200))


def main() -> None:
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for _, (side, flags) in itertools.product(range(ROUNDS), SIDES.items()):
        found["relay, head", side].append(relay_us(flags))
        found["observer, request", side].append(observer_us(flags))
    for what in ("relay, head", "observer, request"):
        off = statistics.median(found[what, "off"])
        for side in SIDES:
            values = found[what, side]
            median = statistics.median(values)
            spread = f"({min(values):.2f} to {max(values):.2f})"
            print(f"{what:<18} {side:<19} {median:7.2f} us  {median - off:+6.2f}  {spread}")


if __name__ == "__main__":
    main()
