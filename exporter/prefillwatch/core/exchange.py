"""One request and its answer as the tap reports them: record payloads in, ledger calls out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from prefillwatch.analysis.ledger import Ledger
from prefillwatch.analysis.requests import OTHER, Event, Lifecycle, ModelNames, Request, outcome
from prefillwatch.core.bodies import UNREAD_REASONS, HeldBody, RequestBodies
from prefillwatch.units import MS
from prefillwatch.wire.answer import AnswerReader, is_event_stream
from prefillwatch.wire.controls import control_of
from prefillwatch.wire.in_flight import Stage
from prefillwatch.wire.printable import printable
from prefillwatch.wire.recorded import ANSWER_FACTS, REQUEST_FACTS, RecordedReader, RecordedRequest, decode_request
from prefillwatch.wire.request import RequestFacts
from prefillwatch.wire.routes import GENERATING, IDLE, endpoint_of
from prefillwatch.wire.sender import clipped
from prefillwatch.wire.tap import End, Kind, RequestHead, ResponseHead, decode_payload
from prefillwatch.wire.trace_context import trace_parent

#: A count of more tokens is that of an answer that is over, and not of one that has begun.
_FIRST_COUNT: Final = 16

# Every request has these records; to look a member of an enum up takes longer than to compare it.
_REQUEST_BODY: Final = int(Kind.REQUEST_BODY)
_REQUEST_END: Final = int(Kind.REQUEST_END)
_SENT: Final = int(Kind.SENT)
_RESPONSE: Final = int(Kind.RESPONSE)

_NO_FACTS: Final = RequestFacts(endpoint="other")


class Exchange:
    """Keeps the reader of the answer and the books of the request in step.

    ``slot`` is the place of choice 0 in the token books once its first token came, else -1: with it the usual record,
    a read with tokens of one choice, needs no call into this class. A ``recorded`` one is given facts (`wire.recorded`)
    in place of texts.
    """

    __slots__ = (
        "_body",
        "_body_cut",
        "_body_size",
        "_label",
        "_ledger",
        "_names",
        "_read_ns",
        "_received",
        "_recorded",
        "_reported_each",
        "_streams",
        "facts",
        "head",
        "life",
        "lost_sight",
        "parts",
        "reader",
        "request",
        "slot",
        "status",
    )

    def __init__(
        self,
        rid: int,
        head: RequestHead,
        ledger: Ledger,
        names: ModelNames,
        bodies: RequestBodies,
        *,
        recorded: bool = False,
    ) -> None:
        self.head = head
        self._recorded = recorded
        self._ledger = ledger
        self._names = names
        self._body = HeldBody(bodies)
        self._body_size = 0
        self._body_cut = False  # bytes of it were lost
        self._received = False  # the request is complete
        self._streams = False  # the answer is an event stream
        self._read_ns = -1  # what the relay reported of this after a loss; -1: nothing
        self.facts = _NO_FACTS
        self._reported_each = False  # usage reported the tokens of each read
        self._label = names.admit("")
        self.life = Lifecycle(resumed=head.resumed)
        self.reader: AnswerReader | RecordedReader | None = None
        self.lost_sight = False  # the rest of the answer cannot be read, and the books know
        self.parts = bytearray()
        self.slot = -1
        self.status = 0
        endpoint = endpoint_of(head.path)
        posted = head.method == "POST"
        control = control_of(head.path) if posted else None
        self.request = Request(
            rid=rid,
            endpoint=endpoint,
            received_ns=0,
            model=names.number(self._label),
            generating=endpoint in GENERATING and posted,
            works=posted and control is None and endpoint not in GENERATING and endpoint not in IDLE,
            control=control or "",
            request_id=printable(head.request_id),
            trace=trace_parent(head.traceparent) if head.traceparent else None,
            ttft_target_ns=round(head.slo_ttft_ms * MS) if head.slo_ttft_ms else 0,
            tpot_target_ns=round(head.slo_tpot_ms * MS) if head.slo_tpot_ms else 0,
        )
        self._sent_by(head.tenant, head.priority)

        if head.resumed:  # what is seen from here on counts, but its first token may have passed
            ledger.received(self.request)
            self._catch_up(head)

    def _sent_by(self, tenant: str, priority: int | None) -> None:
        """What is said of its sender, if anybody wants to know: a recording may tell more than is asked for."""
        settings = self._ledger.settings
        if tenant and settings.max_tenants:
            self.request.tenant = tenant
        if priority is not None and settings.priorities:
            self.request.priority = clipped(priority)

    # --- After a loss ---

    @property
    def stage(self) -> Stage:
        """How far the books have got with it."""
        if self.status:
            return Stage.ANSWERED
        if self.request.sent_ns:
            return Stage.SENT
        return Stage.RECEIVED if self._received else Stage.RECEIVING

    def resumed(self, time_ns: int, head: RequestHead) -> None:
        """The relay reports how far it is, since the books have not got as far."""
        self.life.feed(Event.REPORTED_AGAIN, time_ns)
        self._catch_up(head)

    def _catch_up(self, head: RequestHead) -> None:
        request, ledger = self.request, self._ledger
        request.doubtful = not request.first_ns
        if head.stage < Stage.RECEIVED:
            return
        if not self._received:
            # Without its body, its size says roughly how long the prompt is; the answer will show whether it streams.
            self._received = self._body_cut = True
            self._body.let_go()
            request.received_ns, request.prompt_chars = head.received_ns, head.body_size
            request.text_only = request.streaming = False
            self._admit(self.facts.model)
            ledger.received(request)
        if head.stage >= Stage.SENT and not request.sent_ns:
            ledger.sent(request, head.received_ns)
        self._read_ns = head.read_ns
        if self.status:
            self._take_read(head.read_ns)

    def reported(self, time_ns: int, read_ns: int, *, blocked: bool) -> None:
        """What the relay's list of what is in flight says of it, where the books agree with that on how far it is."""
        request = self.request
        if blocked != bool(request.blocked_since_ns):
            request.block(read_ns if blocked and read_ns else time_ns, blocked=blocked)  # then nothing more is read
        self._take_read(read_ns)

    def _take_read(self, read_ns: int) -> None:
        if not read_ns or (self._streams and self.reader is not None and not self.lost_sight):
            self._ledger.last_read(self.request, read_ns)
        elif self.reader is not None:
            self._begun_unseen(read_ns)

    def skipped(self, time_ns: int, size: int) -> None:
        """Body bytes came that are not shown; ``size`` of them were left out for being too many."""
        if not self.status:
            self._cut_body()
        elif self.reader is not None:
            if not self.lost_sight:
                if size:
                    self.reader.skipped()
                self.hole()
            self._begun_unseen(time_ns)

    def _cut_body(self) -> None:
        self._body_cut = True
        self._body.cut()

    def _begun_unseen(self, time_ns: int) -> None:
        if self._streams:
            self._ledger.begun_unseen(self.request, time_ns)

    def record(self, kind: int, time_ns: int, payload: bytes) -> None:
        """Any record but those of the answer's body and the end."""
        if kind == _REQUEST_BODY:
            self._body.add(payload)
        elif kind == _REQUEST_END:
            self.request_end(time_ns, int.from_bytes(payload, "little"))
        elif kind == _SENT:
            self.sent(time_ns)
        elif kind == _RESPONSE:
            self.response(time_ns, decode_payload(_RESPONSE, payload, ResponseHead))
        elif kind == Kind.SKIPPED:
            self.skipped(time_ns, int.from_bytes(payload, "little"))
        elif kind in (Kind.BLOCKED, Kind.UNBLOCKED):
            self.request.block(time_ns, blocked=kind == Kind.BLOCKED)
        elif self._recorded and kind == REQUEST_FACTS:
            self._take_recorded(decode_request(payload))
        elif kind == ANSWER_FACTS and isinstance(self.reader, RecordedReader):
            self.reader.at_end(payload)

    # --- The request ---

    def request_end(self, time_ns: int, size: int) -> None:
        self.life.feed(Event.REQUEST_END, time_ns)
        request = self.request
        self._received = True
        request.received_ns = time_ns
        if request.generating:
            self._read_body(time_ns, size)
        self._admit(self.facts.model)
        self._ledger.received(request)

    def _read_body(self, time_ns: int, size: int) -> None:
        if not self._recorded and not self._body.ended:
            self._body_size = size
            self._take_body(self._body.read(self.head, size, time_ns))

    def _read_accepted(self, time_ns: int) -> None:
        """What was too much to read for somebody whom upstream might not have known."""
        facts = self._body.read_accepted(self.head, self._body_size, time_ns)
        if facts is not None:
            self._take_body(facts)
            self._admit(facts.model)
            self._ledger.read_again(self.request)

    def _take_body(self, facts: RequestFacts) -> None:
        request = self.request
        self.facts = facts
        # Of a prompt that cannot be read, or not all of it, the size of the body says roughly how long it is.
        known = facts.prompt_chars or 0
        request.prompt_chars = known if facts.complete else max(known, self._body_size)
        request.text_only = facts.complete and not facts.media
        request.streaming = bool(facts.stream)
        request.sequences = max(facts.prompts * facts.choices, 1)
        request.prompts = max(facts.prompts, 1)
        request.hides_thought = facts.hides_thought
        request.prefix = facts.prefix
        if facts.user or facts.priority is not None:
            self._sent_by(self.head.tenant or facts.user, facts.priority if self.head.priority is None else None)
        if facts.prompt_tokens is not None and facts.complete:
            request.prompt_tokens, request.prompt_exact = facts.prompt_tokens, True

    def _take_recorded(self, facts: RecordedRequest) -> None:
        """What its body said, when it was recorded."""
        request = self.request
        max_tokens = 0 if facts.no_tokens_due else None
        self.facts = RequestFacts(endpoint=request.endpoint, model=facts.model, max_tokens=max_tokens)
        request.prompt_chars = facts.prompt_chars
        request.text_only = facts.text_only
        request.streaming = facts.streaming
        request.sequences, request.prompts = facts.sequences, facts.prompts
        request.hides_thought = facts.hides_thought
        request.prefix = facts.prefix
        self._sent_by(facts.tenant, facts.priority)
        if facts.prompt_tokens is not None:
            request.prompt_tokens, request.prompt_exact = facts.prompt_tokens, True
        if facts.unread in UNREAD_REASONS and facts.unread != self.unread:
            self._body.leave_unread(facts.unread)
        if self.head.resumed:
            self._admit(facts.model)
            self._ledger.received(request)
        elif request.received_ns:  # read once more, when upstream had accepted it
            self._admit(facts.model)
            self._ledger.read_again(request)

    def _admit(self, name: str) -> None:
        """The label under which this request is counted from here on."""
        label = self._names.admit(name)
        self._names.release(self._label)
        self._label = label
        self.request.model = self._names.number(label)

    def sent(self, time_ns: int) -> None:
        self.life.feed(Event.SENT, time_ns)
        self._ledger.sent(self.request, time_ns)

    # --- The answer ---

    def response(self, time_ns: int, head: ResponseHead) -> None:
        if self.status:  # reported again for a new observer, but we are still the old one
            return
        self.life.feed(Event.RESPONSE, time_ns)
        self.status = head.status
        self._streams = is_event_stream(head.content_type)
        if not self.request.generating or not 200 <= head.status < 300:
            self._body.let_go()
            return
        self._read_accepted(time_ns)
        if self._streams:
            self._ledger.streams(self.request)
        elif self._body_cut or self.head.resumed:
            self.request.streaming = False
        self._learn_name(self.facts.model)
        if head.observed:
            self.reader = self._new_reader(head.content_type, head.content_encoding)
            self.lost_sight = False
            if self._read_ns >= 0:
                self._take_read(self._read_ns)

    def _new_reader(self, content_type: str, content_encoding: str = "") -> AnswerReader | RecordedReader:
        if self._recorded:
            return RecordedReader()
        return AnswerReader(self.request.endpoint, content_type, content_encoding)

    def _learn_name(self, name: str) -> None:
        """While upstream's list of models is not known, a name that it answers to is a good one."""
        if name and self._label != name:
            self._names.answered(name)
            self._admit(name)

    def _learn_from_answer(self, reader: AnswerReader | RecordedReader) -> None:
        """Some servers answer to any name, and their answer says which model it is of."""
        if reader.model and (not self.facts.model or self._label == OTHER):
            if self.facts.model:
                self._names.stands_for(self.facts.model, reader.model)
            self._learn_name(reader.model)

    def tokens(self, time_ns: int, events: int) -> None:
        """What a read completed, when it was not the usual token of a stream that is known already."""
        reader, request, ledger = self.reader, self.request, self._ledger
        if reader is None:
            return
        if reader.is_blind and not events:
            self._lose_sight(time_ns)
        if not self.life.decoding and (events or reader.others):
            self._first_tokens(time_ns, reader)
        unseen = not (reader.token_events or self.life.decoding or request.begun_ns)
        if unseen and 0 < (reader.completion_tokens or 0) <= _FIRST_COUNT:
            ledger.decodes_unseen(request, time_ns)
        if events:
            ledger.token(request, 0, time_ns, events, reader.chars_in_read, reader.tokens_in_read)
            self.slot = request.slots[0]
            if reader.tokens_in_read:
                self._reported_each = True
                ledger.tokens_in_read(request, reader.tokens_in_read, events)
        for choice, count in (reader.others or {}).items():
            ledger.token(request, choice, time_ns, count)
        if reader.prompt_tokens and not request.prompt_exact:
            ledger.sized(request, reader.prompt_tokens, reader.cached_tokens)
        if reader.over is not None or reader.finished:
            self._choices_over(reader, time_ns)

    def _choices_over(self, reader: AnswerReader | RecordedReader, time_ns: int) -> None:
        for choice in tuple(self.request.slots if reader.finished else reader.over or ()):
            self._ledger.choice_over(self.request, choice, time_ns)
        if 0 in self.request.over:
            self.slot = -1  # should it go on, that is no usual token

    def _lose_sight(self, time_ns: int) -> None:
        """What follows cannot be read; tokens that are not seen are no silence, and no wait."""
        self.lost_sight = True
        if self.slot >= 0:
            self.slot = -1
            self._ledger.hole(self.request)
        else:
            self._begun_unseen(time_ns)

    def _first_tokens(self, time_ns: int, reader: AnswerReader | RecordedReader) -> None:
        if not self.life.token(time_ns) or self.life.first_token_ns is None:
            self.request.received_ns = 0  # something was not seen: no TTFT
        if not self.request.request_id:
            self.request.request_id = printable(reader.response_id)
        self._learn_from_answer(reader)

    def hole(self) -> None:
        """Records of this exchange were lost."""
        self.life.feed(Event.HOLE, 0)
        self.parts.clear()
        if not self._received:
            self._cut_body()
        request = self.request
        if self.reader is None and request.generating and request.sent_ns:
            # The response head may have been among them; if not, it will come and replace this reader.
            kind = "text/event-stream" if request.streaming else "application/json"
            self.reader = self._new_reader(kind)
            self.lost_sight = False
        if self.reader is not None:
            self.reader.hole()
        self._ledger.hole(request)

    def unparsed(self) -> Mapping[str, int]:
        """What could not be read, by reason."""
        answer = self.reader.unparsed if self.reader is not None else {}
        return {**answer, "internal": answer.get("internal", 0) + 1} if self.facts.fault else answer

    @property
    def unread(self) -> str:
        """Why of the request's body no more than the size counts; empty: more does."""
        return self._body.unread

    def faults(self) -> list[str]:
        """Where errors of ours were."""
        return [fault for fault in (self.facts.fault, self.reader.fault if self.reader is not None else "") if fault]

    # --- The end ---

    def end(self, time_ns: int, end: End) -> None:
        self._body.let_go()
        self.life.feed(Event.END, time_ns)
        reader, request = self.reader, self.request
        error, terminal, tokens = None, False, request.events
        if reader is not None:
            reader.finish()
            error, terminal = reader.error, reader.finished
            tokens = max(tokens, reader.completion_tokens or 0)
            if not request.slots:
                self._learn_from_answer(reader)
            self._take_usage(reader)
        due = request.generating and self.facts.max_tokens != 0 and self._would_have_seen_tokens()
        result = outcome(end.finish, end.status or self.status, due, tokens, error, terminal)
        self._ledger.ended(request, time_ns, result)

    def _would_have_seen_tokens(self) -> bool:
        """What cannot be seen from an answer is not held against it."""
        return self.reader is not None and self.reader.shows_text and not self.head.resumed

    def _take_usage(self, reader: AnswerReader | RecordedReader) -> None:
        request = self.request
        # Some servers report 0 where they do not count: tokens that were seen are better evidence.
        if reader.prompt_tokens:
            self._ledger.sized(request, reader.prompt_tokens, reader.cached_tokens)
        request.generated = reader.completion_tokens or (None if request.events else reader.completion_tokens)
        request.events_reported = self._reported_each

    def release(self) -> None:
        """The exchange is out of the books: its model's label is free again."""
        self._names.release(self._label)
