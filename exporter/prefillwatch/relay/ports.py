"""What the parts of a relay need of each other, so that none of them has to know the others.

An exchange drives a `Client` and uses `ExchangeServices`; a client's connection feeds `Exchange`s and uses
`ClientServices`. The relay provides both kinds of services.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from prefillwatch.relay.bodies import Bodies, Claim
from prefillwatch.relay.deadlines import Deadlines
from prefillwatch.relay.dialer import Dialer
from prefillwatch.relay.exchange.commands import Farewell
from prefillwatch.relay.exchange.core import Policy
from prefillwatch.relay.hops import Hop
from prefillwatch.relay.http_head import Request
from prefillwatch.relay.reactor import Reactor
from prefillwatch.relay.request_body import RequestBody
from prefillwatch.relay.sending import Sending
from prefillwatch.relay.settings import RelaySettings
from prefillwatch.relay.tap_writer import TapWriter
from prefillwatch.relay.unsent import Unsent
from prefillwatch.relay.upstream import Pool
from prefillwatch.wire.reasons import RelayReason


class Client(Protocol):
    """What an exchange needs of the connection that its request came by."""

    @property
    def unsent(self) -> memoryview | None:
        """What its socket did not take yet; None: nothing is held."""

    @property
    def send(self) -> Callable[[Any], int]:
        """The socket's own."""

    @property
    def peer(self) -> bytes:
        """The client's address."""

    @property
    def is_tls(self) -> bool: ...

    def write(self, data: bytes) -> bool:
        """Send, and hold what the socket does not take. False: the client has left."""

    def hold(self, data: bytes, sent: int) -> None:
        """The socket took only ``sent`` bytes of what was sent without `write`."""

    def gone(self) -> None:
        """The client was found to have left; its exchange is notified."""

    def abort(self) -> None:
        """Close the connection now."""

    def exchange_over(self, farewell: Farewell, words: bytes) -> None:
        """The exchange has ended; ``words`` are to be sent before what ``farewell`` says."""


class Exchange(Protocol):
    """What a client's connection needs of the exchange that it feeds."""

    def open(self, first_ns: int) -> None:
        """The head is known; ``first_ns`` is when its first byte was read."""

    def tap_body(self, payload: bytes, now: int) -> None:
        """Body bytes came in."""

    def begin(self, body: RequestBody, now: int, claim: Claim | None) -> None:
        """The request is complete; ``claim`` is its body's, where it has one, to be released when that is let go."""

    def reject(self, status: int, reason: RelayReason, message: str) -> None:
        """Answer without upstream."""

    def client_unblocked(self) -> None:
        """The client has taken all that was held."""

    def client_ended(self) -> None:
        """The client sends nothing more."""

    def client_gone(self, reason: RelayReason | None = None) -> None:
        """The client has left, or was left for a reason."""

    def crash(self) -> None:
        """A fault of ours."""


class ExchangeServices(Protocol):
    """What a relay does for an exchange."""

    retries: int

    @property
    def reactor(self) -> Reactor: ...

    @property
    def tap(self) -> TapWriter: ...

    @property
    def pool(self) -> Pool: ...

    @property
    def dialer(self) -> Dialer: ...

    @property
    def repeatable(self) -> Deadlines[Sending]:
        """Requests that are kept for a repetition, for as long as one makes sense."""

    @property
    def policy(self) -> Policy: ...

    @property
    def authority(self) -> bytes:
        """Upstream's, for Host headers."""

    @property
    def keep_host(self) -> bool: ...

    def rest_injection(self) -> None:
        """Upstream does not take requests that ask for usage: leave them as they are for a while."""

    @property
    def bodies(self) -> Bodies: ...

    def hop(self, client: Client) -> Hop:
        """How this client's requests came here."""

    def next_stream(self) -> int:
        """A number for the tap."""

    def add_exchange(self, exchange: Any) -> None:
        """It has begun."""

    def remove_exchange(self, exchange: Any) -> None:
        """It is over; calling twice does no harm."""


class ClientServices(Protocol):
    """What a relay does for a client's connection."""

    @property
    def reactor(self) -> Reactor: ...

    @property
    def settings(self) -> RelaySettings: ...

    @property
    def policy(self) -> Policy: ...

    @property
    def client_idle(self) -> Deadlines[Any]:
        """Connections that wait for a request."""

    @property
    def receiving(self) -> Deadlines[Any]:
        """Connections that receive one, or shake hands."""

    @property
    def flushing(self) -> Deadlines[Any]:
        """Connections that are to be closed once the client has taken what is held; each byte taken renews it."""

    @property
    def lingering(self) -> Deadlines[Any]:
        """Connections that we closed and the client did not yet."""

    @property
    def bodies(self) -> Bodies:
        """How much of requests may be held."""

    @property
    def unsent(self) -> Unsent[Any]:
        """What is held of answers."""

    def was_here(self, request: Request) -> bool:
        """Whether it passed through us before."""

    def new_exchange(self, client: Client, request: Request) -> Exchange: ...

    def forget_client(self, client: Any) -> None:
        """Its connection is closed."""
