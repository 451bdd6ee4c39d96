"""What the observer remembers of requests that are over: bounded by their number, and small whatever they asked."""

from __future__ import annotations

from tests.core.script import Observed, Relay


def test_what_is_kept_of_a_request_does_not_depend_on_its_prompt() -> None:
    """The beginnings of a long prompt are hundreds of numbers, and thousands of requests are remembered."""
    observed = Observed()
    relay = Relay(observed)
    prompt = {"messages": [{"role": "user", "content": "word " * 20_000}]}
    served, refused = relay.request(0, prompt), relay.request(1, prompt)
    relay.flush()
    assert all(len(request.prefix) > 300 for request in observed.ledger.requests.values())
    relay.response(10, served)
    relay.data(11, served, b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n')
    relay.end(12, refused, status=400)
    relay.flush()
    observed.advance(1000)
    log = observed.ledger.causes.evidence.requests
    assert [request.prefix for request in log._known.values()] == [(), ()]
