"""One answer as it comes in: bytes of each read in, token events and facts out.

The usual read brings one event that differs from the one before in its text alone, and is recognised without decoding
it (see `template.Constant`); everything else is taken apart properly. Both ways must give the same facts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Final

from prefillwatch.wire import chat, cohere, completions, messages, native, responses
from prefillwatch.wire.facts import AnswerFacts
from prefillwatch.wire.faults import place_of
from prefillwatch.wire.inflate import Identity, InflateError, Inflater, Spent, inflater_for
from prefillwatch.wire.ndjson import LineParser
from prefillwatch.wire.reasons import UnparsedReason
from prefillwatch.wire.sse import EventParser
from prefillwatch.wire.structure import has_more_marks
from prefillwatch.wire.template import NO_STRING, Constant, Template, Tried, decode_string, learn
from prefillwatch.wire.tolerant import UnreadableError

#: A JSON answer beyond this is not read.
MAX_ANSWER_BYTES: Final = 16 * 1024 * 1024
#: After so many bytes of an event stream without one event that could be read, nothing is expected of it any more. More
#: than the largest event that a server was seen to send: the log probabilities of a prompt of 32,000 tokens.
MAX_SENSELESS_BYTES: Final = 8 * 1024 * 1024
#: What one read of a compressed answer may inflate to.
MAX_INFLATED_BYTES: Final = 8 * 1024 * 1024

#: What all reads of a compressed answer may inflate to: so much, and so many times the bytes that came. Events with the
#: same frame around a token each are packed to a twentieth or a fiftieth.
_FIRST_INFLATED_BYTES: Final = 4 * 1024 * 1024
_MOST_INFLATED_RATIO: Final = 256
#: A JSON answer with more values than this is not read; one with the 20 likeliest tokens at each of 10,000 places has
#: two thirds of them.
_MOST_ANSWER_MARKS: Final = 2_000_000

_DONE: Final = b"[DONE]"
_MAX_TEMPLATES: Final = 8
_MAX_LESSONS: Final = 16

EventReader = Callable[[bytes, bytes, AnswerFacts], None]
DocumentReader = Callable[[bytes, AnswerFacts], None]

_EVENT_READERS: Final[dict[str, EventReader]] = {
    "chat_completions": chat.read_event,
    "completions": completions.read_event,
    "responses": responses.read_event,
    "messages": messages.read_event,
    "cohere_chat": cohere.read_event,
    "native": native.read_event,
    "audio": chat.read_event,
}
_DOCUMENT_READERS: Final[dict[str, DocumentReader]] = {
    "chat_completions": chat.read_answer,
    "completions": completions.read_answer,
    "embeddings": completions.read_answer,
    "pooling": completions.read_answer,
    "score": completions.read_answer,
    "rerank": completions.read_answer,
    "classify": completions.read_answer,
    "responses": responses.read_answer,
    "messages": messages.read_answer,
    "cohere_chat": cohere.read_answer,
    "native": native.read_answer,
    "audio": chat.read_answer,
}
#: Shapes of events that hold for every stream of an endpoint.
_TRIED: Final = {endpoint: Tried() for endpoint in _EVENT_READERS}
#: Of answers that come event by event, and what cuts them into events.
_STREAMS: Final[dict[str, Callable[[], EventParser | LineParser]]] = {
    "text/event-stream": EventParser,
    "application/x-ndjson": LineParser,
}


def is_event_stream(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() in _STREAMS


class AnswerReader(AnswerFacts):
    """Reads the answer of one exchange. Nothing that upstream sends makes it raise; `unparsed` counts what it left out.

    An answer that is neither an event stream nor JSON, or whose endpoint generates nothing, is let pass unread.
    """

    __slots__ = (
        "_document",
        "_document_size",
        "_frame_length",
        "_head",
        "_idle",
        "_inflatable",
        "_inflater",
        "_lessons",
        "_newest",
        "_parser",
        "_read_document",
        "_read_event",
        "_senseless",
        "_single_text",
        "_tail",
        "_templates",
        "_tried",
        "_unparsed",
        "fault",
    )

    def __init__(self, endpoint: str, content_type: str, content_encoding: str = "", *, templates: bool = True) -> None:
        """`templates=False` takes every event the long way; the facts are the same."""
        super().__init__()
        media = content_type.partition(";")[0].strip().lower()
        self._read_event = _EVENT_READERS.get(endpoint) if media in _STREAMS else None
        self._tried = _TRIED.get(endpoint)
        is_json = media == "application/json" or media.endswith("+json")
        self._read_document = _DOCUMENT_READERS.get(endpoint) if is_json else None
        self._parser = _STREAMS.get(media, EventParser)()
        self._document: list[bytes] = []
        self._document_size = 0
        self._senseless = 0  # bytes since an event could be read
        self._unparsed: dict[str, int] = {}
        self.fault = ""  # where an error of ours was, if there was one
        self._inflater: Inflater | None = None
        self._inflatable = _FIRST_INFLATED_BYTES  # by what came so far
        self._lessons = _MAX_LESSONS if templates and isinstance(self._parser, EventParser) else 0
        self._templates: list[Template] = []
        self._idle = False  # between events, so that a template may be tried
        # The newest constant template of choice 0; and spread out for the usual read, what stands around its string.
        self._newest: Constant | None = None
        self._head = b"\n"  # no event starts like this
        self._tail = b""
        self._frame_length = -1
        self._single_text = 0  # a read with a shorter string cannot hold two such events
        if content_encoding and (self._read_event is not None or self._read_document is not None):
            try:
                inflater = inflater_for(content_encoding, MAX_INFLATED_BYTES)
                self._inflater = None if isinstance(inflater, Identity) else inflater
            except InflateError:
                self._stop(UnparsedReason.ENCODING)

    @property
    def events(self) -> int:
        """Token events so far, of all choices."""
        return self.token_events

    @property
    def usual(self) -> Constant | None:
        """What the next read most likely is: this shape with other text, one token event of choice 0. None: unknown.

        A caller that recognises such a read need not `feed` it; counting it in `token_events` is all.
        """
        return self._newest if self._idle else None

    @property
    def comments(self) -> int:
        return self._parser.comments

    @property
    def shows_text(self) -> bool:
        """Whether an answer with text would have shown it: as events, all of them read, or in a document by usage."""
        return self.complete and (self._read_event is not None or self.completion_tokens is not None)

    @property
    def is_blind(self) -> bool:
        """Whether what follows will not be read either, tokens or not."""
        return (self._read_event is None and self._read_document is None) or isinstance(self._inflater, Spent)

    @property
    def unparsed(self) -> dict[str, int]:
        """What could not be read, by reason: `too_long`, `json`, `utf8`, `encoding`, `hole`, `no_events`,
        `internal`."""
        given_up = self._parser.given_up
        if not given_up:
            return self._unparsed
        return {**self._unparsed, "too_long": self._unparsed.get("too_long", 0) + given_up}

    def feed(self, data: bytes) -> int:
        """Take the body bytes of one read; the number of token events of choice 0 that it completed."""
        if self._idle:
            string = data.removeprefix(self._head).removesuffix(self._tail)
            length = len(string)
            if len(data) - length == self._frame_length and length < self._single_text:
                try:
                    chars = len(decode_string(string))
                except NO_STRING:
                    chars = 0
                if chars:
                    self.chars_in_read = chars
                    self.tokens_in_read = 0
                    self.others = self.others_tokens = None
                    self.token_events += 1
                    if self.over is not None:
                        self.over.discard(0)
                    return 1
        return self._feed(data)

    def finish(self) -> None:
        """The answer is over: read what only its end makes readable. Token events come from `feed` alone."""
        self._begin_read()
        try:
            self._finish()
        except Exception as error:
            self._give_up(error)

    def _finish(self) -> None:
        if self._read_document is not None and self._document:
            document = b"".join(self._document)
            self._document.clear()
            if has_more_marks(document, _MOST_ANSWER_MARKS):
                self._stop(UnparsedReason.TOO_LONG)
                return
            try:
                self._read_document(document, self)
            except UnreadableError as error:
                self._count(error.reason)
                self.complete = False
        elif self._read_event is not None:
            # A last event without its blank line counts for nothing, but usage or [DONE] in it are worth knowing.
            token_events = self.token_events
            for name, payload in self._parser.finish():
                if payload.strip() == _DONE:
                    self.finished = True
                    continue
                with contextlib.suppress(UnreadableError):
                    self._read_event(name, payload, self)
            self.token_events = token_events
            self._begin_read()

    def skipped(self) -> None:
        """Bytes of the answer were left out here for being too many."""
        if self._read_document is not None:
            self._stop(UnparsedReason.TOO_LONG)
            return
        if UnparsedReason.TOO_LONG not in self.unparsed:
            self._count(UnparsedReason.TOO_LONG)
        self.hole()

    def hole(self) -> None:
        """Bytes of the answer were lost here. What follows is still read, but counts are lower bounds from now on."""
        self._lose()
        self._idle = False
        if self._read_event is not None and self._inflater is None:
            self._parser.resync()
        elif self._read_event is not None or self._read_document is not None:
            self._stop(UnparsedReason.HOLE)

    def _feed(self, data: bytes) -> int:
        self._begin_read()
        try:
            self._read(data)
        except Exception as error:
            self._give_up(error)
        return self._events_in_read

    def _read(self, data: bytes) -> None:
        if self._inflater is not None:
            data = self._inflate(self._inflater, data)
        if self._idle and self._templates:
            data = self._skim(data)
            if not data:
                return
        if self._read_event is not None:
            self._feed_events(data)
        elif self._read_document is not None:
            self._keep(data)

    def _inflate(self, inflater: Inflater, data: bytes) -> bytes:
        try:
            inflated = inflater.feed(data)
            self._inflatable += _MOST_INFLATED_RATIO * len(data) - len(inflated)
            if self._inflatable < 0:
                raise InflateError("too much")
            return inflated
        except InflateError as error:
            self._count(UnparsedReason.ENCODING)
            self.complete = False
            self._inflater = Spent()
            return error.inflated

    def _feed_events(self, data: bytes) -> None:
        if self._lessons and not self._templates and self._take_first(data):
            return
        events_before, comments_before = self.token_events, self._parser.comments
        self._senseless += len(data)
        for name, payload in self._parser.feed(data):
            self._event(name, payload)
        if self._parser.comments > comments_before:
            self._senseless = 0
        elif self._senseless > MAX_SENSELESS_BYTES:
            self._stop(UnparsedReason.NO_EVENTS)
            return
        self._idle = self._parser.idle
        if self._lessons and self._idle and self.token_events > events_before:
            self._learn(data)

    def _take_first(self, data: bytes) -> bool:
        """Take the first event with text, if its shape is known from other streams and tells no more than that."""
        parser = self._parser
        if not (isinstance(parser, EventParser) and (self._idle or parser.untouched) and self._tried is not None):
            return False
        same = self._tried.find(data)
        if same is None or not same.plain:
            return False
        parser.begin()
        self._idle = True
        self._senseless = 0
        self.identify(same.response_id, same.model)
        self.add_tokens(same.shape.choice, same.chars)
        self.continuous = self.continuous and same.continuous
        self._lessons -= 1
        self._keep_template(same.shape)
        return True

    def _skim(self, data: bytes) -> bytes:
        """Take the events at the front that have a known shape; what is left."""
        position = 0
        size = len(data)
        while position < size:
            for template in self._templates:
                end = template.take(data, position, self)
                if end > 0:
                    position = end
                    break
            else:
                return data[position:]
        return b""

    def _learn(self, data: bytes) -> None:
        """Learn the shape of the last event of a read. If its start came with an earlier read, no shape is found."""
        self._lessons -= 1
        blank = b"\r\n\r\n" if data.endswith(b"\r\n\r\n") else b"\n\n"
        before = data.rfind(blank, 0, -len(blank))
        assert self._tried is not None
        template = learn(data[before + len(blank) :] if before >= 0 else data, self._probe, self._tried)
        if template is not None:
            self._keep_template(template)

    def _keep_template(self, template: Template) -> None:
        # A head that comes back with another tail has something in it that changes all the time: keep the newest only.
        others = [other for other in self._templates if other.head != template.head]
        self._templates = [template, *others[: _MAX_TEMPLATES - 1]]
        if isinstance(template, Constant) and template.choice == 0 and self._inflater is None:
            self._newest = template
            self._head, self._tail = template.head[:-1], template.tail[1:]  # the quotes are of the string
            self._frame_length = len(self._head) + len(self._tail)
            self._single_text = template.head_length + template.tail_length + 2

    def _probe(self, block: bytes) -> AnswerFacts:
        """The facts of one block, read the long way on its own."""
        assert self._read_event is not None
        facts = AnswerFacts()
        parser = EventParser()
        parser.feed(b"\n")  # past the start of a stream, where a byte-order mark would be taken off
        events = parser.feed(block)
        facts.complete = len(events) == 1 and parser.idle and not parser.comments
        with contextlib.suppress(UnreadableError):
            for name, payload in events:
                self._read_event(name, payload, facts)
        return facts

    def _event(self, name: bytes, payload: bytes) -> None:
        if not payload:
            return
        if payload.strip() == _DONE:
            self.finished = True
            return
        assert self._read_event is not None
        try:
            self._read_event(name, payload, self)
            self._senseless = 0
        except UnreadableError as error:
            self._count(error.reason)

    def _keep(self, data: bytes) -> None:
        self._document_size += len(data)
        if self._document_size > MAX_ANSWER_BYTES:
            self._stop(UnparsedReason.TOO_LONG)
        else:
            self._document.append(data)

    def _give_up(self, error: Exception) -> None:
        """A fault of ours costs what is left of this answer, not the figures of all others."""
        self.fault = place_of(error)
        self._stop(UnparsedReason.INTERNAL)

    def _stop(self, reason: UnparsedReason) -> None:
        """Give the rest of this answer up."""
        self._count(reason)
        self.complete = False
        self._idle = False
        self._read_event = self._read_document = None
        self._document.clear()
        self._inflater = None

    def _count(self, reason: UnparsedReason) -> None:
        word = reason.value
        self._unparsed[word] = self._unparsed.get(word, 0) + 1
