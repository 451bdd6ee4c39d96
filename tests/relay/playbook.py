"""An exchange without sockets: what is reported to it (``>>``) and what it wants done then (``<<``), in order.

    assert (
        Exchange(post())
        >> complete() << tap(Kind.REQUEST_END) << connect(fresh=False)
        >> connected() >> upstream(STREAM_HEAD)
        << tap(Kind.RESPONSE) << begin(stream=True) << to_client(STREAM_HEAD)
    )  # fmt: skip

Every command has to be named, in order, before the next event and before the end. Each event comes a millisecond after
the one before it, and what the tap is told of it carries its time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from prefillwatch.relay.exchange.commands import (
    Begin,
    Command,
    Commands,
    Connect,
    Farewell,
    Leave,
    Over,
    RestInjection,
    Tell,
    ToClient,
)
from prefillwatch.relay.exchange.core import ExchangeCore, Policy
from prefillwatch.relay.exchange.state import State
from prefillwatch.relay.http_head import end_of_head, parse_request
from prefillwatch.units import MS
from prefillwatch.wire.reasons import RelayReason
from prefillwatch.wire.tap import End, Finish, Kind

Happening = Callable[[ExchangeCore, int], Commands]


@dataclass
class Expected:
    """A command, or a part of it that is enough to tell."""

    text: str
    fits: Callable[[Command], bool]


@dataclass
class Exchange:
    """The exchange of one request (its bytes, body and all), opened and with its body told to the tap."""

    request: bytes
    policy: Policy = field(default_factory=Policy)
    receive: bool = True  # False: the body is still coming

    def __post_init__(self) -> None:
        end = end_of_head(bytearray(self.request), 0)
        self.body = self.request[end:]
        self.core = ExchangeCore(parse_request(self.request[:end]), self.policy)
        self.now = 0
        self.told: list[Tell] = []
        self._wanted: Commands = []
        self._do(lambda core, now: core.open(now))
        if self.receive:
            self._do(lambda core, now: core.body(self.body, now))
        self._wanted.clear()

    def _do(self, happening: Happening) -> None:
        self.now += MS
        self._wanted = happening(self.core, self.now)
        for command in self._wanted:
            if isinstance(command, Tell):
                self.told.append(command)
                assert command.time_ns == self.now or command.kind is Kind.SENT

    def __rshift__(self, happening: Happening) -> Exchange:
        assert not self._wanted, f"nobody expected {self._wanted}"
        self._do(happening)
        return self

    def __lshift__(self, expected: Expected) -> Exchange:
        assert self._wanted, f"{expected.text} was expected, and nothing came"
        command = self._wanted.pop(0)
        assert expected.fits(command), f"{expected.text} was expected, not {command}"
        return self

    def __bool__(self) -> bool:
        """Whether all went as told: to be asserted."""
        assert not self._wanted, f"nobody expected {self._wanted}"
        return True

    @property
    def state(self) -> State:
        return self.core.state

    def payload(self, kind: Kind = Kind.DATA) -> bytes:
        """The bytes of all records of a kind."""
        return b"".join(tell.payload for tell in self.told if tell.kind is kind and isinstance(tell.payload, bytes))


# What happens
# ---------------------------------------------------------------------------------------------------------------------


def complete(size: int = 15) -> Happening:
    return lambda core, now: core.complete(size, now)


def refused(status: int = 413, reason: str = "body_too_large") -> Happening:
    return lambda core, now: core.refuse(status, RelayReason(reason), "Said so.", now)


def connected(*, injected: bool = False) -> Happening:
    return lambda core, _: core.connected(injected=injected)


def unreachable(reason: str = "connect") -> Happening:
    return lambda core, now: core.unreachable(RelayReason(reason), now)


def sent() -> Happening:
    return lambda core, now: core.sent(now)


def upstream(data: bytes) -> Happening:
    return lambda core, now: core.read(data, now)


def upstream_closes(*, may_repeat: bool = False) -> Happening:
    return lambda core, now: core.upstream_gone(now, clean=True, may_repeat=may_repeat, unread=False)


def upstream_resets(*, may_repeat: bool = False) -> Happening:
    return lambda core, now: core.upstream_gone(now, clean=False, may_repeat=may_repeat, unread=True)


def silence() -> Happening:
    return lambda core, now: core.silent(now)


def client_blocked() -> Happening:
    return lambda core, now: core.client_blocked(now)


def client_free() -> Happening:
    return lambda core, now: core.client_free(now)


def client_ends() -> Happening:
    return lambda core, now: core.client_ended(now)


def client_leaves() -> Happening:
    return lambda core, now: core.client_gone(now)


def shutdown() -> Happening:
    return lambda core, now: core.cut(now)


def fault() -> Happening:
    return lambda core, now: core.failed(now)


# What is wanted then
# ---------------------------------------------------------------------------------------------------------------------


def _exactly(wanted: Command) -> Expected:
    return Expected(repr(wanted), lambda command: type(command) is type(wanted) and command == wanted)


def to_client(data: bytes) -> Expected:
    return _exactly(ToClient(data))


def connect(*, fresh: bool, inject: bool = False, again: bool = False) -> Expected:
    return _exactly(Connect(fresh, inject, again))


def rest_injection() -> Expected:
    return _exactly(RestInjection())


def begin(*, stream: bool) -> Expected:
    return _exactly(Begin(stream))


def leave(*, keep: bool = False, abort: bool = False) -> Expected:
    return Expected(
        f"Leave(keep={keep}, abort={abort})",
        lambda command: isinstance(command, Leave) and (command.keep, command.abort) == (keep, abort),
    )


def tap(kind: Kind, payload: Any = None) -> Expected:
    def fits(command: Command) -> bool:
        return isinstance(command, Tell) and command.kind is kind and payload in (None, command.payload)

    return Expected(f"{kind.name} {payload or ''}", fits)


def ended(finish: Finish, status: int = 0, reason: str = "") -> Expected:
    return tap(Kind.END, End(finish, status, reason))


def over(farewell: Farewell) -> Expected:
    return _exactly(Over(farewell))


def answered(status: int, code: str) -> Expected:
    """An answer of ours, and the connection is closed."""

    def fits(command: Command) -> bool:
        return (
            isinstance(command, Over)
            and command.farewell is Farewell.CLOSE
            and command.words.startswith(b"HTTP/1.1 %d " % status)
            and command.words.endswith(b'"code":"%b"}}' % code.encode())
        )

    return Expected(f"an answer of {status} {code}", fits)
