"""Start, watch and stop a real vLLM server on the CPU. Used by the fixtures here and by record_workload.py."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from tests.real.served import Sent

ROOT = Path(__file__).resolve().parents[2]
VENV = Path(os.environ.get("PWTEST_REAL_VENV", ROOT / ".venv-real"))
MODEL_DIR = Path(os.environ.get("PWTEST_REAL_MODEL", ROOT / ".cache" / "real-model"))
MODEL_NAME = "tiny"

BASE_FLAGS = (
    f"--model={MODEL_DIR}",
    f"--served-model-name={MODEL_NAME}",
    "--host=127.0.0.1",
    "--enforce-eager",
    # vLLM would take bfloat16, which a CPU without AVX-512 has to emulate: a long prompt takes 20 s then instead of 3.
    "--dtype=float32",
    "--max-model-len=16384",
    "--enable-prompt-tokens-details",
    "--enable-logging-iteration-details",
)
ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "2",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    # One core for the engine's arithmetic: the other is for the API server, for us and for the client, so that what is
    # measured between them is not three programs fighting over a core.
    "VLLM_CPU_OMP_THREADS_BIND": "0",
}
_FRONT = re.compile(r"^(\d+_)?(chatcmpl|cmpl)-")
START_LIMIT_SECONDS = 600.0  # most of a minute on two quiet cores
STOP_LIMIT_SECONDS = 30.0


class EngineError(Exception):
    """vLLM could not be started; the message holds the end of its log."""


def server_command(port: int, flags: Sequence[str] = ()) -> list[str]:
    """The command line of a vLLM API server on `port`.

    By module, because the `vllm` command looks for a distribution of that name and the CPU build has another.
    """
    python = str(VENV / "bin" / "python")
    return [python, "-m", "vllm.entrypoints.openai.api_server", *BASE_FLAGS, f"--port={port}", *flags]


def profiler_flags(folder: Path) -> tuple[str, ...]:
    """Flags that give the server a profiler to arm (it costs nothing until then); traces go to `folder`, made here."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {"profiler": "torch", "torch_profiler_dir": str(folder), "torch_profiler_with_stack": False}
    return (f"--profiler-config={json.dumps(config | {'ignore_frontend': True})}",)


def server_environment(extra: dict[str, str] | None = None) -> dict[str, str]:
    return os.environ | ENVIRONMENT | (extra or {})


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass
class Engine:
    """A vLLM server as a child process: `with Engine(log_dir) as engine: ... engine.url`."""

    log_dir: Path
    flags: Sequence[str] = ()
    steplog: bool = True
    #: In place of `server_command`.
    command: Callable[[int, Sequence[str]], list[str]] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    port: int = field(default_factory=free_port)

    def __enter__(self) -> Engine:
        self.log_dir.mkdir(parents=True, exist_ok=True)
        if not (VENV / "bin" / "python").exists() or not (MODEL_DIR / "config.json").exists():
            raise EngineError("vLLM for the CPU is not set up here: run `python3 tests/real/setup.py` first")
        extra = {"PWTEST_STEPLOG": str(self.log_dir)} if self.steplog else {}
        self.log: IO[bytes] = self.log_path.open("wb")
        self.process = subprocess.Popen(
            (self.command or server_command)(self.port, self.flags),
            env=server_environment(extra | dict(self.environment)),
            stdout=self.log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=end_with_parent,
        )
        try:
            self.wait_until_healthy()
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
        return self.log_dir / "vllm.log"

    def wait_until_healthy(self) -> None:
        deadline = time.monotonic() + START_LIMIT_SECONDS
        while not is_healthy(self.url):
            if self.process.poll() is not None:
                raise EngineError(f"vLLM exited with {self.process.returncode} while starting:\n{self.log_tail()}")
            if time.monotonic() > deadline:
                raise EngineError(f"vLLM was not healthy after {START_LIMIT_SECONDS:.0f} s:\n{self.log_tail()}")
            time.sleep(0.25)

    def log_tail(self, lines: int = 30) -> str:
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])

    def core_pid(self) -> int:
        """The engine process proper, a child of the API server."""
        for pid in descendants(self.process.pid):
            if "EngineCore" in process_name(pid):
                return pid
        raise EngineError(f"no engine process below {self.process.pid}")

    def facts(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=30) as page:
            lines = page.read().decode().splitlines()
        line = next(line for line in lines if line.startswith("vllm:cache_config_info{"))
        pairs = line[line.index("{") + 1 : line.rindex("}")].split(",")
        labels = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
        with urllib.request.urlopen(f"{self.url}/version", timeout=30) as page:
            version = json.loads(page.read())["version"]
        block, blocks = (int(labels[name].strip('"')) for name in ("block_size", "num_gpu_blocks"))
        given = (flag.split("=")[1] for flag in self.flags if flag.startswith("--max-num-batched-tokens="))
        return {
            "version": version,
            "flags": list(self.flags),
            "max_num_batched_tokens": int(next(given, "2048")),
            "chunked_prefill": "--no-enable-chunked-prefill" not in self.flags,
            "block_size": block,
            "kv_cache_tokens": block * blocks,
        }

    def truth_lines(self, started_ns: int, sent: Sequence[Sent]) -> Iterator[dict[str, Any]]:
        names = {each.id for each in sent}
        for line in json_lines(self.log_dir / "schedule.jsonl"):
            if line["scheduled_ns"] >= started_ns:
                requests = [[own_id(each, names), *rest] for each, *rest in line["requests"]]
                preempted = [own_id(each, names) for each in line["preempted"]]
                times = {"scheduled": line["scheduled_ns"], "done": line["done_ns"]}
                yield {"kind": "step"} | times | {"requests": requests, "preempted": preempted}
        for line in json_lines(self.log_dir / "iterations.jsonl"):
            if line["at_ns"] >= started_ns:
                line["finished"] = [[own_id(each, names), *rest] for each, *rest in line.get("finished", ())]
                yield {"kind": "iteration", "at": line.pop("at_ns")} | line

    def stop(self) -> None:
        # A stopped process cannot be terminated; wake all of the group first.
        for number in (signal.SIGCONT, signal.SIGTERM):
            signal_group(self.process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(STOP_LIMIT_SECONDS)
        signal_group(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.log.close()


def own_id(engine_id: str, names: Collection[str]) -> str:
    """vLLM makes `chatcmpl-<X-Request-Id>-<random>` of our id; and of those of several prompts or choices more."""
    own = _FRONT.sub("", engine_id)
    parts = own.split("-")
    shorter = ("-".join(parts[:end]) for end in range(len(parts) - 1, 0, -1))
    return next((each for each in shorter if each in names), own)


def json_lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def end_with_parent() -> None:
    """In a child before it becomes another program: the kernel ends it when we die, even if we are killed."""
    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGTERM)


def is_healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def signal_group(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, number)


def descendants(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            yield int(child)
            yield from descendants(int(child))


def process_name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode() or ""
    except OSError:
        return ""
