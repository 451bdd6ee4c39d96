"""What a recording keeps in place of texts: the facts that requests and answers were read for, and nothing else.

A record of the tap that carries a text has a stand-in here, under a kind of its own or as another payload of the same
kind. In no form of it is there room for a prompt or an answer: counts, times, names of models, ids, keyed digests.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from prefillwatch.analysis.requests import Request
from prefillwatch.observer.bodies import UNREAD_REASONS
from prefillwatch.observer.exchange import Exchange
from prefillwatch.wire.answer import AnswerReader
from prefillwatch.wire.request import RequestFacts
from prefillwatch.wire.routes import endpoint_of, path_of
from prefillwatch.wire.tap import RequestHead, ResponseHead

#: Beside the kinds of the tap. Each comes right before the record that it belongs to: the end of the request (or
#: the head of the answer, where the body was read only then), the end of the exchange.
REQUEST_FACTS: Final = 64
ANSWER_FACTS: Final = 65

_STREAM: Final = "text/event-stream"
_JSON: Final = "application/json"


class ToldRequest(msgspec.Struct, frozen=True, array_like=True):
    """What a request's body said."""

    model: str
    prompt_chars: int
    text_only: bool
    streaming: bool
    prefix: tuple[int, ...]  # keyed digests; the key was the recording process's own and is gone
    prompt_tokens: int | None
    no_tokens_due: bool
    sequences: int = 1
    unread: str = ""  # why only the size of the body counts


class ToldRead(msgspec.Struct, frozen=True, array_like=True):
    """What one read of an answer brought, where it was more than one event of choice 0 with so many characters.

    ``others`` are events by choice. What does not change is told with the first token and when it changed.
    """

    events: int
    chars: int
    tokens: int = 0
    others: dict[int, int] | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    response_id: str = ""
    model: str = ""
    blind: bool = False  # from here on the answer could not be read
    over: tuple[int, ...] = ()  # choices that said that they are done


class ToldAnswer(msgspec.Struct, frozen=True, array_like=True):
    """What is known of an answer at its end."""

    prompt_tokens: int | None
    cached_tokens: int | None
    completion_tokens: int | None
    error: str | None  # a short code
    finished: bool
    unparsed: dict[str, int]
    shows_text: bool = True  # see AnswerReader


#: The payload of a DATA record: the characters of one event, or the whole.
Told: TypeAlias = int | ToldRead

_encoder = msgspec.msgpack.Encoder()
_requests = msgspec.msgpack.Decoder(ToldRequest)
_reads: msgspec.msgpack.Decoder[Told] = msgspec.msgpack.Decoder(Told)
_answers = msgspec.msgpack.Decoder(ToldAnswer)

#: The usual payload, ready made: one event with so many characters.
ONE_EVENT: Final = tuple(_encoder.encode(chars) for chars in range(128))


def one_event(chars: int) -> bytes:
    return ONE_EVENT[chars] if chars < len(ONE_EVENT) else _encoder.encode(chars)


def request_head(head: RequestHead) -> RequestHead:
    """The endpoint instead of the path: what is in a path or a content type beyond that is nobody's business."""
    return RequestHead(
        method=head.method if head.method in ("GET", "POST") else "",
        path=path_of(endpoint_of(head.path)),
        request_id=head.request_id,
        slo_ttft_ms=head.slo_ttft_ms,
        slo_tpot_ms=head.slo_tpot_ms,
        resumed=head.resumed,
        received_ns=head.received_ns,
        stage=head.stage,
        body_size=head.body_size,
        read_ns=head.read_ns,
    )


def response_head(head: ResponseHead) -> ResponseHead:
    media = head.content_type.partition(";")[0].strip().lower()
    kind = _STREAM if media == _STREAM else _JSON if "json" in media else ""
    return ResponseHead(head.status, kind, observed=head.observed, injected=head.injected)


def request_facts(exchange: Exchange, most_digests: int | None = None) -> bytes:
    """``most_digests`` of its beginnings; None: all."""
    request = exchange.request
    return _encoder.encode(
        ToldRequest(
            model=exchange.facts.model,
            prompt_chars=request.prompt_chars,
            text_only=request.text_only,
            streaming=request.streaming,
            prefix=request.prefix[:most_digests],
            prompt_tokens=request.prompt_tokens if request.prompt_exact else None,
            no_tokens_due=exchange.facts.max_tokens == 0,
            sequences=request.sequences,
            unread=exchange.unread,
        )
    )


def read_facts(reader: AnswerReader, events: int, over: tuple[int, ...] = ()) -> bytes:
    told = ToldRead(
        events,
        reader.chars_in_read,
        reader.tokens_in_read,
        reader.others,
        reader.prompt_tokens,
        reader.cached_tokens,
        reader.response_id,
        reader.model,
        reader.is_blind,
        over,
    )
    return _encoder.encode(told)


def answer_facts(reader: AnswerReader) -> bytes:
    told = ToldAnswer(
        reader.prompt_tokens,
        reader.cached_tokens,
        reader.completion_tokens,
        reader.error,
        reader.finished,
        reader.unparsed,
        reader.shows_text,
    )
    return _encoder.encode(told)


class ToldReader(AnswerReader):
    """Reads what `read_facts` and `answer_facts` wrote, in the place of a reader of answers."""

    __slots__ = ("_blind", "_shows_text")

    def __init__(self, endpoint: str) -> None:
        super().__init__(endpoint, "")
        self._shows_text = True
        self._blind = False

    @property
    def is_blind(self) -> bool:
        return self._blind

    @property
    def shows_text(self) -> bool:
        return self._shows_text

    def feed(self, data: bytes) -> int:
        told = _reads.decode(data)
        if isinstance(told, int):
            self.chars_in_read, self.tokens_in_read, self.others = told, 0, None
            self.token_events += 1
            return 1
        self.chars_in_read, self.tokens_in_read, self.others = told.chars, told.tokens, told.others
        self.token_events += told.events
        self._blind = told.blind
        self.over = set(told.over) or None
        self.identify(told.response_id, told.model)
        self.add_usage(told.prompt_tokens, None, told.cached_tokens)
        return told.events

    def at_end(self, data: bytes) -> None:
        told = _answers.decode(data)
        self.add_usage(told.prompt_tokens, told.completion_tokens, told.cached_tokens)
        self.error, self.finished, self._unparsed = told.error, told.finished, told.unparsed
        self._shows_text = told.shows_text

    def finish(self) -> None:
        """All was told by `at_end`."""

    def hole(self) -> None:
        """What was lost was never recorded, either."""


class ToldExchange(Exchange):
    """An exchange whose texts are replaced by facts."""

    __slots__ = ()

    def record(self, kind: int, time_ns: int, payload: bytes) -> None:
        if kind == REQUEST_FACTS:
            self._take_facts(_requests.decode(payload))
        elif kind == ANSWER_FACTS:
            if isinstance(self.reader, ToldReader):
                self.reader.at_end(payload)
        else:
            super().record(kind, time_ns, payload)

    def _take_facts(self, told: ToldRequest) -> None:
        request = self.request
        self.facts = RequestFacts(
            endpoint=request.endpoint, model=told.model, max_tokens=0 if told.no_tokens_due else None
        )
        _apply(told, request)
        if told.unread in UNREAD_REASONS and told.unread != self.unread:
            self._body.leave_unread(told.unread)
        if self.head.resumed:
            self._admit(told.model)
            self._ledger.received(request)
        elif request.received_ns:  # read once more, when upstream had accepted it
            self._admit(told.model)
            self._ledger.read_again(request)

    def _read_body(self, time_ns: int, size: int) -> None:
        """What it said was told already."""

    def _new_reader(self, content_type: str, content_encoding: str = "") -> AnswerReader:  # noqa: ARG002
        return ToldReader(self.request.endpoint)


def _apply(told: ToldRequest, request: Request) -> None:
    request.prompt_chars = told.prompt_chars
    request.text_only = told.text_only
    request.streaming = told.streaming
    request.sequences = told.sequences
    request.prefix = told.prefix
    if told.prompt_tokens is not None:
        request.prompt_tokens, request.prompt_exact = told.prompt_tokens, True
