"""Scenes: what relays saw, with prompts and answers that can be told from anything else."""

from __future__ import annotations

import gzip
import json
import random
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import brotli
import zstandard
from tests.core.script import CHAT, DONE, Relay, chunk, ns, usage
from tests.recorder.stage import Live

from prefillwatch.core.inputs import EngineLinks, EngineStep, Gpus, Health, Models, Page, TapPacket
from prefillwatch.engine.gpu_memory import GpuMemory
from prefillwatch.engine.kinds import EngineSample, PageSample
from prefillwatch.engine.step_report import FinishedRequest, StepReport
from prefillwatch.engine.upstream import Scrapes
from prefillwatch.lab.simulator import Arrival, Delivery, Engine, SimRequest, preset_engine, run_virtual
from prefillwatch.settings.control import Control, Restarts
from prefillwatch.units import MS
from prefillwatch.wire.in_flight import BLOCKED, InFlight, encode_in_flight
from prefillwatch.wire.tap import End, Finish, Kind, RequestHead, ResponseHead, encode_payload

ANSWERS = Path(__file__).parents[1] / "data" / "answers"
#: In every prompt, answer and credential of these scenes.
SECRET = "Xyzzy-Geheimnis"
PROMPT = f"{SECRET}-prompt about the merger "
ANSWER = f"{SECRET}-answer "

PATHS = {
    "chat": CHAT,
    "completions": "/v1/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
}


def freeze(live: Live, since_ms: int = 4000) -> None:
    """Three streams at 40 ms; a long prompt freezes them for 800 ms, as it would on an engine that does not chunk."""
    relay = live.relay
    streams = [relay.request(10 + i, {"messages": [{"content": "short", "role": "user"}]}) for i in range(3)]
    body = {"messages": [{"role": "user", "content": "x" * 24_000}]}
    until_ms = since_ms + 800
    times = [float(at) for at in (*range(100, since_ms, 40), *range(until_ms, until_ms + 3000, 40))]
    lump = 0
    for number, at in enumerate(times):
        if not lump and at >= since_ms - 80:
            lump = relay.request(since_ms - 75, body, request_id="the-culprit")
        for i, stream in enumerate(streams):
            if not number:
                relay.response(at - 1, stream)
            relay.data(at + i * 0.2, stream, chunk())
        if at == until_ms:
            relay.response(at + 1, lump)
            relay.data(at + 2, lump, chunk())
            relay.data(at + 10, lump, usage(6000, 1) + DONE)
            relay.end(at + 11, lump)
        relay.flush()
        live.advance(at + 30)
    for stream in streams:
        relay.data(times[-1] + 1, stream, usage(12, len(times)) + DONE)
        relay.end(times[-1] + 2, stream)
    relay.flush()
    live.advance(times[-1] + 13_000)


def taught(live: Live, tokens: int, took_ms: float, teacher: str = "teacher") -> None:
    """Prompts teach that a token costs 0.2 ms; then some peace; then one of so many tokens, for which four streams
    stand still for so long."""
    relay, step_ms = live.relay, 20.0
    streams = [relay.request(10 + i, {"messages": [{"role": "user", "content": "short"}]}) for i in range(4)]
    for stream in streams:
        relay.response(90, stream)
    at = 100.0

    def step(after_ms: float) -> float:
        nonlocal at
        at += after_ms
        for i, stream in enumerate(streams):
            relay.data(at + i * 0.2, stream, chunk())
        relay.flush()
        live.advance(at + 5)
        return at

    def prompt(name: str, tokens: int, took_ms: float) -> None:
        text = f"{name} " * (4 * tokens // (len(name) + 1))
        lump = relay.request(at + 6, {"messages": [{"role": "user", "content": text}]}, request_id=name)
        step(step_ms)
        done = step(took_ms)
        relay.response(done + 1, lump)
        relay.data(done + 1.5, lump, chunk())
        relay.data(done + 2, lump, usage(tokens, 1) + DONE)
        relay.end(done + 2.5, lump)

    for number in range(8):
        for _ in range(15):
            step(step_ms)
        teaching = 1000 + 500 * (number % 4)
        prompt(f"{teacher}-{number}", teaching, step_ms + 0.2 * teaching)
    for _ in range(750):
        step(step_ms)
    prompt("suspect", tokens, took_ms)
    for _ in range(50):
        step(step_ms)
    for stream in streams:
        relay.end(at + 1, stream)
    relay.flush()
    live.advance(at + 2_500)


def simulated(live: Live) -> None:
    """Three prompts of 6,000 tokens among six readers, on a simulated engine in virtual time."""
    victims = [Arrival(i * 3 * MS, SimRequest(f"victim-{i}", prompt_tokens=20, max_tokens=120)) for i in range(6)]
    lumps = [Arrival((1500 + i) * MS, SimRequest(f"lump-{i}", prompt_tokens=6000, max_tokens=8)) for i in range(3)]
    delivery = Delivery(after_step_ns=MS, per_stream_ns=200_000, first_token_ns=5 * MS)
    engine = Engine(preset_engine("article", enable_chunked_prefill=False))
    run = run_virtual(engine, victims + lumps, delivery=delivery)
    streams: dict[str, int] = {}
    seen = dict.fromkeys(run.requests, 0)
    for at_ns, what, name in run.events():
        at = at_ns / MS
        if at - live.now_ms > 20:
            live.relay.flush()
            live.advance(at)
        tokens = run.requests[name].prompt_tokens
        if what == "sent":
            body = {"messages": [{"role": "user", "content": f"{name} " + "x" * 4 * tokens}]}
            streams[name] = live.relay.request(at, body, request_id=name)
        elif what == "token":
            if not seen[name]:
                live.relay.response(at, streams[name])
            live.relay.data(at, streams[name], chunk())
            seen[name] += 1
        else:
            live.relay.data(at, streams[name], usage(tokens, seen[name]) + DONE)
            live.relay.end(at, streams[name])
    live.relay.flush()
    live.advance(live.now_ms + 12_000)


def engine_tells(live: Live) -> None:
    """Upstream's metrics come, fail and come back after a restart; the plugin tells steps; a GPU; draining."""
    feed, failures = live.observation.feed, 0
    for second in range(1, 12):
        now_ns = ns(second * 1000)
        sample = EngineSample(
            "0", kv_usage=second / 20, capacity_tokens=10_000, running=3, waiting=second, block_size=16
        )
        sample = replace(sample, preemptions_total=float(second % 6), prefix_queries_total=10.0 * second)
        feed(Health(second % 4 > 0))
        if second in (4, 5):
            failures += 1
        else:
            page = PageSample("vllm", (sample, replace(sample, engine="1")), 1e9 + second // 6)
            feed(Page(page, live.observation.wall_offset()))
        feed(Scrapes(second not in (4, 5), second / 1000, {"timeout": failures} if failures else {}))
        gaps, finished = [(0.02, 3)], [FinishedRequest("chatcmpl-waiting", 0.1, 0.2, 100)]
        report = StepReport(0, now_ns - 5 * MS, now_ns, 20 * MS, prefill_tokens=10, gaps=gaps, finished=finished)
        feed(EngineStep(1 + second % 2, report))
        feed(Gpus({"0": GpuMemory(second, 100 - second)}))
        feed(Control(processes=(), draining=second > 9, restarts=Restarts(relay=second // 3)))
        feed(EngineLinks(unreadable=second))
        if second == 3:
            live.relay.request(3100, {"messages": [{"role": "user", "content": "x" * 9000}]}, request_id="waiting")
        live.relay.flush()
        live.advance(second * 1000 + 500)
    feed(Models(("other-model",)))
    live.advance(15_000)


def every_shape(live: Live) -> None:
    """All endpoints, streamed and whole, compressed and not, tool calls, two choices, errors, holes, broken relays."""
    relay, at = live.relay, 100.0
    for number, path in enumerate(sorted(ANSWERS.glob("*.json"))):
        recorded = json.loads(path.read_text(encoding="utf-8"))
        stream = _ask(relay, at, recorded["path"], number)
        status = 400 if path.stem == "chat_refused" else 200
        relay.response(at + 5, stream, status, recorded["content_type"])
        for read in recorded["reads"]:
            at += 12
            relay.data(at, stream, read.encode())
        relay.end(at + 1, stream, status=status)
        relay.flush()
        live.advance(at + 10)
    for number, (path_, reads) in enumerate(_secret_answers()):
        for encoding in ("", "gzip", "br", "zstd"):
            at = _play(live, at + 50, path_, reads, encoding, 100 + number)
    at = _whole_answers(live, at + 50)
    _broken(live, at + 50)
    live.advance(live.now_ms + 15_000)


def _ask(relay: Relay, at: float, path: str, number: int = 0, **more: Any) -> int:
    text = f"{number} " + PROMPT * 40
    if path.endswith("/completions") and "chat" not in path:
        body: dict[str, Any] = {"prompt": text}
    elif path.endswith("/responses"):
        body = {"input": text, "instructions": PROMPT}
    else:
        body = {"messages": [{"role": "user", "content": text}], "system": PROMPT}
    body |= {"tools": [{"name": SECRET, "description": PROMPT}], "metadata": {"key": SECRET}, "model": "m"}
    return relay.request(at, body | more, path, slo_ttft_ms=500.0, request_id=f"request-{number}")


def _play(live: Live, at: float, path: str, reads: list[bytes], encoding: str, number: int) -> float:
    relay = live.relay
    stream = _ask(relay, at, path, number)
    head = ResponseHead(200, f"text/event-stream; charset=utf-8; boundary={SECRET}", encoding)
    relay.add(at + 5, stream, Kind.RESPONSE, encode_payload(head))
    for read in _compressed(reads, encoding):
        at += 15
        relay.data(at, stream, read)
    relay.end(at + 1, stream)
    relay.flush()
    live.advance(at + 20)
    return at


def _compressed(reads: list[bytes], encoding: str) -> Iterator[bytes]:
    if not encoding:
        yield from reads
    elif encoding == "gzip":
        yield from map(gzip.compress, reads)
    elif encoding == "br":
        compressor = brotli.Compressor()
        for read in reads:
            yield compressor.process(read) + compressor.flush()
        yield compressor.finish()
    else:
        stream = zstandard.ZstdCompressor().compressobj()
        for read in reads:
            yield stream.compress(read) + stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)


def _event(document: dict[str, Any], name: str = "") -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(document)}\n\n".encode()


def _chat(delta: dict[str, Any], **more: Any) -> bytes:
    return _event({"id": "chatcmpl-7", "model": "m", "choices": [{"index": 0, "delta": delta}], **more})


def _secret_answers() -> Iterator[tuple[str, list[bytes]]]:
    """Streams with texts, reasoning, tool calls and errors."""
    call = {"index": 0, "id": "call-1", "function": {"name": SECRET, "arguments": f'{{"q": "{ANSWER}"}}'}}
    yield (
        PATHS["chat"],
        [
            _chat({"role": "assistant", "content": ""}),
            _chat({"reasoning_content": ANSWER}),
            *[_chat({"content": f"{ANSWER}{n}"}) for n in range(5)],
            _chat({"tool_calls": [call]}),
            _chat({"content": ANSWER}) + _chat({"content": ANSWER}),
            _chat({"content": ANSWER}, usage={"prompt_tokens": 300, "completion_tokens": 12}),
            _event({"error": {"type": "InternalError", "message": f"cannot {SECRET}", "code": 500}}),
            DONE,
        ],
    )
    yield (
        PATHS["completions"],
        [_event({"id": "cmpl-1", "model": "m", "choices": [{"index": n % 2, "text": ANSWER}]}) for n in range(8)],
    )
    yield (
        PATHS["responses"],
        [
            _event({"type": "response.output_text.delta", "delta": ANSWER}, "response.output_text.delta"),
            _event({"type": "response.function_call_arguments.delta", "delta": ANSWER}),
            _event({"type": "response.failed", "response": {"error": {"code": "server_error", "message": SECRET}}}),
        ],
    )
    yield (
        PATHS["messages"],
        [
            _event({"type": "message_start", "message": {"id": "msg-1", "model": "m", "usage": {"input_tokens": 9}}}),
            _event({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": ANSWER}}),
            _event({"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": ANSWER}}),
            _event({"type": "error", "error": {"type": "overloaded_error", "message": SECRET}}),
        ],
    )


def _whole_answers(live: Live, at: float) -> float:
    """JSON answers, good and bad, and what is no answer of a model at all."""
    relay = live.relay
    choice = {"index": 0, "message": {"content": ANSWER}, "finish_reason": "stop"}
    good = {"id": "x", "model": "m", "choices": [choice], "usage": {"prompt_tokens": 20, "completion_tokens": 3}}
    bad = {"error": {"message": f"bad {SECRET}", "type": "BadRequestError"}}
    for path in (*PATHS.values(), "/v1/embeddings", f"/files/{SECRET}", f"/{SECRET}/v1/chat/completions"):
        for status, document in ((200, good), (400, bad), (500, bad), (200, bad)):
            at += 30
            stream = _ask(relay, at, path, int(at), stream=False)
            relay.response(at + 5, stream, status, f"application/json; {SECRET}")
            relay.data(at + 20, stream, json.dumps(document).encode())
            relay.end(at + 21, stream, status=status)
        relay.flush()
        live.advance(at + 25)
    stream = relay.request(at + 30, {"messages": PROMPT})
    relay.end(at + 31, stream, Finish.UPSTREAM_UNREACHABLE, 502)
    relay.add(at + 32, stream + 1000, Kind.REQUEST, encode_payload(RequestHead("POST", CHAT, resumed=True)))
    relay.response(at + 33, stream + 1000)
    relay.data(at + 40, stream + 1000, _chat({"content": ANSWER}))
    relay.flush()
    live.advance(at + 50)
    return at + 50


def _broken(live: Live, at: float) -> None:
    """Pieces, lost packets, unreadable records, a client that blocks, a relay that dies in the middle."""
    relay = live.relay
    streams = [_ask(relay, at, PATHS["chat"], n) for n in range(4)]
    for stream in streams:
        relay.response(at + 2, stream)
        relay.data(at + 3, stream, _chat({"content": ANSWER}))
    relay.add(at + 4, streams[0], Kind.BLOCKED)
    relay.add(at + 5, streams[1], Kind.DATA_PART, _chat({"content": ANSWER})[:20])
    relay.data(at + 5, streams[1], _chat({"content": ANSWER})[20:])
    relay.add(at + 6, streams[0], Kind.UNBLOCKED)
    relay.add(at + 7, 0, Kind.LATE, (30_000_000).to_bytes(8, "little"))
    relay.add(at + 8, streams[3], Kind.RESPONSE, SECRET.encode())
    relay.flush()
    live.advance(at + 20)
    relay.data(at + 30, streams[1], _chat({"content": ANSWER}))
    relay.flush(lose=True)
    relay.data(at + 40, streams[1], _chat({"content": ANSWER}))
    relay.data(at + 41, streams[2], b"data: " + SECRET.encode() + b"\n\n")
    relay.data(at + 42, streams[2], _chat({"content": ANSWER}, usage={"prompt_tokens": 77, "completion_tokens": 2}))
    relay.flush()
    live.feed(TapPacket(SECRET.encode()))
    live.advance(at + 60)
    again = Relay(live, epoch=2)
    stream = _ask(again, at + 70, PATHS["messages"], 5)
    again.add(at + 80, stream, Kind.END, encode_payload(End(Finish.CLIENT_CLOSED, 0)))
    again.flush()
    live.advance(at + 90)
    assert ns(live.now_ms) > ns(at)


def goes_bad(live: Live) -> None:
    """An answer that becomes unreadable in the middle, and the one beside it that does not."""
    relay, packer = live.relay, zlib.compressobj(wbits=31)
    bad, good = (_ask(relay, 10 + i, PATHS["chat"], i) for i in range(2))
    relay.add(50, bad, Kind.RESPONSE, encode_payload(ResponseHead(200, "text/event-stream", "gzip")))
    relay.response(50, good)
    for at in range(100, 6000, 20):
        event = chunk(ANSWER)
        relay.data(at, good, event)
        packed = packer.compress(event) + packer.flush(zlib.Z_SYNC_FLUSH)
        relay.data(at + 1, bad, packed if at < 1000 else b"\xff" * 9)
        relay.flush()
        live.advance(at + 5)
    relay.end(6000, good)
    relay.flush()
    live.advance(12_000)  # the other one lasts


def lossy(live: Live) -> None:
    """Packets are lost, bodies are skipped, and the relay puts the books right."""
    relay = live.relay
    for number in range(6):
        relay.response(5, relay.request(0, {"messages": [{"role": "user", "content": PROMPT * (number + 1)}]}))
    relay.flush()
    for at_ms in range(100, 2000, 20):
        for stream in range(1, 6):
            relay.data(at_ms, stream, chunk(ANSWER))
        relay.flush(lose=1000 < at_ms < 1300)
        live.advance(at_ms)
    relay.add(2000, 1, Kind.SKIPPED, (90_000).to_bytes(8, "little"))
    relay.add(2000, 6, Kind.SKIPPED, bytes(8))
    relay.end(2010, 2)
    relay.flush(lose=True)
    live.advance(2100)
    told = InFlight(0, 9, [1, 3, 4, 5, 6, 8], [ns(1980)] * 6, [3, 3, 3 | BLOCKED, 3, 3, 3])
    relay.add(2200, 0, Kind.IN_FLIGHT, encode_in_flight(told))
    head = RequestHead("POST", CHAT, "application/json", resumed=True, received_ns=ns(90), stage=3, body_size=9000)
    relay.add(2300, 8, Kind.REQUEST, encode_payload(head))
    relay.response(2300, 8)
    relay.flush()
    live.advance(6000)
    for at_ms in range(6000, 7000, 20):
        for stream in (1, 3, 5, 6, 8):
            relay.data(at_ms, stream, chunk(ANSWER))
        relay.flush()
        live.advance(at_ms)
    relay.add(7010, 3, Kind.SKIPPED, bytes(8))
    relay.data(7020, 1, usage(60, 150) + DONE)
    for stream in (1, 3, 5, 8):
        relay.end(7030, stream)
    relay.add(7040, 0, Kind.GONE)
    relay.flush()
    live.advance(12_000)


def anything(live: Live, seed: int) -> None:
    """Records in any order, as no relay would send them, on few streams of two relays that die and lose packets."""
    rng = random.Random(seed)
    reads = [read for _, answer in _secret_answers() for read in answer] + [b"", b"data: {", b"\xff\n\n", usage(50, 9)]
    body = json.dumps({"model": "m", "stream": True, "messages": [{"role": "user", "content": PROMPT * 20}]}).encode()
    relays = [Relay(live, index) for index in range(2)]
    at = 100.0
    for number in range(2500):
        at += rng.choice([0.0, 1.0, 5.0, 20.0, 200.0 if number % 50 == 0 else 2.0])
        which, stream = rng.randrange(2), rng.randrange(1, 6)
        kind = rng.choice([*_LIKELY, *Kind])
        payloads = {
            Kind.REQUEST: encode_payload(
                RequestHead("POST", rng.choice(list(PATHS.values())), resumed=rng.random() < 0.1)
            ),
            Kind.REQUEST_BODY: body,
            Kind.REQUEST_END: len(body).to_bytes(8, "little"),
            Kind.RESPONSE: encode_payload(ResponseHead(rng.choice([200, 200, 200, 500]), "text/event-stream")),
            Kind.DATA: rng.choice(reads),
            Kind.DATA_PART: rng.choice(reads)[:7],
            Kind.END: encode_payload(End(rng.choice(list(Finish)), 200)),
            Kind.LATE: (25_000_000).to_bytes(8, "little"),
        }
        relays[which].add(
            at, stream, kind, rng.choice([b"", b"\xc1"]) if rng.random() < 0.02 else payloads.get(kind, b"")
        )
        if rng.random() < 0.1:
            relays[which].flush(lose=rng.random() < 0.1)
            live.advance(max(at, live.now_ms))
        if rng.random() < 0.003:
            relays[which] = Relay(live, which, epoch=number)
    live.advance(live.now_ms + 12_000)


_LIKELY = [*[Kind.DATA] * 12, Kind.REQUEST, Kind.REQUEST, Kind.REQUEST_BODY, Kind.REQUEST_END, Kind.SENT, Kind.RESPONSE]
