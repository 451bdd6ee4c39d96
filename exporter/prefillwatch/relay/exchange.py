"""One request and its answer.

Life: `open` (head read) → `begin` (request complete) → a connection → request sent → response head → body → over. Every
way out goes through `_over`, once, which tells the tap how it ended.
"""

from __future__ import annotations

import select
from typing import TYPE_CHECKING, Any, Final

import msgspec

from prefillwatch.relay import answers, injection
from prefillwatch.relay.answer import Answer
from prefillwatch.relay.forwarding import interim_head
from prefillwatch.relay.framing import FramingError, whole_chunk_prefixes
from prefillwatch.relay.http_head import (
    MAX_RESPONSE_HEAD,
    HeadError,
    Request,
    Response,
    end_of_head,
    parse_response,
)
from prefillwatch.relay.reactor import ENDED, QUIET, monotonic_ns
from prefillwatch.relay.request_body import RequestBody
from prefillwatch.relay.sending import Sending
from prefillwatch.relay.told import told_request, told_response
from prefillwatch.wire.routes import GENERATING, endpoint_of
from prefillwatch.wire.tap import End, Finish, Kind, RequestHead, ResponseHead

if TYPE_CHECKING:
    from prefillwatch.relay.client import ClientConnection
    from prefillwatch.relay.dialer import Dial
    from prefillwatch.relay.relay import Relay
    from prefillwatch.relay.upstream import UpstreamConnection

#: A token's read; longer ones take the general way.
_TOKEN_READ: Final = 16 * 1024
#: Larger blocks than 128 KiB would teach malloc to keep memory that nobody needs any more.
_READ: Final = 64 * 1024
_PREFIXES: Final = whole_chunk_prefixes(4096)
#: What the observer gets to see of a request or of a JSON answer.
OBSERVED_BYTES: Final = 8 * 2**20
_REPEATABLE: Final = frozenset((b"GET", b"HEAD", b"OPTIONS", b"PUT", b"DELETE"))


class Exchange:
    """See the module. The client's connection outlives it, the upstream's may."""

    __slots__ = (
        "_add_record", "_answer", "_data_key", "_dial", "_ending", "_head", "_head_searched", "_observed", "_paused",
        "_recv", "_repeatable", "_send", "_sending", "_tapped_body", "_told_request", "_told_response", "_upstream",
        "client", "done", "is_answering", "last_read_ns", "received_ns", "relay", "request", "stream",
    )  # fmt: skip

    def __init__(self, relay: Relay, client: ClientConnection, request: Request) -> None:
        self.relay = relay
        self.client = client
        self.request = request
        self.stream = relay.next_stream()
        self.done = False
        self.is_answering = False  # the request is complete; what comes now is upstream's turn
        self.received_ns = 0
        self.last_read_ns = 0
        generating = request.method == b"POST" and endpoint_of(request.path) in GENERATING
        self._observed = generating
        self._repeatable = generating or request.method in _REPEATABLE
        self._tapped_body = 0
        self._told_request = RequestHead("", "")
        self._told_response: ResponseHead | None = None
        self._sending: Sending | None = None  # None: not begun, or done with
        self._dial: Dial | None = None
        self._upstream: UpstreamConnection | None = None
        self._head = bytearray()
        self._head_searched = 0
        self._answer: Answer | None = None
        self._paused = False
        self._ending = False  # upstream's end was announced; it will not be again, so reading goes on up to it
        self._data_key = self.stream << 8 | Kind.DATA
        self._add_record = relay.tap.add_record
        self._send = client.send
        self._recv: Any = None

    # The request
    # -----------------------------------------------------------------------------------------------------------------

    def open(self, first_ns: int) -> None:
        """The head is known; ``first_ns`` is when its first byte was read."""
        self.relay.add_exchange(self)
        self._told_request = told_request(self.request, OBSERVED_BYTES if self._observed else 0)
        self._tell(first_ns, Kind.REQUEST, self._told_request)

    def tap_body(self, payload: bytes, now: int) -> None:
        """Body bytes came in."""
        if self._observed and payload and self._tapped_body < OBSERVED_BYTES:
            shown = payload[: OBSERVED_BYTES - self._tapped_body]
            self._tapped_body += len(shown)
            self.relay.tap.add_body(now, self.stream, shown)

    def begin(self, body: RequestBody, now: int) -> None:
        """The request is complete: send it."""
        self.received_ns = self.last_read_ns = now
        self.is_answering = True
        self._add(now, Kind.REQUEST_END, body.size.to_bytes(8, "little"))
        relay = self.relay
        self._sending = Sending(self.request, body, relay.authority, keep_host=relay.keep_host)
        self._dispatch(self._sending, fresh=not self._repeatable, inject=relay.settings.inject_usage and self._observed)

    def reject(self, status: int, reason: str, message: str) -> None:
        """Answer without upstream."""
        self._answer_error(Finish.REJECTED, status, reason, message)

    # Towards upstream
    # -----------------------------------------------------------------------------------------------------------------

    def _dispatch(self, sending: Sending, *, fresh: bool, inject: bool = False) -> None:
        """Find the request a connection."""
        sending.start(inject=inject)
        connection = None if fresh else self.relay.pool.take()
        if connection is None:
            self._dial = self.relay.dialer.dial(self._connected, self._unreachable)
        else:
            self._connected(connection)

    def _connected(self, connection: UpstreamConnection) -> None:
        self._dial = None
        self._ending = False
        self._upstream = connection
        self._recv = connection.recv
        self.relay.reactor.handlers[connection.fd] = self._on_upstream
        if connection.may_hold_bytes:
            self._ending = True
            self.relay.reactor.soon(self._read_on)
        self._pump()

    def _pump(self) -> None:
        upstream, sending = self._upstream, self._sending
        if upstream is None or sending is None or not sending.waits:
            return
        try:
            again = sending.pump(upstream.send)
        except OSError:  # an answer may still be there to read
            sending.stop()
            self._read()
            return
        if again:
            self.relay.reactor.soon(self._pump)
        elif sending.sent_ns:
            self._sent(upstream, sending)

    def _sent(self, upstream: UpstreamConnection, sending: Sending) -> None:
        if self._answer is not None:  # answered early; what comes later is told no more
            return
        self._add(sending.sent_ns, Kind.SENT)
        if upstream.reused and self._repeatable:
            self.relay.repeatable.add(sending)
        else:
            sending.forget()

    def _unreachable(self, reason: str) -> None:
        self._dial = None
        self._answer_error(Finish.UPSTREAM_UNREACHABLE, 502, reason, _UNREACHABLE.get(reason, _NO_ANSWER))

    # From upstream
    # -----------------------------------------------------------------------------------------------------------------

    def _on_token(self, events: int) -> None:
        """The hot path: an event of upstream's socket while chunks of an observed answer stream through.

        What a slot holds is fetched before it is called: calling it in one expression takes a look-up as for a method,
        which the interpreter cannot speed up for slots.
        """
        if events != QUIET:
            self._on_upstream(events)
            return
        recv, send = self._recv, self._send
        try:
            data = recv(_TOKEN_READ)
        except OSError as error:
            self._read_failed(error)
            return
        now = monotonic_ns()
        size = len(data)
        prefix = _PREFIXES.get(size, data)
        start = len(prefix)
        if data[:start] != prefix or data[-2:] != b"\r\n" or start == size:
            self._received(data, now, more=size == _TOKEN_READ)
            return
        try:
            sent = send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self.client.gone()
            return
        add_time, add_key, add_payload = self._add_record
        add_time(now)
        add_key(self._data_key)
        add_payload(data[start:-2])
        self.last_read_ns = now
        if sent != size:
            self.client.hold(data, sent)
            self._pause()

    def _on_upstream(self, events: int) -> None:
        if events & select.EPOLLOUT:
            self._pump()
        if events & ENDED:
            self._ending = True
        if events & ~select.EPOLLOUT and self._upstream is not None:
            self._read()

    def _read_on(self) -> None:
        if not self.done and self._upstream is not None:
            self._read()

    def _read(self) -> None:
        if self._paused or self.done:
            return
        upstream = self._upstream
        assert upstream is not None
        try:
            data = self._recv(_READ)
        except OSError as error:
            self._read_failed(error)
            return
        self._received(data, monotonic_ns(), more=len(data) == _READ or self._ending or upstream.is_tls)

    def _read_failed(self, error: OSError) -> None:
        if not isinstance(error, BlockingIOError):
            self._upstream_ended(clean=False)

    def _received(self, data: bytes, now: int, *, more: bool) -> None:
        """Bytes of the answer, or their end. ``more``: the kernel may hold more and will not say so again."""
        if not data:
            self._upstream_ended(clean=True)
            return
        if more:
            self.relay.reactor.soon(self._read_on)
        self.last_read_ns = now
        try:
            if self._answer is None:
                self._head += data
                self._take_heads(now)
            else:
                self._pass_on(data, now)
        except (HeadError, FramingError):
            self._broken()

    def _take_heads(self, now: int) -> None:
        """Interim heads and the final one, as far as they are there."""
        head = self._head
        while (end := end_of_head(head, self._head_searched)) >= 0:
            response = parse_response(bytes(memoryview(head)[:end]))
            self._head_searched = 0
            if response.status >= 200:
                self._head = bytearray()
                self._take_response(response, bytes(memoryview(head)[end:]), now)
                return
            del head[:end]
            self._pass_interim(response)
            if self.done:
                return
        self._head_searched = len(head)
        if len(head) > MAX_RESPONSE_HEAD:
            raise HeadError(502, answers.HEAD_TOO_LARGE, "Upstream's response head is too large.")

    def _pass_interim(self, response: Response) -> None:
        if response.status == 101:
            raise HeadError(502, "upgrade", "Upstream switched protocols without being asked.")
        if response.status != 100 and self.request.minor == 1:  # we have answered Expect ourselves
            self.client.write(interim_head(response))
            self._pause_if_blocked()

    def _take_response(self, response: Response, rest: bytes, now: int) -> None:
        sending = self._sending
        assert sending is not None
        if sending.injected and response.status in (400, 422):
            self._send_original(sending)
            return
        stripper = injection.new_stripper() if sending.injected else None
        keep = not self.relay.draining
        answer = Answer(self.request, response, observed=self._observed, keep=keep, stripper=stripper)
        if not sending.sent_ns:  # answered early: what is left of the request must not be taken for another one
            answer.upstream_keeps = False
        self._answer = answer
        if answer.is_stream and self._upstream is not None:
            self._upstream.acknowledge_late(now)
        self._told_response = told_response(response, observed=answer.observed, injected=answer.stripper is not None)
        self._tell(now, Kind.RESPONSE, self._told_response)
        try:
            self._pass_on(rest, now, answer.head)
        except (HeadError, FramingError):
            self._answer = None  # nothing of it has left, so the client can be told
            raise
        self._shed(sending)

    def _shed(self, sending: Sending) -> None:
        """A stream may last for long; what only its beginning needed does not have to."""
        self.relay.repeatable.discard(sending)
        sending.forget()
        if sending.sent_ns:
            self._sending = None
            self.request.headers.clear()

    def _send_original(self, sending: Sending) -> None:
        """Upstream does not like what we added."""
        assert self._upstream is not None
        self._upstream.abort()
        self._upstream = None
        self._dispatch(sending, fresh=True)

    def _pass_on(self, data: bytes, now: int, head: bytes = b"") -> None:
        """Body bytes to the client first, then to the tap."""
        answer = self._answer
        assert answer is not None
        extra, outgoing, payload = answer.feed(data)
        if head or outgoing:
            self.client.write(head + outgoing if head else outgoing)
        if self.done:  # the client was found to have left
            return
        if payload and answer.observes(payload):
            self.relay.tap.add_data(now, self.stream, payload)
        self._pause_if_blocked()
        if answer.done:
            self._complete(reusable=answer.upstream_keeps and not extra)
        elif not self._paused:
            self._choose_handler(answer)

    def _choose_handler(self, answer: Answer) -> None:
        upstream, sending = self._upstream, self._sending
        assert upstream is not None
        uploads = sending is not None and sending.waits  # room for more of it is told beside a token, too
        fast = answer.is_plain_stream and not upstream.is_tls and not uploads
        self.relay.reactor.handlers[upstream.fd] = self._on_token if fast else self._on_upstream

    # Back-pressure
    # -----------------------------------------------------------------------------------------------------------------

    def _pause_if_blocked(self) -> None:
        if self.client.unsent is not None and not self._paused and not self.done:
            self._pause()

    def _pause(self) -> None:
        """The client's socket is full: read no further before it has taken what we hold."""
        self._paused = True
        self._add(monotonic_ns(), Kind.BLOCKED)
        if self._upstream is not None:
            self.relay.reactor.handlers[self._upstream.fd] = self._on_upstream

    def client_unblocked(self) -> None:
        """The client has taken all."""
        if self._paused:
            self._paused = False
            self.last_read_ns = now = monotonic_ns()  # the silence until here was not upstream's
            self._add(now, Kind.UNBLOCKED)
        if self._answer is not None and self._answer.done:
            self._over(Finish.COMPLETE, keep=self._answer.client_keeps)
        elif self._upstream is not None:
            self.relay.reactor.soon(self._read_on)

    # Ends
    # -----------------------------------------------------------------------------------------------------------------

    def _complete(self, *, reusable: bool) -> None:
        """All of the answer was read."""
        answer, upstream = self._answer, self._upstream
        assert answer is not None
        self._upstream = None
        if upstream is not None:
            if reusable:
                self.relay.pool.release(upstream, answer.upstream_limit)
            elif self._sending is not None and not self._sending.sent_ns:
                upstream.abort()
            else:
                upstream.close()
        if self.client.unsent is None:
            self._over(Finish.COMPLETE, keep=answer.client_keeps)

    def _upstream_ended(self, *, clean: bool) -> None:
        """Upstream closed the connection, or it broke."""
        answer, upstream = self._answer, self._upstream
        assert upstream is not None
        if answer is None:
            self._died_before_answer(upstream)
        elif clean and answer.until_close:
            outgoing = answer.finish()
            if outgoing:
                self.client.write(outgoing)
            if not self.done:
                self._complete(reusable=False)
        else:
            self._truncated("closed" if clean else "reset")

    def _died_before_answer(self, upstream: UpstreamConnection) -> None:
        sending = self._sending
        assert sending is not None
        nothing_came = self.last_read_ns == self.received_ns
        repeat = upstream.reused and self._repeatable and nothing_came and sending.may_repeat()
        upstream.close()
        self._upstream = None
        if repeat:
            self.relay.retries += 1
            self._dispatch(sending, fresh=True, inject=sending.injected)
        else:
            self._answer_error(Finish.UPSTREAM_UNREACHABLE, 502, "reset", _NO_ANSWER)

    def _broken(self) -> None:
        """Upstream sent what is not HTTP."""
        if self._answer is None:
            self._answer_error(Finish.UPSTREAM_UNREACHABLE, 502, "malformed", "Upstream's answer is not HTTP/1.1.")
        else:
            self._truncated("malformed")

    def acknowledge_late_again(self, now: int) -> None:
        """Once a second."""
        if self._upstream is not None:
            self._upstream.acknowledge_late_again(now)

    def end_if_silent(self, since_ns: int) -> None:
        """Break off if upstream's turn has brought nothing since then."""
        if not self.is_answering or self._paused or self.done or self.last_read_ns >= since_ns:
            return
        if self._answer is None:
            self._answer_error(Finish.UPSTREAM_UNREACHABLE, 504, "idle_limit", "Upstream was silent for too long.")
        else:
            self._truncated("idle_limit")

    def _truncated(self, reason: str) -> None:
        self._break_off(Finish.UPSTREAM_TRUNCATED, reason)

    def _break_off(self, finish: Finish, reason: str) -> None:
        """End an answer that has begun, so that nobody can take it for complete."""
        answer, client = self._answer, self.client
        self._over(finish, reason, keep=None)
        client.cut(reset=answer is None or answer.client_until_close)

    def cut(self) -> None:
        """The time for draining is over."""
        self._break_off(Finish.CUT, "drain")

    def client_gone(self) -> None:
        self._over(Finish.CLIENT_CLOSED, keep=None)

    def crash(self) -> None:
        if not self.done:
            self._break_off(Finish.CUT, "internal")

    def _answer_error(self, finish: Finish, status: int, reason: str, message: str) -> None:
        client = self.client
        answer = answers.error_answer(status, message, reason, head_only=self.request.method == b"HEAD")
        self._over(finish, reason, status=status, keep=None)
        client.exchange = None
        client.write(answer)
        if client.socket is not None:
            client.close_gently()

    def _over(self, finish: Finish, reason: str = "", *, status: int | None = None, keep: bool | None) -> None:
        """Let go of everything. ``keep`` None: the caller sees to the client's connection."""
        if self.done:
            return
        self.done = True
        if status is None:
            status = self._told_response.status if self._told_response is not None else 0
        self._tell(monotonic_ns(), Kind.END, End(finish, status, reason))
        self.relay.remove_exchange(self)
        sending, self._sending = self._sending, None
        if sending is not None:
            self.relay.repeatable.discard(sending)
        dial, self._dial = self._dial, None
        if dial is not None:
            dial.cancel()
        upstream, self._upstream = self._upstream, None
        if upstream is not None:
            upstream.abort()
        if keep is not None:
            self.client.exchange_over(keep=keep)

    # For the tap
    # -----------------------------------------------------------------------------------------------------------------

    def announce(self) -> None:
        """Tell a new observer of this exchange, if it is still running."""
        if self.done:
            return
        now = monotonic_ns()
        told = msgspec.structs.replace(self._told_request, resumed=True, received_ns=self.received_ns)
        self._tell(now, Kind.REQUEST, told)
        if self._told_response is not None:
            self._tell(now, Kind.RESPONSE, self._told_response)

    def _add(self, now: int, kind: Kind, payload: bytes = b"") -> None:
        self.relay.tap.add(now, self.stream, kind, payload)

    def _tell(self, now: int, kind: Kind, payload: RequestHead | ResponseHead | End) -> None:
        self.relay.tap.tell(now, self.stream, kind, payload)


_NO_ANSWER: Final = "The upstream server closed the connection before it answered."
_UNREACHABLE: Final = {
    "connect": "The upstream server cannot be reached.",
    "timeout": "The upstream server did not accept a connection in time.",
    "tls": "The upstream server's certificate or TLS handshake was not acceptable.",
}
