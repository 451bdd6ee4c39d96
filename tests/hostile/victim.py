"""The stream beside an attack: `python -m tests.hostile.victim HOST PORT [CERTIFICATE]`, a process of its own, so that
what holds up the attacker's holds up none of its reads.

It checks every byte: tokens are numbered and say when they were sent. Asked by a line ``FROM UNTIL`` (monotonic
nanoseconds), it says how long tokens sent in between were held up at worst, once the last of them is there.
"""

from __future__ import annotations

import json
import re
import select
import socket
import ssl
import sys
import time

from tests.hostile.answers import token

_CHAT = b'{"model":"m","stream":true,"messages":[{"role":"user","content":"Tell me something."}]}'
_TEXT = re.compile(rb'"content":"([0-9]+) ([0-9]+)"')
_TOKENS = 10_000_000
#: A token that takes longer than this is not waited for.
_PATIENCE_S = 60.0


class Victim:
    def __init__(self, host: str, port: int, certificate: str = "") -> None:
        opened = socket.create_connection((host, port), timeout=10)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if certificate:
            opened = ssl.create_default_context(cafile=certificate).wrap_socket(opened, server_hostname=host)
        self.socket = opened
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-Request-Id: beside\r\n"
        head += b"Content-Type: application/json\r\nX-Script: beside:%d\r\nContent-Length: %d\r\n\r\n"
        self.socket.sendall(head % (_TOKENS, len(_CHAT)) + _CHAT)
        self.broken = ""
        self.held: list[tuple[int, int]] = []  # when each token was sent, and how long it was under way
        self._buffer = b""
        self._in_head = True

    def read_all(self) -> None:
        """What is there, also what TLS holds already, which `select` does not see."""
        self.read()
        while isinstance(self.socket, ssl.SSLSocket) and self.socket.pending() and not self.broken:
            self.read()

    def read(self) -> None:
        try:
            data = self.socket.recv(65536)
        except (BlockingIOError, ssl.SSLWantReadError):
            return
        except OSError as error:
            data = b""
            self.broken = f"the stream broke: {error}"
        now = time.monotonic_ns()
        if not data:
            self.broken = self.broken or "the stream ended"
        self._buffer += data
        if self._in_head:
            if b"\r\n\r\n" not in self._buffer:
                return
            head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
            self._in_head = False
            if not head.startswith(b"HTTP/1.1 200"):
                self.broken = f"it was answered {head[:40]!r}"
        while b"}\n\n\r\n" in self._buffer and not self.broken:
            self._take(now)

    def _take(self, now: int) -> None:
        """A chunk, which must be just that of the next token."""
        found = _TEXT.search(self._buffer)
        number = len(self.held)
        expected = token(number, int(found[2])) if found else b""
        expected = b"%x\r\n%b\r\n" % (len(expected), expected)
        if not found or not self._buffer.startswith(expected):
            self.broken = f"token {number} is lost or made up: {self._buffer[:120]!r}"
            return
        self._buffer = self._buffer[len(expected) :]
        self.held.append((int(found[2]), now - int(found[2])))

    def has_all_until(self, moment: int) -> bool:
        return bool(self.broken) or (bool(self.held) and self.held[-1][0] >= moment)

    def worst(self, begin: int, end: int) -> int:
        """Longest time from upstream to here, beyond the shortest ever seen, of tokens sent in between."""
        least = min(held for _, held in self.held[-2000:]) if self.held else 0
        return max((held for sent, held in self.held if begin <= sent <= end), default=0) - least


def main() -> None:
    victim = Victim(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
    victim.socket.setblocking(False)
    while True:
        ready, _, _ = select.select([victim.socket, sys.stdin] if not victim.broken else [sys.stdin], [], [])
        if victim.socket in ready:
            victim.read_all()
        if sys.stdin in ready:
            line = sys.stdin.readline()
            if not line:
                return
            begin, end = map(int, line.split())
            deadline = time.monotonic() + _PATIENCE_S
            while not victim.has_all_until(end) and time.monotonic() < deadline:
                select.select([victim.socket], [], [], 1.0)
                victim.read_all()
            late = "" if victim.has_all_until(end) else f"no token for {_PATIENCE_S:.0f} s"
            answer = {"worst_ns": victim.worst(begin, end), "broken": victim.broken or late, "tokens": len(victim.held)}
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
