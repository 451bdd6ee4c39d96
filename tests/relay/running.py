"""A relay that runs: in a thread of the test, or as the process that the supervisor would start."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from tests.kit.eventually import PATIENCE_S, eventually
from tests.relay.peers import Peer, connect

from prefillwatch.relay.relay import Relay
from prefillwatch.settings.declared import DEFAULTS
from prefillwatch.settings.views import relay_view
from prefillwatch.wire.tap import End, Kind, Packet, RelayStats, RequestHead, ResponseHead, decode_payload

Record = tuple[int, int, int, bytes]  # time, stream, kind, payload


class TapEnd:
    """The observer's end of the tap."""

    def __init__(self, opened: socket.socket) -> None:
        self.socket = opened
        self.socket.setblocking(False)
        self.packets: list[Packet] = []
        self.records: list[Record] = []

    def read(self) -> list[Record]:
        """All records so far."""
        while True:
            try:
                data = self.socket.recv(1 << 20)
            except BlockingIOError:
                return self.records
            if not data:
                return self.records
            packet = Packet(data)
            self.packets.append(packet)
            self.records.extend(packet)

    def wait(self, kind: Kind, stream: int = 1, count: int = 1) -> list[Record]:
        """The records of a kind and stream, when ``count`` of them are there."""

        def found() -> list[Record]:
            return [record for record in self.read() if record[1:3] == (stream, kind)]

        assert eventually(lambda: len(found()) >= count), f"no {kind!r} of {stream} in {self.story(stream)}"
        return found()

    def story(self, stream: int = 1) -> list[str]:
        """The kinds of a stream's records, in order; a run of the same kind is told once."""
        names: list[str] = []
        for _, found, kind, _ in self.read():
            if found == stream and (not names or names[-1] != Kind(kind).name):
                names.append(Kind(kind).name)
        return names

    def request(self, stream: int = 1) -> RequestHead:
        return decode_payload(Kind.REQUEST, self.wait(Kind.REQUEST, stream)[-1][3], RequestHead)

    def response(self, stream: int = 1) -> ResponseHead:
        return decode_payload(Kind.RESPONSE, self.wait(Kind.RESPONSE, stream)[-1][3], ResponseHead)

    def end(self, stream: int = 1) -> End:
        (record,) = self.wait(Kind.END, stream)
        return decode_payload(Kind.END, record[3], End)

    def stats(self) -> RelayStats:
        """The newest figures, at most a second old."""
        return decode_payload(Kind.STATS, self.wait(Kind.STATS, stream=0)[-1][3], RelayStats)

    def payload(self, kind: Kind = Kind.DATA, stream: int = 1) -> bytes:
        """The bytes of all records of a kind; for DATA with its parts."""
        kinds = (Kind.DATA, Kind.DATA_PART) if kind is Kind.DATA else (kind,)
        return b"".join(payload for _, found, which, payload in self.read() if found == stream and which in kinds)

    def close(self) -> None:
        self.socket.close()


class RunningRelay:
    """A relay in a thread. Attributes of ``relay`` are read from the test's thread, which the tests can live with."""

    def __init__(self, upstream: str, *, tapped: bool = True, contains_faults: bool = False, **options: Any) -> None:
        """``contains_faults``: as in production, a fault of the relay's ends what it happened in and nothing else."""
        listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
        self.port: int = listener.getsockname()[1]
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.tap = TapEnd(theirs)
        options.setdefault("forwarded", "pass")  # most tests look at what goes upstream, byte for byte
        settings = relay_view(
            DEFAULTS,
            upstream=upstream,
            listen_fds=(listener.detach(),),
            tap_fd=ours.detach() if tapped else -1,
            **options,
        )
        if not tapped:
            ours.close()
        self.relay = Relay(settings)
        self.faults: list[Exception] = []
        if not contains_faults:
            self.relay.reactor._on_crash = lambda _, error: self.faults.append(error)
        self._thread = threading.Thread(target=self._run, name="relay")
        self._thread.start()
        self._peers: list[Peer] = []

    def _run(self) -> None:
        self.relay.start()
        self.relay.reactor.run()

    def connect(self, **options: Any) -> Peer:
        peer = connect(self.port, **options)
        self._peers.append(peer)
        return peer

    def call(self, function: Callable[[], None]) -> None:
        """Call in the relay's thread."""
        self.relay.reactor.call_from_thread(function)

    @contextlib.contextmanager
    def standing_still(self) -> Iterator[None]:
        """What happens meanwhile the relay learns of all at once."""
        standing, go_on = threading.Event(), threading.Event()

        def wait() -> None:
            standing.set()
            go_on.wait(PATIENCE_S)

        self.call(wait)
        assert standing.wait(PATIENCE_S)
        try:
            yield
        finally:
            go_on.set()

    @property
    def in_flight(self) -> int:
        return len(self.relay.exchanges)

    def becomes_idle(self) -> bool:
        return eventually(lambda: not self.relay.exchanges)

    def join(self) -> None:
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    def close(self) -> None:
        self.tap.close()
        for peer in self._peers:
            peer.close()
        if self._thread.is_alive():
            self.call(self.relay.drain)
            self.call(self.relay.cut)
        self.join()
        self.relay.reactor.release()
        assert self.faults == []


class RelayProcess:
    """The real process."""

    def __init__(self, upstream: str, *, descriptors: int = 0, pass_fds: tuple[int, ...] = (), **options: Any) -> None:
        """``descriptors`` is how many it may have at most; 0: as many as we. ``pass_fds`` are inherited."""

        def limit() -> None:
            if descriptors:
                resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))

        listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
        self.port: int = listener.getsockname()[1]
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.tap = TapEnd(theirs)
        settings = relay_view(
            DEFAULTS, upstream=upstream, listen_fds=(listener.fileno(),), tap_fd=ours.fileno(), **options
        )
        self.process = subprocess.Popen(
            [sys.executable, "-m", "prefillwatch.relay"],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(listener.fileno(), ours.fileno(), *pass_fds),
            env=os.environ,
            preexec_fn=limit,
        )
        assert self.process.stdin is not None
        self.process.stdin.write(msgspec.json.encode(settings))
        self.process.stdin.close()
        self.process.stdin = None
        listener.close()
        ours.close()
        self._peers: list[Peer] = []

    def connect(self, **options: Any) -> Peer:
        peer = connect(self.port, **options)
        self._peers.append(peer)
        return peer

    def forget_peers(self) -> None:
        self._peers.clear()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def exit_code(self) -> int:
        return self.process.wait(PATIENCE_S)

    def resident_bytes(self) -> int:
        with open(f"/proc/{self.process.pid}/statm") as file:  # noqa: PTH123
            return int(file.read().split()[1]) * 4096

    def close(self) -> None:
        for peer in self._peers:
            peer.close()
        if self.process.poll() is None:
            self.process.kill()
        _, errors = self.process.communicate(timeout=PATIENCE_S)
        self.tap.close()
        assert errors == b"", errors.decode()
