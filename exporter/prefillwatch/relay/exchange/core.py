"""What one exchange does: events in, commands out. No socket, no loop, no clock; times are handed in.

Every method is an event of the table in `state`, or several, and gives the commands that follow from it. The driver
carries them out in order and reports what comes of it as the next event.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from prefillwatch.relay import injection
from prefillwatch.relay.answer import Answer
from prefillwatch.relay.error_answers import error_answer
from prefillwatch.relay.errors import HeadError, MessageError
from prefillwatch.relay.exchange.commands import (
    Begin,
    Commands,
    Connect,
    Farewell,
    Leave,
    Over,
    RestInjection,
    Tell,
    ToClient,
)
from prefillwatch.relay.exchange.state import HELD_UP, TRANSITIONS, Event, ExchangeStateError, State
from prefillwatch.relay.forwarding import interim_head
from prefillwatch.relay.http_head import MAX_RESPONSE_HEAD, Request, Response, end_of_head, parse_response
from prefillwatch.relay.observed_head import Sender, observed_request, observed_response
from prefillwatch.relay.repeating import Repeat, repeat_of
from prefillwatch.wire.in_flight import BLOCKED, Stage
from prefillwatch.wire.reasons import RelayReason
from prefillwatch.wire.routes import GENERATING, endpoint_of
from prefillwatch.wire.tap import End, Finish, Kind, RequestHead, ResponseHead

#: What the observer gets to see of a request or of a JSON answer.
OBSERVED_BYTES: Final = 8 * 2**20
_ARE_YOU_THERE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
#: Interim heads that one call takes; each is sent on by itself.
_MOST_INTERIM: Final = 16
_REFUSALS: Final = (400, 422)


class Addition(enum.Enum):
    """What we have added to a request."""

    NOTHING = enum.auto()
    USAGE = enum.auto()  # it asks for usage
    REFUSED = enum.auto()  # nothing any more: upstream did not like it


@dataclass(slots=True)
class Policy:
    """What holds for all exchanges of a relay.

    ``inject_usage``: requests are made to ask for usage. ``draining``: no client's connection is kept any more.
    ``wall_clock`` gives Unix seconds, for the dates of our own answers. ``sender`` tells who sent a request; None:
    nobody wants to know.
    """

    inject_usage: bool = False
    draining: bool = False
    wall_clock: Callable[[], float] = lambda: 0.0
    sender: Sender | None = None


class ExchangeCore:
    """See the module. ``received_ns`` is when the request was complete, ``answer`` the answer once its head is."""

    __slots__ = (
        "_addition", "_body_size", "_has_heads", "_head", "_head_searched", "_observed", "_policy", "_repeat",
        "_tapped_body", "_tapped_request", "_tapped_response", "_tapped_sent", "answer", "answered_ns", "received_ns",
        "request", "state",
    )  # fmt: skip

    def __init__(self, request: Request, policy: Policy) -> None:
        generating = request.method == b"POST" and endpoint_of(request.path) in GENERATING
        self.request = request
        self.state = State.RECEIVING
        self.answer: Answer | None = None
        self.received_ns = 0
        self.answered_ns = 0  # a later read brought bytes of the answer's body
        self._body_size = 0
        self._tapped_sent = False
        self._policy = policy
        self._observed = generating
        self._repeat = repeat_of(request)
        self._addition = Addition.NOTHING
        self._tapped_body = 0
        self._tapped_request = RequestHead("", "")
        self._tapped_response: ResponseHead | None = None
        self._head = bytearray()
        self._head_searched = 0
        self._has_heads = False

    def _fire(self, event: Event) -> None:
        """Go to the next state. Raises ExchangeStateError, and changes nothing, when the table has none."""
        state = TRANSITIONS.get((self.state, event))
        if state is None:
            raise ExchangeStateError(event, self.state)
        self.state = state

    # --- The request ---

    def open(self, first_ns: int) -> Commands:
        """Comes first, once. ``first_ns`` is when the first byte of the request was read."""
        shown = OBSERVED_BYTES if self._observed else 0
        self._tapped_request = observed_request(self.request, shown, self._policy.sender)
        return [Tell(first_ns, Kind.REQUEST, self._tapped_request)]

    def body(self, payload: bytes, now: int) -> Commands:
        """Bytes of the request's body, without transfer coding."""
        self._fire(Event.BODY)
        if not self._observed or not payload or self._tapped_body >= OBSERVED_BYTES:
            return []
        shown = payload[: OBSERVED_BYTES - self._tapped_body]
        self._tapped_body += len(shown)
        return [Tell(now, Kind.REQUEST_BODY, shown)]

    def complete(self, size: int, now: int) -> Commands:
        """The last byte of the request was read; its body has ``size`` bytes."""
        self._fire(Event.REQUEST_COMPLETE)
        self.received_ns = now
        self._body_size = size
        return [
            Tell(now, Kind.REQUEST_END, size.to_bytes(8, "little")),
            Connect(fresh=self._repeat is Repeat.NEVER, inject=self._policy.inject_usage and self._observed),
        ]

    def refuse(self, status: int, reason: RelayReason, message: str, now: int) -> Commands:
        """Answer the request without upstream."""
        self._fire(Event.REFUSED)
        return self._error_answer(Finish.REJECTED, status, reason, message, now)

    # --- Towards upstream ---

    def connected(self, *, injected: bool) -> Commands:
        """There is a connection, and sending begins. ``injected``: usage is asked for."""
        self._fire(Event.CONNECTED)
        if injected:
            self._addition = Addition.USAGE
        elif self._addition is Addition.USAGE:
            self._addition = Addition.NOTHING
        return []

    def unreachable(self, reason: RelayReason, now: int) -> Commands:
        """There is no connection to be had."""
        self._fire(Event.UNREACHABLE)
        if reason is RelayReason.NO_DESCRIPTORS:  # upstream has no part in it
            return self._error_answer(Finish.REJECTED, 503, reason, _NO_DESCRIPTORS, now)
        message = _UNREACHABLE.get(reason, _NO_ANSWER)
        return self._error_answer(Finish.UPSTREAM_UNREACHABLE, 502, reason, message, now)

    def sent(self, sent_ns: int) -> Commands:
        """All of the request was handed over."""
        self._fire(Event.SENT)
        if self.answer is not None:  # reported no more once it is answered
            return []
        self._tapped_sent = True
        return [Tell(sent_ns, Kind.SENT)]

    # --- From upstream ---

    @property
    def is_behind(self) -> bool:
        """Whether more was read than one turn of the loop has time for: call `read` again, without new bytes."""
        return self._has_heads if self.answer is None else self.answer.is_behind

    def read(self, data: bytes, now: int, *, may_resend: bool = True) -> Commands:
        """Bytes came from upstream. ``may_resend``: the request as it came from the client is still there."""
        out: Commands = []
        try:
            if self.answer is None:
                self._take_heads(data, now, out, may_resend)
            else:
                self._fire(Event.DATA)
                self._pass_on(self.answer, self.answer.feed(data), now, out)
        except MessageError as error:
            self._fire(Event.MALFORMED)
            out += self._fail(502, RelayReason.MALFORMED, f"Upstream's answer is not HTTP/1.1: {error}", now)
        return out

    def _take_heads(self, data: bytes, now: int, out: Commands, may_resend: bool) -> None:
        """Interim heads and the final one, as far as they are there."""
        self._fire(Event.BYTES)
        head = self._head
        head += data
        left = _MOST_INTERIM
        while (end := end_of_head(head, self._head_searched)) >= 0:
            self._has_heads = left == 0
            if self._has_heads:
                return
            left -= 1
            response = parse_response(bytes(memoryview(head)[:end]))
            self._head_searched = 0
            if response.status >= 200:
                self._head = bytearray()
                self._take_response(response, bytes(memoryview(head)[end:]), now, out, may_resend)
                return
            del head[:end]
            if response.status == 101:
                raise HeadError(502, RelayReason.UPGRADE, "Upstream switched protocols without being asked.")
            if response.status != 100 and self.request.minor == 1:  # we have answered Expect ourselves
                out.append(ToClient(interim_head(response)))
        self._has_heads = False
        self._head_searched = len(head)
        if len(head) > MAX_RESPONSE_HEAD:
            raise HeadError(502, RelayReason.HEAD_TOO_LARGE, "Upstream's response head is too large.")

    def _take_response(self, response: Response, rest: bytes, now: int, out: Commands, may_resend: bool) -> None:
        """The final head, and ``rest``, which came with it; or the request goes out again without what we added."""
        if self._addition is Addition.USAGE and may_resend and response.status in _REFUSALS:  # for what we added, maybe
            self._fire(Event.REPEAT)
            self._addition = Addition.REFUSED
            out += (Leave(abort=True), Connect(fresh=True, inject=False))
            return
        if self._addition is Addition.REFUSED and response.status < 400:
            out.append(RestInjection())
        stripper = injection.new_stripper() if self._addition is Addition.USAGE else None
        keep = not self._policy.draining
        answer = Answer(self.request, response, observed=self._observed, keep=keep, stripper=stripper)
        passed = answer.feed(rest)  # if that is malformed the client can still be told, since nothing has left
        self._fire(Event.RESPONSE)
        self.answer = answer
        self.answered_ns = now - bool(passed[2])
        self._tapped_response = observed_response(
            response, observed=answer.observed, injected=answer.stripper is not None
        )
        out += (Tell(now, Kind.RESPONSE, self._tapped_response), Begin(answer.is_stream))
        self._pass_on(answer, passed, now, out)

    def _pass_on(self, answer: Answer, passed: tuple[bool, bytes, bytes], now: int, out: Commands) -> None:
        """Body bytes to the client first, then to the tap."""
        extra, outgoing, payload = passed
        if answer.head:
            outgoing, answer.head = answer.head + outgoing, b""
        if outgoing:
            out.append(ToClient(outgoing))
        if payload and answer.observes(payload):
            out.append(Tell(now, Kind.DATA, payload))
        elif payload and answer.hidden and (size := answer.hide(payload)):
            out.append(_tell_skipped(now, size))
        if answer.done:
            self._fire(Event.ANSWER_END)
            out.append(Leave(keep=answer.upstream_keeps and not extra, limit=answer.upstream_limit))

    @property
    def streams_plainly(self) -> bool:
        """Whether whole chunks can be passed on and shown without a closer look, from here."""
        return self.state is State.STREAMING and self.answer is not None and self.answer.is_plain_stream

    # --- The client's socket ---

    def client_blocked(self, now: int) -> Commands:
        """It took less than it was given: upstream is to be read no further before it has taken all."""
        self._fire(Event.CLIENT_BLOCKED)
        return [Tell(now, Kind.BLOCKED)]

    def client_free(self, now: int) -> Commands:
        """It has taken all that it was given."""
        was = self.state
        self._fire(Event.CLIENT_FREE)
        out: Commands = [] if was is State.ENDING else [Tell(now, Kind.UNBLOCKED)]
        if self.state is State.DONE:
            assert self.answer is not None
            farewell = Farewell.NEXT if self.answer.client_keeps else Farewell.CLOSE
            out += self._over(Finish.COMPLETE, None, farewell, now)
        return out

    # --- Ends ---

    def upstream_gone(self, now: int, *, clean: bool, may_repeat: bool, unread: bool) -> Commands:
        """Upstream closed the connection, or it broke. ``may_repeat``: it was a kept one that can have been dead.
        ``unread``: upstream cannot have read all of the request."""
        answer = self.answer
        allowed = self._repeat is Repeat.ALWAYS or (unread and self._repeat is Repeat.UNREAD)
        if self.state is State.WAITING and may_repeat and allowed:
            self._fire(Event.REPEAT)
            return [Leave(), Connect(fresh=True, inject=self._addition is Addition.USAGE, again=True)]
        if answer is not None and clean and answer.until_close:
            self._fire(Event.ANSWER_END)
            outgoing = answer.finish()
            return [ToClient(outgoing), Leave()] if outgoing else [Leave()]
        self._fire(Event.UPSTREAM_GONE)
        if answer is None:
            return self._error_answer(Finish.UPSTREAM_UNREACHABLE, 502, RelayReason.RESET, _NO_ANSWER, now)
        return self._break_off(Finish.UPSTREAM_TRUNCATED, RelayReason.CLOSED if clean else RelayReason.RESET, now)

    def silent(self, now: int) -> Commands:
        """Upstream's turn has brought nothing for longer than is allowed."""
        self._fire(Event.SILENT)
        return self._fail(504, RelayReason.IDLE_LIMIT, "Upstream was silent for too long.", now)

    def client_ended(self, now: int) -> Commands:
        """The client sends nothing more. Most that do so have left; some wait for their answer.

        Who has left refuses whatever is sent to it, and its machine says so at once. So before there is an answer it
        is sent an interim one, which every client has to bear. A client of HTTP/1.0 cannot be asked so: it is taken
        to have left if the answer costs the engine work. So is one that ends amid its answer, to stop upstream now
        and not at the next token.
        """
        is_old = self.request.minor == 0
        if self.state in (State.STREAMING, State.BLOCKED) or (is_old and self._observed):
            return self.client_gone(now)
        self._fire(Event.CLIENT_ENDED)
        if is_old or self.state in HELD_UP:  # the latter has not taken yet what will tell
            return []
        return [ToClient(_ARE_YOU_THERE)]

    def client_gone(self, now: int, reason: RelayReason | None = None) -> Commands:
        """The client has left, or was left for a reason."""
        self._fire(Event.CLIENT_GONE)
        return self._over(Finish.CLIENT_CLOSED, reason, Farewell.GONE, now)

    def cut(self, now: int) -> Commands:
        """The time for draining is over."""
        self._fire(Event.CUT)
        return self._break_off(Finish.CUT, RelayReason.DRAIN, now)

    def failed(self, now: int) -> Commands:
        """A fault of ours: this exchange cannot go on."""
        self._fire(Event.FAILED)
        return self._break_off(Finish.CUT, RelayReason.INTERNAL, now)

    def _fail(self, status: int, reason: RelayReason, message: str, now: int) -> Commands:
        """It is upstream's fault: say so while the client can still be told."""
        if self.answer is None:
            return self._error_answer(Finish.UPSTREAM_UNREACHABLE, status, reason, message, now)
        return self._break_off(Finish.UPSTREAM_TRUNCATED, reason, now)

    def _error_answer(self, finish: Finish, status: int, reason: RelayReason, message: str, now: int) -> Commands:
        head_only = self.request.method == b"HEAD"
        words = error_answer(status, message, reason, self._policy.wall_clock(), head_only=head_only)
        return [Tell(now, Kind.END, End(finish, status, reason)), Over(Farewell.CLOSE, words)]

    def _break_off(self, finish: Finish, reason: RelayReason, now: int) -> Commands:
        """End an answer so that it cannot be taken for complete."""
        looks_whole = self.answer is None or self.answer.client_until_close
        return self._over(finish, reason, Farewell.RESET if looks_whole else Farewell.BREAK_OFF, now)

    def _over(self, finish: Finish, reason: RelayReason | None, farewell: Farewell, now: int) -> Commands:
        status = self._tapped_response.status if self._tapped_response is not None else 0
        size = self.answer.take_unshown() if self.answer is not None else 0
        out: Commands = [_tell_skipped(now, size)] if size else []
        return [*out, Tell(now, Kind.END, End(finish, status, reason or "")), Over(farewell)]

    # --- For the tap ---

    @property
    def stage(self) -> int:
        """How far it is by what the tap has, and whether the client blocks it."""
        return self._stage | BLOCKED if self.state in HELD_UP else self._stage

    @property
    def _stage(self) -> Stage:
        if self._tapped_response is not None:
            return Stage.ANSWERED
        if self._tapped_sent:
            return Stage.SENT
        return Stage.RECEIVED if self.received_ns else Stage.RECEIVING

    def hide(self) -> None:
        """The observer can make nothing of the rest of the answer."""
        if self.answer is not None:
            self.answer.hidden = True

    def announce(self, now: int, read_ns: int) -> Commands:
        """For an observer that does not know this exchange. ``read_ns``: when bytes of the answer's body came last."""
        told = msgspec.structs.replace(
            self._tapped_request,
            resumed=True,
            received_ns=self.received_ns,
            stage=self._stage,
            body_size=self._body_size,
            read_ns=read_ns,
        )
        out: Commands = [Tell(now, Kind.REQUEST, told)]
        if self._tapped_response is not None:
            out.append(Tell(now, Kind.RESPONSE, self._tapped_response))
        if self.state in HELD_UP:
            out.append(Tell(read_ns or now, Kind.BLOCKED))  # since when nothing more is read
        return out


def _tell_skipped(now: int, size: int) -> Tell:
    return Tell(now, Kind.SKIPPED, size.to_bytes(8, "little"))


_NO_ANSWER: Final = "The upstream server closed the connection before it answered."
_NO_DESCRIPTORS: Final = "prefillwatch has no descriptor left for a connection to upstream; try again later."
_UNREACHABLE: Final = {
    RelayReason.CONNECT: "The upstream server cannot be reached.",
    RelayReason.TIMEOUT: "The upstream server did not accept a connection in time.",
    RelayReason.TLS: "The upstream server's certificate or TLS handshake was not acceptable.",
}
