"""What a recording keeps in place of texts: the facts that requests and answers were read for, and nothing else.

A record of the tap that carries a text has a stand-in here, under a kind of its own or as another payload of the same
kind. In no form of it is there room for a prompt or an answer: counts, times, names of models, ids, keyed digests.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from prefillwatch.wire.answer import AnswerReader, is_event_stream
from prefillwatch.wire.facts import AnswerFacts
from prefillwatch.wire.routes import endpoint_of, path_of
from prefillwatch.wire.tap import RequestHead, ResponseHead

#: Beside the kinds of the tap. Each comes right before the record that it belongs to: the end of the request (or
#: the head of the answer, where the body was read only then), the end of the exchange.
REQUEST_FACTS: Final = 64
ANSWER_FACTS: Final = 65

_STREAM: Final = "text/event-stream"
_JSON: Final = "application/json"


class RecordedRequest(msgspec.Struct, frozen=True, array_like=True):
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
    prompts: int = 1
    # Where a recording was asked to keep them:
    tenant: str = ""
    priority: int = 0
    hides_thought: bool = False


class RecordedRead(msgspec.Struct, frozen=True, array_like=True):
    """What one read of an answer brought, where it was more than one event of choice 0 with so many characters.

    ``others`` are events by choice. What does not change is said with the first token and when it changed.
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
    counted: int | None = None  # tokens so far by usage, in a read without any


class RecordedAnswer(msgspec.Struct, frozen=True, array_like=True):
    """What is known of an answer at its end."""

    prompt_tokens: int | None
    cached_tokens: int | None
    completion_tokens: int | None
    error: str | None  # a short code
    finished: bool
    unparsed: dict[str, int]
    shows_text: bool = True  # see AnswerReader


#: The payload of a DATA record: the characters of one event, or the whole.
Read: TypeAlias = int | RecordedRead

encode = msgspec.msgpack.Encoder().encode
#: Raises msgspec.DecodeError, as the readers below do.
decode_request = msgspec.msgpack.Decoder(RecordedRequest).decode
_reads: msgspec.msgpack.Decoder[Read] = msgspec.msgpack.Decoder(Read)
_answers = msgspec.msgpack.Decoder(RecordedAnswer)

#: The most frequent payload, ready made: one event with so many characters.
ONE_EVENT: Final = tuple(encode(chars) for chars in range(128))


def request_head(head: RequestHead, *, senders: bool = False) -> RequestHead:
    """The endpoint instead of the path: what is in a path or a content type beyond that is not recorded. Names of
    tenants and priorities are where the recording was asked to keep ``senders``."""
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
        tenant=head.tenant if senders else "",
        priority=head.priority if senders else None,
    )


def response_head(head: ResponseHead) -> ResponseHead:
    """The kind of answer instead of its content type."""
    kind = _STREAM if is_event_stream(head.content_type) else _JSON if "json" in head.content_type.lower() else ""
    return ResponseHead(head.status, kind, observed=head.observed, injected=head.injected)


def read_facts(reader: AnswerReader | RecordedReader, events: int, over: tuple[int, ...]) -> bytes:
    """Of the read at hand, with so many events of choice 0; the choices in ``over`` are done."""
    return encode(
        RecordedRead(
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
            None if reader.token_events else reader.completion_tokens,
        )
    )


def answer_facts(reader: AnswerReader | RecordedReader) -> bytes:
    """Of an answer that is over."""
    return encode(
        RecordedAnswer(
            reader.prompt_tokens,
            reader.cached_tokens,
            reader.completion_tokens,
            reader.error,
            reader.finished,
            reader.unparsed,
            reader.shows_text,
        )
    )


class RecordedReader(AnswerFacts):
    """Reads what `read_facts` and `answer_facts` wrote, in the place of an `AnswerReader`."""

    __slots__ = ("is_blind", "shows_text", "unparsed")

    #: Nothing here is worth a fast path, and no fault of ours was recorded.
    usual: Final = None
    fault: Final = ""

    def __init__(self) -> None:
        super().__init__()
        self.is_blind = False
        self.shows_text = True
        self.unparsed: dict[str, int] = {}

    def feed(self, data: bytes) -> int:
        """One read; the number of token events of choice 0 in it. Raises msgspec.DecodeError."""
        read = _reads.decode(data)
        if isinstance(read, int):
            self.chars_in_read, self.tokens_in_read, self.others = read, 0, None
            self.token_events += 1
            return 1
        self.chars_in_read, self.tokens_in_read, self.others = read.chars, read.tokens, read.others
        self.token_events += read.events
        self.is_blind = read.blind
        self.over = set(read.over) or None
        self.identify(read.response_id, read.model)
        self.add_usage(read.prompt_tokens, read.counted, read.cached_tokens)
        return read.events

    def at_end(self, data: bytes) -> None:
        """What is known of the whole answer. Raises msgspec.DecodeError."""
        answer = _answers.decode(data)
        self.add_usage(answer.prompt_tokens, answer.completion_tokens, answer.cached_tokens)
        self.error, self.finished, self.unparsed = answer.error, answer.finished, answer.unparsed
        self.shows_text = answer.shows_text

    def finish(self) -> None:
        """`at_end` has said all."""

    def skipped(self) -> None:
        """What was left out was never recorded, either."""

    def hole(self) -> None:
        """Nor was what was lost."""
