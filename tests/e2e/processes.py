"""The commands under test as processes: started, read, stopped, and nothing left behind."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families
from tests.kit.eventually import PATIENCE_S, eventually

CHAT = "/v1/chat/completions"


class Command:
    """One `prefillwatch …` process. Its output is collected as it comes."""

    def __init__(
        self,
        *arguments: str,
        environment: dict[str, str] | None = None,
        cwd: Path | None = None,
        program: Sequence[str] = (sys.executable, "-m", "prefillwatch"),
    ) -> None:
        self.lines: list[str] = []
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFILLWATCH_")}
        self.process = subprocess.Popen(
            [*program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**kept, "PYTHONUNBUFFERED": "1", **(environment or {})},
            cwd=cwd,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._collect, daemon=True)
        self._reader.start()

    @property
    def output(self) -> str:
        return "".join(self.lines)

    def wait_for(self, pattern: str) -> str:
        """The first group of the first match in the output so far or to come."""
        eventually(lambda: re.search(pattern, self.output) is not None or self.process.poll() is not None)
        found = re.search(pattern, self.output)
        assert found is not None, f"it ended without saying {pattern!r}:\n{self.output}"
        return found.group(1)

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        """The exit code; all output is there afterwards."""
        code = self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        return code

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.send(number)
        return self.wait()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def _collect(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)


class Sim(Command):
    """`prefillwatch sim` on a free port."""

    def __init__(self, *arguments: str, listen: str = "127.0.0.1:0", **more: Any) -> None:
        super().__init__("sim", "--listen", listen, *arguments, **more)
        self.url = self.wait_for(r"at (http://\S+)")


class Sidecar(Command):
    """`prefillwatch serve` or `run` on free ports; ready when upstream is healthy."""

    def __init__(self, command: str, *arguments: str, ready: bool = True, **more: Any) -> None:
        free = [word for flag in ("--listen", "--admin") if flag not in arguments for word in (flag, "127.0.0.1:0")]
        super().__init__(command, *free, *arguments, **more)
        self.url = self.wait_for(r"point clients at (https?://\S+)")
        self.admin = self.wait_for(r"metrics: (http://\S+)/metrics")
        if ready:
            eventually(lambda: self.readiness() == 200)

    def readiness(self) -> int:
        try:
            return httpx.get(f"{self.admin}/readyz", timeout=PATIENCE_S).status_code
        except httpx.TransportError:
            return 0

    def state(self) -> dict[str, Any]:
        return httpx.get(f"{self.admin}/api/state", timeout=PATIENCE_S).json()

    def pids(self, role: str) -> list[int]:
        return [process["pid"] for process in self.state()["processes"] if process["role"] == role]

    def _metrics(self) -> str | None:
        """None while the observer says that it is busy."""
        answer = httpx.get(f"{self.admin}/metrics", timeout=PATIENCE_S)
        return None if answer.status_code == 503 else answer.text

    def value(self, name: str, **labels: str) -> float | None:
        """Sum of a metric's samples that have these labels; None where there are none."""
        page = eventually(self._metrics, "the observer has no time for its metrics")
        found = [
            sample.value
            for family in text_string_to_metric_families(page)
            for sample in family.samples
            if sample.name == f"prefillwatch_{name}" and labels.items() <= sample.labels.items()
        ]
        return sum(found) if found else None


@contextlib.contextmanager
def calm_sidecar(*arguments: str) -> Iterator[Sidecar]:
    """`serve`, which must not have said anything of a fault in our own code when it ends."""
    command = Sidecar("serve", *arguments)
    try:
        yield command
    finally:
        command.kill()
    assert "Traceback" not in command.output, command.output


class Stream:
    """A streamed chat completion in a thread of its own. ``done`` is True when the answer came to its end."""

    def __init__(self, url: str, tokens: int, verify: bool | ssl.SSLContext = True, **headers: str) -> None:
        self.text = ""
        self.done = False
        self.error: httpx.HTTPError | None = None
        self._request: dict[str, Any] = {
            "url": url + CHAT,
            "json": {
                "model": "sim-4b",
                "stream": True,
                "max_tokens": tokens,
                "ignore_eos": True,
                "messages": [{"role": "user", "content": "Tell me something."}],
            },
            "headers": headers,
        }
        self._verify = verify
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def tokens(self) -> int:
        return len(re.findall(r'"content":"[^"]', self.text))

    def begin(self) -> Stream:
        """Wait for the first token."""
        eventually(lambda: self.tokens > 0 or not self._thread.is_alive())
        assert self.tokens, self.error or self.text
        return self

    def end(self) -> Stream:
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "the answer did not end"
        return self

    def _run(self) -> None:
        try:
            with (
                httpx.Client(timeout=PATIENCE_S, verify=self._verify) as client,
                client.stream("POST", **self._request) as answer,
            ):
                for piece in answer.iter_text():
                    self.text += piece
                self.done = "data: [DONE]" in self.text
        except httpx.HTTPError as error:
            self.error = error


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"
