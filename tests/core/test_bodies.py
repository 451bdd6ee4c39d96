"""Request bodies: what of them is held and read, and what counts when they are not."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from tests.core.script import CHAT, Observed, Relay, chunk, ns, stream_tokens

from prefillwatch.core.bodies import (
    ACCEPTED_SHARE,
    MOST_HELD_BYTES,
    SMALL_BYTES,
    UNANSWERED_SHARE,
    Allowance,
    HeldBody,
    RequestBodies,
)
from prefillwatch.export import table
from prefillwatch.observer.metrics import publish_relays
from prefillwatch.units import NS
from prefillwatch.wire.tap import MAX_PAYLOAD_BYTES, Kind, RequestHead, encode_payload

MiB = 1 << 20
HEAD = RequestHead("POST", CHAT, "application/json")


class Cpu:
    """A clock of CPU time on which every look takes so long."""

    def __init__(self, per_reading_ns: int = 0) -> None:
        self.now_ns = 0
        self._step_ns = per_reading_ns

    def __call__(self) -> int:
        self.now_ns += self._step_ns
        return self.now_ns


@pytest.fixture
def observed() -> Observed:
    return Observed(served=("m", "other-model"))


@pytest.fixture
def relay(observed: Observed) -> Relay:
    return Relay(observed)


def unread(observed: Observed) -> dict[str, float]:
    publish_relays(observed.registry, (), observed.view().tap)
    return {labels[0]: count for labels, count in observed.values(table.REQUEST_BODIES_UNREAD).items() if count}


def send(relay: Relay, at_ms: float, body: bytes, path: str = CHAT, shown: int | None = None, **head: Any) -> int:
    """A request with this body, of which the tap gets the first ``shown`` bytes."""
    relay._streams += 1
    stream = relay._streams
    relay.add(at_ms, stream, Kind.REQUEST, encode_payload(RequestHead("POST", path, "application/json", **head)))
    part = body[:shown]
    for start in range(0, len(part), MAX_PAYLOAD_BYTES):
        relay.add(at_ms, stream, Kind.REQUEST_BODY, part[start : start + MAX_PAYLOAD_BYTES])
    relay.add(at_ms, stream, Kind.REQUEST_END, len(body).to_bytes(8, "little"))
    relay.add(at_ms, stream, Kind.SENT)
    relay.flush()
    return stream


def request_of(observed: Observed, stream: int) -> Any:
    return observed.taps.relays[0].streams[stream].request


def chat(text: str, **more: Any) -> bytes:
    return json.dumps({"messages": [{"role": "user", "content": text}], "model": "other-model"} | more).encode()


@pytest.mark.parametrize(
    ("encoding", "content_type", "path"),
    [
        ("foo", "application/json", CHAT),
        ("gzip", "application/json", CHAT),
        ("", "multipart/form-data; boundary=x", CHAT),
        ("", "application/json", "/v1/chat/%63ompletions"),
        ("", "application/json", "//v1//chat/completions/"),
    ],
)
def test_no_header_and_no_path_hides_a_prompt(
    observed: Observed, relay: Relay, encoding: str, content_type: str, path: str
) -> None:
    head = RequestHead("POST", path, content_type, encoding)
    relay.add(1000, 1, Kind.REQUEST, encode_payload(head))
    body = chat("words " * 5000)
    relay.add(1000, 1, Kind.REQUEST_BODY, body)
    relay.add(1000, 1, Kind.REQUEST_END, len(body).to_bytes(8, "little"))
    relay.add(1000, 1, Kind.SENT)
    relay.flush()
    observed.advance(1100)
    assert request_of(observed, 1).prompt_tokens == 7500
    assert observed.values(table.PREFILLING_REQUESTS) == {("other-model",): 1}


@pytest.mark.parametrize("body", [b"\x80\x81" * 20_000, b"[" * 40_000, b'{"messages":[' + b"{}," * 13_000 + b"}"])
def test_a_body_that_cannot_be_read_counts_by_its_size(observed: Observed, relay: Relay, body: bytes) -> None:
    stream = send(relay, 1000, body)
    assert request_of(observed, stream).prompt_tokens == pytest.approx(len(body) / 4, abs=1)
    assert unread(observed) == {"content": 1}


def test_a_model_that_is_no_name_is_other_unless_the_answer_names_one(observed: Observed, relay: Relay) -> None:
    for at, said in ((0, chunk("a", model=None)), (500, chunk("a"))):
        stream = send(relay, at, chat("hello", model=["m"]))
        relay.response(at + 99, stream)
        relay.data(at + 100, stream, said)
        relay.end(at + 200, stream)
    nameless = send(relay, 1300, b'{"messages":[]}')
    stream_tokens(relay, nameless, [1400])
    relay.end(1500, nameless)
    relay.flush()
    observed.advance(3000)
    endpoint, ok = "chat_completions", "ok"
    assert observed.values(table.REQUESTS) == {("other", endpoint, ok): 1, ("m", endpoint, ok): 2}


def test_a_large_body_counts_by_its_size_until_upstream_accepts_it(observed: Observed, relay: Relay) -> None:
    text = "words \\u4e2d " * 40_000
    body = chat(text, stream=True, n=2)
    assert len(body) > SMALL_BYTES
    stream = send(relay, 1000, body)
    request = request_of(observed, stream)
    assert (request.prompt_chars, request.text_only, request.prefix) == (len(body), False, ())
    assert (observed.names.labels[request.model], request.streaming) == ("other-model", True)
    relay.response(1100, stream)
    relay.flush()
    assert (request.prompt_chars, request.text_only, len(request.prefix)) == (len(text), True, 512)
    assert (request.prompt_tokens, request.sequences) == (len(text) // 4, 2)
    observed.advance(1200)
    assert observed.values(table.PREFILLING_TOKENS)[("other-model",)] == len(text) // 4
    assert observed.taps.bodies.held == 0
    assert unread(observed) == {}


def test_images_are_no_text_once_upstream_has_accepted_them(observed: Observed, relay: Relay) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * MiB}}
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": [image, "What is it?"]}]}).encode()
    stream = send(relay, 1000, body)
    relay.response(1100, stream, content_type="application/json")
    relay.flush()
    assert request_of(observed, stream).prompt_chars == len("What is it?")


@pytest.mark.parametrize("status", [401, 404, 503])
def test_a_large_body_that_upstream_refuses_is_never_read(observed: Observed, relay: Relay, status: int) -> None:
    clock = observed.taps.bodies._cpu_clock = Cpu(1)
    stream = send(relay, 1000, chat("x" * SMALL_BYTES))
    assert observed.taps.bodies.held > SMALL_BYTES
    relay.response(1100, stream, status)
    relay.flush()
    assert observed.taps.bodies.held == 0
    assert clock.now_ns == 0


def test_of_a_compressed_body_only_the_beginning_is_read_before_upstream_accepts_it(
    observed: Observed, relay: Relay
) -> None:
    text = "words " * 200_000
    body = gzip.compress(chat(text))
    stream = send(relay, 1000, body, content_encoding="gzip")
    request = request_of(observed, stream)
    assert SMALL_BYTES - 100 < request.prompt_chars <= SMALL_BYTES
    relay.response(1100, stream)
    relay.flush()
    assert (request.prompt_chars, request.text_only) == (len(text), True)


def test_a_stream_is_one_whatever_the_request_seemed_to_say(observed: Observed, relay: Relay) -> None:
    stream = send(relay, 1000, chat("hello", stream=1))
    assert request_of(observed, stream).streaming is False
    relay.response(1100, stream)
    relay.flush()
    assert request_of(observed, stream).streaming is True


def test_token_ids_of_a_body_that_is_not_all_there_are_no_exact_count(observed: Observed, relay: Relay) -> None:
    body = json.dumps({"model": "m", "prompt": list(range(1000, 2000))}).encode()
    stream = send(relay, 1000, body, "/v1/completions", shown=2000)
    request = request_of(observed, stream)
    assert (request.prompt_exact, request.prompt_tokens) == (False, len(body) // 4)


# --- Memory ---


def test_all_bodies_together_have_a_bound(observed: Observed, relay: Relay) -> None:
    piece = b"x" * MAX_PAYLOAD_BYTES
    pieces = 8 * MiB // MAX_PAYLOAD_BYTES
    for stream in range(1, 41):
        relay.add(1000, stream, Kind.REQUEST, encode_payload(HEAD))
        for _ in range(pieces):
            relay.add(1000, stream, Kind.REQUEST_BODY, piece)
        relay.flush()
        assert observed.taps.bodies.held <= MOST_HELD_BYTES
    relay._streams = 100
    late = send(relay, 1100, chat("hello there"))
    assert request_of(observed, late).prompt_chars == len("hello there")  # there is always some room for the small
    for stream in range(1, 41):
        relay.add(1200, stream, Kind.REQUEST_END, (8 * MiB).to_bytes(8, "little"))
        relay.add(1200, stream, Kind.SENT)
    relay.flush()
    assert {request_of(observed, stream).prompt_chars for stream in range(1, 41)} == {8 * MiB}
    assert unread(observed)["memory"] >= 33
    for stream in range(1, 41):
        relay.end(1300, stream)
    relay.end(1300, late)
    relay.flush()
    assert observed.taps.bodies.held == 0


def test_of_a_body_without_room_the_ends_tell_the_model() -> None:
    bodies = RequestBodies(lambda: 0, most_held=100_000)
    body = HeldBody(bodies)
    whole = chat("x" * 300_000, stream=True)
    for start in range(0, len(whole), 1000):
        body.add(whole[start : start + 1000])
        assert bodies.held <= 100_000
    facts = body.read(HEAD, len(whole), NS)
    assert (facts.model, facts.stream, facts.complete, body.unread) == ("other-model", True, False, "memory")
    assert body.read_accepted(HEAD, len(whole), NS) is None
    assert bodies.held == 0
    assert bodies.unread == {"memory": 1}


def test_thousands_of_bodies_never_hold_more_than_the_bound_either() -> None:
    bodies = RequestBodies(lambda: 0, most_held=100_000)
    held = [HeldBody(bodies) for _ in range(3000)]
    for _ in range(20):
        for body in held:
            body.add(b"x" * 100)
            assert bodies.held <= 100_000
    for body in held:
        body.let_go()
    assert bodies.held == 0


# --- Time ---


def test_an_allowance_is_a_share_of_the_time_that_passes() -> None:
    allowance = Allowance(0.1)
    assert allowance.is_left(100 * NS)
    allowance.spend(NS // 2)  # more than there was
    assert not allowance.is_left(100 * NS)
    assert not allowance.is_left(103 * NS)
    assert not allowance.is_left(102 * NS)  # another relay's clock
    assert allowance.is_left(105 * NS)
    allowance.spend(NS // 10)
    assert allowance.is_left(1000 * NS)
    allowance.spend(NS // 10)  # no more than a second is saved up
    assert not allowance.is_left(1000 * NS)


@pytest.mark.parametrize(("accepted", "share"), [(False, UNANSWERED_SHARE), (True, ACCEPTED_SHARE)])
def test_all_bodies_together_take_no_more_than_their_share_of_a_core(accepted: bool, share: float) -> None:
    cost_ns = 3_000_000
    bodies = RequestBodies(cpu_clock=Cpu(cost_ns))
    readings = 0
    for at_ms in range(60_000):
        facts = bodies.read(HEAD, b"{}", ns(at_ms), complete=True, accepted=accepted)
        readings += facts is not None
    assert readings * cost_ns <= share * 62 * NS
    assert readings * cost_ns >= share * 58 * NS


def test_strangers_take_no_time_from_those_whom_upstream_knows(observed: Observed, relay: Relay) -> None:
    bodies = observed.taps.bodies
    bodies._cpu_clock = Cpu(50_000_000)
    strangers = [send(relay, 1000, chat("hello")) for _ in range(10)]
    known = send(relay, 1000, chat("hello", stream=True))
    request = request_of(observed, known)
    assert request.prompt_chars == len(chat("hello", stream=True))
    assert observed.names.labels[request.model] == "other-model"
    for stream in strangers:
        relay.response(1002, stream, 401)
        relay.end(1002, stream, status=401)
    relay.response(1003, known)
    relay.flush()
    assert (request.prompt_chars, request.text_only) == (5, True)
    assert unread(observed) == {}


def test_bodies_for_which_there_is_no_time_are_counted(observed: Observed, relay: Relay) -> None:
    observed.taps.bodies._cpu_clock = Cpu(50_000_000)
    streams = [send(relay, 1000, chat("hello")) for _ in range(12)]
    for stream in streams:
        relay.response(1001, stream)
    relay.flush()
    # Two before upstream answered, four after.
    assert unread(observed) == {"time": 6}
    assert sum(request_of(observed, stream).prompt_chars == 5 for stream in streams) == 6
