"""What a recording needs of a server of whatever kind, and a request that was sent to it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tests.real.client import Answer

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
#: llama.cpp's own.
NATIVE = "/completion"


@dataclass
class Sent:
    """A request of ours and what came back."""

    id: str
    role: str
    body: bytes
    content: str
    shared_prefix: dict[str, Any] | None
    max_tokens: int
    path: str = CHAT
    #: It goes to the engine itself, where there is a sidecar before it.
    past_sidecar: bool = False
    #: Seconds after which its client leaves; 0: it stays.
    leaves_after: float = 0.0
    answer: Answer | None = None


class Server(Protocol):
    """A real engine as a child process."""

    log_dir: Path
    flags: Sequence[str]
    port: int
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str: ...

    def core_pid(self) -> int:
        """The process whose stop stops the engine."""

    def facts(self) -> dict[str, Any]:
        """What a recording says of it, in its header."""

    def truth_lines(self, started_ns: int, sent: Sequence[Sent]) -> Iterator[dict[str, Any]]:
        """Its own account of its steps since then, under the names of these requests."""
