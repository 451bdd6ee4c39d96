"""Record what a client sees of a real vLLM together with what the engine says it did, one file per workload.

    .venv/bin/python tests/real/record_workload.py --list
    .venv/bin/python tests/real/record_workload.py --out DIR [WORKLOAD ...]

Six victims decode all the time; what else happens is the workload. The files are gzipped JSON lines, first a header,
then everything in order of time; they hold sizes and times, no text. All times (`at`, `until`, `scheduled`, `done`) are
nanoseconds since the header's `started_monotonic_ns`, on one clock (client and engine ran on one machine). Kinds:

    header     workload, about, engine (version, flags, max_num_batched_tokens, chunked_prefill, block_size,
               kv_cache_tokens), started_unix
    request    at: last byte handed to the kernel. id, role (victim or prompt), endpoint, stream, body_bytes,
               prompt_chars, shared_prefix (name and characters of the text it has in common with other requests, or
               null), max_tokens
    read       at: one recv of an answer. id, tokens (token events completed by it), chars (of their text), bytes
    end        at. id, outcome (ok, error or cut), prompt_tokens, cached_tokens, completion_tokens (null without usage)
    gauges     at: the upstream's page read. running, waiting, kv_usage, preemptions (total)
    late       at, until: the recorder itself did not run for 30 ms or more; times of reads in between are wrong
    fault      at, until, what: what was done to the server (engine_stopped, api_server_stopped)
    step       scheduled, done: TRUTH, the engine's steps. requests [[id, tokens, kind, computed before]], kind "p"
               prefill, "d" decode, "r" recomputed after a preemption; preempted [id]
    iteration  at, index, elapsed_ms, prefill_tokens, decode_tokens, itl, finished, …: TRUTH as vLLM's stat logger has
               it; see steplog.py, which writes both
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.real.client import Answer, ask
from tests.real.engine import MODEL_NAME, Engine
from tests.real.served import CHAT, NATIVE, Sent, Server

# Words that are one token each with a leading space, whatever the tokenizer was trained on in detail: all are frequent
# in Python's own source.
WORDS = tuple(
    "import self return def class None True False for in if not and or is else with from as raise name value".split()  # noqa: SIM905 (a list of 22 strings is no easier to read)
)
VICTIMS = 6
OWN_STALL_NS = 30_000_000
LEAD_SECONDS = 3.0  # decoding alone before the first thing happens, so that there is a baseline


@dataclass
class Session:
    """One recording in the making: sends requests to the engine and keeps everything."""

    engine: Server
    seed: int
    sent: list[Sent] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    over: asyncio.Event = field(default_factory=asyncio.Event)
    started_ns: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def text(self, tokens: int) -> str:
        return "".join(" " + self.random.choice(WORDS) for _ in range(tokens))

    def victims(self, max_tokens: int, count: int = VICTIMS, prompt_tokens: int = 24) -> list[asyncio.Task[None]]:
        return [self.send(f"v{i}", "victim", self.text(prompt_tokens), max_tokens) for i in range(count)]

    def prompt(self, tokens: int, max_tokens: int = 8, **more: Any) -> asyncio.Task[None]:
        number = sum(each.role == "prompt" for each in self.sent)
        return self.send(f"p{number}", "prompt", self.text(tokens), max_tokens, **more)

    def send(
        self,
        name: str,
        role: str,
        text: str,
        max_tokens: int,
        shared: tuple[str, str] | None = None,
        path: str = CHAT,
        past_sidecar: bool = False,
        leaves_after: float = 0.0,
        **extra: Any,
    ) -> asyncio.Task[None]:
        """Start one streaming request; `shared` is the name and the text of a prefix that other requests have too."""
        content = (shared[1] if shared else "") + text
        asked = (native if path == NATIVE else chat)(content, max_tokens)
        prefix = {"name": shared[0], "chars": len(shared[1])} if shared else None
        body = json.dumps(asked | extra).encode()
        sent = Sent(name, role, body, content, prefix, max_tokens, path, past_sidecar, leaves_after)
        self.sent.append(sent)
        task = asyncio.create_task(self._exchange(sent))
        self.tasks.append(task)
        return task

    async def _exchange(self, sent: Sent) -> None:
        headers = {"X-Request-Id": sent.id}
        sent.answer = await ask(self.engine.port, sent.path, sent.body, headers, leave=self.over, limit_seconds=170)

    async def fault(self, what: str, pid: int, seconds: float) -> None:
        """Stop a process of the server for a while."""
        at = time.monotonic_ns()
        os.kill(pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            os.kill(pid, signal.SIGCONT)
        self.events.append({"kind": "fault", "at": at, "until": time.monotonic_ns(), "what": what})

    async def watch_gauges(self) -> None:
        while True:
            answer = await ask(self.engine.port, "/metrics", limit_seconds=60)
            self.events.append({"kind": "gauges", "at": answer.ended_ns} | gauges(answer.body.decode()))
            await asyncio.sleep(1.0)

    async def watch_ourselves(self) -> None:
        while True:
            before = time.monotonic_ns()
            await asyncio.sleep(0.005)
            now = time.monotonic_ns()
            if now - before > OWN_STALL_NS:
                self.events.append({"kind": "late", "at": before, "until": now})


def chat(content: str, max_tokens: int) -> dict[str, Any]:
    return {
        "model": MODEL_NAME,
        "messages": [{"role": "user", "content": content}],
        "max_tokens": max_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def native(content: str, max_tokens: int) -> dict[str, Any]:
    """For llama.cpp's own endpoint."""
    return {"prompt": content, "n_predict": max_tokens, "temperature": 0, "ignore_eos": True, "stream": True}


def gauges(page: str) -> dict[str, float]:
    names = {
        "vllm:num_requests_running": "running",
        "vllm:num_requests_waiting": "waiting",
        "vllm:kv_cache_usage_perc": "kv_usage",
        "vllm:num_preemptions_total": "preemptions",
    }
    found: dict[str, float] = {}
    for line in page.splitlines():
        name = line.split("{", 1)[0]
        if name in names:
            found[names[name]] = float(line.rsplit(" ", 1)[1])
    return found


# --- The workloads --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Workload:
    """What happens while six victims decode; workloads with the same extra `flags` of vLLM share a server."""

    about: str
    drive: Callable[[Session], Awaitable[None]]
    flags: tuple[str, ...] = ()


async def single_prompts(session: Session) -> None:
    for _ in range(4):
        session.prompt(2500)
        await asyncio.sleep(7)


async def twelve_at_once(session: Session) -> None:
    for tokens in (400, 2700, 1200, 2700, 5000, 800, 2700, 3500, 300, 2700, 1800, 2700):
        session.prompt(tokens)
    await asyncio.sleep(26)


async def short_prompts(session: Session) -> None:
    for _ in range(80):
        session.prompt(300)
        await asyncio.sleep(0.25)


async def shared_prefixes(session: Session) -> None:
    document = session.text(5000)
    for _ in range(8):
        session.prompt(600, shared=("document", document))
        await asyncio.sleep(3.5)


async def engine_stopped(session: Session) -> None:
    for seconds in (0.6, 1.5, 2.5):
        await session.fault("engine_stopped", session.engine.core_pid(), seconds)
        await asyncio.sleep(4)


async def engine_stopped_with_prompt(session: Session) -> None:
    for seconds in (0.6, 1.5, 2.5, 1.0):
        session.prompt(300)
        await asyncio.sleep(0.02)
        await session.fault("engine_stopped", session.engine.core_pid(), seconds)
        await asyncio.sleep(4)


async def frontend_stopped(session: Session) -> None:
    for seconds in (0.6, 1.5, 2.5):
        await session.fault("api_server_stopped", session.engine.process.pid, seconds)
        await asyncio.sleep(4)


async def first_logprobs(session: Session) -> None:
    session.prompt(25)
    session.prompt(25, logprobs=True, top_logprobs=2)
    await asyncio.sleep(0.03)
    session.prompt(25)
    await asyncio.sleep(16)


async def preemption(session: Session) -> None:
    """Nothing more to do: the victims grow until they no longer fit."""


async def mixed_sizes(session: Session) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        tokens = session.random.choices((30, 300, 1200, 2700, 6000), (8, 4, 2, 2, 1))[0]
        session.prompt(tokens, max_tokens=session.random.choice((8, 30, 100)))
        await asyncio.sleep(session.random.expovariate(1.2))
    await asyncio.sleep(6)


async def nobody_decoding(session: Session) -> None:
    for tokens in (2500, 300, 5000):
        session.prompt(tokens, max_tokens=1)
        await asyncio.sleep(4)
    for tokens in (2500, 30, 1500, 700, 30):
        session.prompt(tokens, max_tokens=1)
    await asyncio.sleep(8)


async def quiet(session: Session) -> None:
    await asyncio.sleep(10)


NO_CHUNKS = ("--no-enable-chunked-prefill", "--max-num-batched-tokens=16384")
FEW_BLOCKS = ("--num-gpu-blocks-override=18", "--max-model-len=2048")
WORKLOADS = {
    "first-logprobs": Workload(
        "the first request for logprobs makes the engine compile; 25-token prompts", first_logprobs
    ),
    "quiet": Workload("nothing but six victims", quiet),
    "single-2500": Workload("one 2,500-token prompt every 7 s", single_prompts),
    "twelve-at-once": Workload("twelve prompts of 300 to 5,000 tokens at once", twelve_at_once),
    "short-300": Workload("300-token prompts, four a second", short_prompts),
    "shared-prefix": Workload("5,600-token prompts of which 5,000 are the same", shared_prefixes),
    "engine-stopped": Workload("the engine process is stopped three times, no prompt in flight", engine_stopped),
    "engine-stopped-300": Workload(
        "the engine is stopped with a 300-token prompt in flight", engine_stopped_with_prompt
    ),
    "frontend-stopped": Workload("the API server is stopped three times, the engine goes on", frontend_stopped),
    "mixed": Workload("prompts of 30 to 6,000 tokens at random", mixed_sizes),
    "nobody-decoding": Workload("prompts with one token of answer, no victims", nobody_decoding),
    "preemption": Workload("a KV cache too small for six victims", preemption, FEW_BLOCKS),
    "twelve-unchunked": Workload("twelve prompts at once, chunked prefill off", twelve_at_once, NO_CHUNKS),
    "single-unchunked": Workload("one 2,500-token prompt every 7 s, chunked prefill off", single_prompts, NO_CHUNKS),
}
WITHOUT_VICTIMS = {"nobody-decoding"}
VICTIM_TOKENS = {"preemption": 700}  # they end by themselves; all others are cut when the recording is over


async def record(engine: Engine, name: str, seed: int) -> Session:
    session = Session(engine, seed)
    session.started_ns = time.monotonic_ns()
    watchers = [asyncio.create_task(watch) for watch in (session.watch_gauges(), session.watch_ourselves())]
    victims = [] if name in WITHOUT_VICTIMS else session.victims(VICTIM_TOKENS.get(name, 14_000))
    await asyncio.sleep(LEAD_SECONDS)
    await WORKLOADS[name].drive(session)
    prompts = [task for task in session.tasks if task not in victims]
    if awaited := prompts or (victims if name in VICTIM_TOKENS else []):
        await asyncio.wait(awaited, timeout=60)
    await asyncio.sleep(1.0)
    session.over.set()
    await asyncio.gather(*session.tasks)
    for watcher in watchers:
        watcher.cancel()
    return session


# --- The file -------------------------------------------------------------------------------------------------------


def write_recording(path: Path, name: str, session: Session, header: dict[str, Any]) -> None:
    start = session.started_ns
    lines = [*request_lines(session), *session.events, *session.engine.truth_lines(session.started_ns, session.sent)]
    for line in lines:
        for key in ("at", "until", "scheduled", "done"):
            if key in line:
                line[key] -= start
    lines.sort(key=lambda line: line["at"] if "at" in line else line["done"])
    # No name and no time in the gzip header: the same recording is the same file.
    with path.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed:
        for line in [header, *(line for line in lines if line.get("at", 0) >= 0)]:
            packed.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")


def request_lines(session: Session) -> Iterator[dict[str, Any]]:
    for sent in session.sent:
        answer = sent.answer
        if answer is None:
            raise SystemExit(f"request {sent.id} has no answer; the recording is worthless")
        yield {
            "kind": "request",
            "at": answer.sent_ns,
            "id": sent.id,
            "role": sent.role,
            "endpoint": "chat",
            "stream": True,
            "body_bytes": len(sent.body),
            "prompt_chars": len(sent.content),
            "shared_prefix": sent.shared_prefix,
            "max_tokens": sent.max_tokens,
        }
        yield from read_lines(sent.id, answer)
        yield end_line(sent.id, answer)


def read_lines(name: str, answer: Answer) -> Iterator[dict[str, Any]]:
    texts: dict[int, list[str]] = {}
    for read, event in answer.timed_events():
        texts.setdefault(read.at_ns, []).extend(filter(None, map(delta_text, event.get("choices") or (event,))))
    for read in answer.reads:
        found = texts.get(read.at_ns, [])
        chars = sum(map(len, found))
        yield {
            "kind": "read",
            "at": read.at_ns,
            "id": name,
            "tokens": len(found),
            "chars": chars,
            "bytes": len(read.body),
        }


def delta_text(choice: dict[str, Any]) -> str:
    said = choice.get("delta", choice)
    text: str = said.get("content") or said.get("text") or ""
    return text


def end_line(name: str, answer: Answer) -> dict[str, Any]:
    usage: dict[str, Any] = next((event["usage"] for event in reversed(answer.events()) if event.get("usage")), {})
    return {
        "kind": "end",
        "at": answer.ended_ns,
        "id": name,
        "outcome": "error" if answer.status != 200 else "ok" if answer.complete else "cut",
        "prompt_tokens": usage.get("prompt_tokens"),
        "cached_tokens": (usage.get("prompt_tokens_details") or {}).get("cached_tokens"),
        "completion_tokens": usage.get("completion_tokens"),
    }


async def warm_up(engine: Engine) -> None:
    session = Session(engine, seed=1)
    for tokens in (3000, 100):
        await session.send(f"warm{tokens}", "warm", session.text(tokens), 20)


def record_all(names: list[str], out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    by_flags: dict[tuple[str, ...], list[str]] = {}
    for name in names:
        by_flags.setdefault(WORKLOADS[name].flags, []).append(name)
    for flags, group in by_flags.items():
        with tempfile.TemporaryDirectory() as logs, Engine(Path(logs), flags) as engine:
            asyncio.run(warm_up(engine))
            facts = engine.facts()
            for name in group:
                record_one(engine, name, facts, out)


def record_one(engine: Engine, name: str, facts: dict[str, Any], out: Path) -> None:
    started_unix = time.time()
    session = asyncio.run(record(engine, name, seed=len(name)))
    header = {
        "kind": "header",
        "format": 1,
        "workload": name,
        "about": WORKLOADS[name].about,
        "engine": facts,
        "started_unix": round(started_unix, 3),
        "started_monotonic_ns": session.started_ns,
    }
    path = out / f"{name}.jsonl.gz"
    write_recording(path, name, session, header)
    print(f"{path}: {path.stat().st_size // 1024} KiB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="name the workloads and stop")
    parser.add_argument("--out", type=Path, default=Path("tests/data/recordings"), help="folder for the recordings")
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help="which to record; all if none is named")
    args = parser.parse_args()
    if args.list:
        for name, workload in WORKLOADS.items():
            print(f"{name:20} {workload.about}")
        return
    if unknown := set(args.workloads) - set(WORKLOADS):
        parser.error(f"no workload named {', '.join(sorted(unknown))}; --list names them")
    record_all(args.workloads or list(WORKLOADS), args.out)


if __name__ == "__main__":
    main()
