"""A relay as the observer sees it: writes tap records in milliseconds, reads metrics back."""

from __future__ import annotations

import json
from typing import Any, Protocol

from prefillwatch.analysis.settings import AnalysisSettings
from prefillwatch.analysis.tuning import DEFAULT, Tuning
from prefillwatch.core.exchange import Exchange
from prefillwatch.core.inputs import Input, Models, TapPacket
from prefillwatch.core.view import View
from prefillwatch.export.registry import Snapshot
from prefillwatch.export.spec import Spec
from prefillwatch.observer.observation import Observation
from prefillwatch.units import MS
from prefillwatch.wire.tap import End, Finish, Kind, PacketBuilder, RequestHead, ResponseHead, encode_payload

#: Monotonic clocks do not start at 0; neither do these.
EPOCH_NS = 10_000 * MS


def ns(at_ms: float) -> int:
    return EPOCH_NS + round(at_ms * MS)


CHAT = "/v1/chat/completions"


def chunk(text: str = " word", index: int = 0, **more: Any) -> bytes:
    """One chat event with text, as vLLM writes it."""
    choice = {"index": index, "delta": {"content": text}, "logprobs": None, "finish_reason": None}
    event = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(event | more, separators=(",", ":")).encode() + b"\n\n"


def usage(prompt: int, completion: int, cached: int = 0) -> bytes:
    counts = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    if cached:
        counts["prompt_tokens_details"] = {"cached_tokens": cached}  # type: ignore[assignment]
    event = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": []}
    return b"data: " + json.dumps(event | {"usage": counts}).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


class Observed:
    """Everything behind the tap, without sockets and clocks."""

    def __init__(
        self,
        settings: AnalysisSettings | None = None,
        served: tuple[str, ...] = ("m",),
        *,
        plugin: bool = False,
        tuning: Tuning = DEFAULT,
        exponential: bool = False,
    ) -> None:
        self.now_ms = 0.0
        self.observation = Observation(
            settings or AnalysisSettings(),
            lambda: ns(self.now_ms),
            plugin=plugin,
            tuning=tuning,
            exponential=exponential,
        )
        self.core, self.names = self.observation.core, self.observation.names
        self.ledger, self.taps = self.core._ledger, self.core.relays
        self.registry, self.history = self.observation.registry, self.observation.history
        self.publisher = self.observation.publisher
        self.ended: list[Exchange] = []
        end = self.publisher.exchange_ended
        self.publisher.exchange_ended = lambda *given: (self.ended.append(given[0]), end(*given))[1]  # type: ignore[method-assign]
        if served:
            self.feed(Models(served))

    def feed(self, given: Input) -> None:
        self.observation.feed(given)

    def advance(self, to_ms: float) -> None:
        """Let the time pass with a beat every 100 ms, as the process does."""
        while self.now_ms < to_ms:
            self.now_ms = min(self.now_ms + 100, to_ms)
            self.observation.beat()

    def snapshot(self) -> Snapshot:
        return self.observation.snapshot()

    def view(self) -> View:
        return self.observation.view()

    def values(self, spec: Spec) -> dict[tuple[str, ...], float]:
        return next(family.values for family in self.snapshot() if family.spec is spec)

    def counts(self, spec: Spec) -> dict[tuple[str, ...], int]:
        """Samples per label set of a histogram."""
        family = next(family for family in self.snapshot() if family.spec is spec)
        return {labels: sum(counts) for labels, (counts, _) in family.buckets.items() if sum(counts)}

    def sums(self, spec: Spec) -> dict[tuple[str, ...], float]:
        family = next(family for family in self.snapshot() if family.spec is spec)
        return {labels: total for labels, (counts, total) in family.buckets.items() if sum(counts)}


class Fed(Protocol):
    """Takes what a relay tells."""

    now_ms: float

    def feed(self, given: TapPacket) -> None: ...


class Relay:
    """One relay process. Records go out with `flush`, or one packet per 20 ms when `play` is used."""

    def __init__(self, observed: Fed, index: int = 0, epoch: int = 1) -> None:
        self._observed = observed
        self._builder = PacketBuilder(index, epoch)
        self._streams = 0
        self.packets: list[bytes] = []

    def add(self, at_ms: float, stream: int, kind: Kind, payload: bytes = b"") -> None:
        if self._builder.add(ns(at_ms), stream, kind, payload):
            self.flush()

    def flush(self, *, lose: bool = False) -> None:
        if len(self._builder):
            packet = self._builder.take()
            if lose:
                self._builder.dropped += 1
            else:
                self._observed.feed(TapPacket(packet))

    def opened(self) -> int:
        """The number of a stream that nothing was told of yet."""
        self._streams += 1
        return self._streams

    def request(self, at_ms: float, body: dict[str, Any] | None = None, path: str = CHAT, **head: Any) -> int:
        """A whole request, sent upstream at once; its stream id."""
        stream = self.opened()
        data = json.dumps({"model": "m", "stream": True, "messages": []} | (body or {})).encode()
        facts = RequestHead("POST", path, "application/json", content_length=len(data), **head)
        self.add(at_ms, stream, Kind.REQUEST, encode_payload(facts))
        self.add(at_ms, stream, Kind.REQUEST_BODY, data)
        self.add(at_ms, stream, Kind.REQUEST_END, len(data).to_bytes(8, "little"))
        self.add(at_ms, stream, Kind.SENT)
        return stream

    def response(self, at_ms: float, stream: int, status: int = 200, content_type: str = "text/event-stream") -> None:
        self.add(at_ms, stream, Kind.RESPONSE, encode_payload(ResponseHead(status, content_type)))

    def data(self, at_ms: float, stream: int, data: bytes) -> None:
        self.add(at_ms, stream, Kind.DATA, data)

    def end(self, at_ms: float, stream: int, finish: Finish = Finish.COMPLETE, status: int = 200) -> None:
        self.add(at_ms, stream, Kind.END, encode_payload(End(finish, status)))


def stream_tokens(relay: Relay, stream: int, times_ms: list[float]) -> None:
    """A response head shortly before the first token, then one token per time."""
    relay.response(times_ms[0] - 1, stream)
    for at_ms in times_ms:
        relay.data(at_ms, stream, chunk())
