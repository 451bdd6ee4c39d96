"""A gateway that reads the server's own page through our data port, twenty times a second: it is nobody's request.

The endpoint picker of the Gateway API's inference extension does so, over one connection per pod that it keeps.
Times in milliseconds.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from typing import Any

from tests.core.script import DONE, Observed, Relay, chunk, usage

from prefillwatch.export import table
from prefillwatch.wire.tap import Kind, RequestHead, encode_payload

EVERY, TOOK = 50, 3


def play(*, scraped: bool) -> Observed:
    """A stream at a token per 20 ms that a prompt of 6,000 tokens freezes from 1,980 to 3,000."""
    observed = Observed()
    relay = Relay(observed)
    victim = relay.request(900)
    prompt: list[int] = []
    plan: list[tuple[float, int, Callable[[], Any]]] = []
    order = itertools.count()

    def at(time: float, what: Callable[[], Any]) -> None:
        heapq.heappush(plan, (time, next(order), what))

    def scrape(time: float) -> None:
        stream = relay.opened()
        relay.add(time, stream, Kind.REQUEST, encode_payload(RequestHead("GET", "/metrics")))
        relay.add(time, stream, Kind.REQUEST_END, bytes(8))
        relay.add(time, stream, Kind.SENT)
        at(time + TOOK, lambda: relay.response(time + TOOK, stream, content_type="text/plain; version=0.0.4"))
        at(time + TOOK, lambda: relay.end(time + TOOK, stream))

    at(999, lambda: relay.response(999, victim))
    for time in (*range(1000, 2000, 20), *range(3000, 5000, 20)):
        at(time, lambda time=time: relay.data(time, victim, chunk()))  # type: ignore[misc]
    at(1975, lambda: prompt.append(relay.request(1975, {"messages": [{"role": "user", "content": "a b " * 6000}]})))
    at(3001, lambda: relay.response(3001, prompt[0]))
    at(3002, lambda: relay.data(3002, prompt[0], chunk() + usage(6000, 1) + DONE))
    at(3003, lambda: relay.end(3003, prompt[0]))
    at(5000, lambda: relay.data(5000, victim, usage(16, 150) + DONE))
    at(5001, lambda: relay.end(5001, victim))
    for time in range(1010, 6000, EVERY) if scraped else ():
        at(time, lambda time=time: scrape(time))  # type: ignore[misc]
    while plan:
        time, _, what = heapq.heappop(plan)
        if time > observed.now_ms + 20:
            relay.flush()
            observed.advance(time)
        what()
    relay.flush()
    observed.advance(40_000)
    return observed


def figures(observed: Observed) -> dict[str, list[Any]]:
    """Of streams and prompts, sums to nine digits; what is left out is about the tap itself, which carried more."""
    of_the_tap = {table.TAP_PACKETS, table.OBSERVER_DELAY, table.EXPOSED_SERIES}
    found: dict[str, list[Any]] = {}
    for each in observed.snapshot():
        if each.spec not in of_the_tap:
            values = [(labels, round(value, 9)) for labels, value in each.values.items()]
            buckets = [(labels, list(counts), round(total, 9)) for labels, (counts, total) in each.buckets.items()]
            found[each.spec.name] = [*values, *buckets]
    return found


def test_it_is_no_request_and_no_prompt_and_changes_no_figure() -> None:
    scraped, alone = play(scraped=True), play(scraped=False)
    assert figures(scraped) == figures(alone)
    assert scraped.values(table.REQUESTS) == {("m", "chat_completions", "ok"): 2}


def test_it_is_in_no_incident() -> None:
    (incident,) = play(scraped=True).observation.incidents(100)
    assert (incident["cause"], incident["victims"], incident["culprit_tokens"]) == ("prefill", 1, 6000)
    assert [culprit["prompt_tokens"] for culprit in incident["culprits"]] == [6000]
    (account,) = play(scraped=True).observation.accounts()
    assert "metrics" not in repr(account)
