"""What a token costs the simulated server: engine model, answer and HTTP server together.

    python -m tests.bench.simulator [--streams 256 1000 2000]      this checkout
    python -m tests.bench.simulator --before DIR                   and the one in DIR, in turns with it

Every side is a process of its own. CPU time counts, so a busy machine hardly shows.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import os
import signal
import statistics
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import uvloop
from tests.bench import procstat

import prefillwatch

ROUNDS = 3
SETTLE_S = 2.0
HERE = Path(prefillwatch.__file__).parent.parent


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.simulator")
    parser.add_argument("--streams", type=int, nargs="+", default=[256, 1000, 2000])
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--before", type=Path, metavar="DIR", help="another checkout, measured in turns with this one")
    args = parser.parse_args()
    sides = {"here": HERE} | ({"before": args.before / "exporter"} if args.before else {})
    figures: dict[tuple[int, str], list[float]] = defaultdict(list)
    for _ in range(ROUNDS):
        for streams in args.streams:
            for side, path in sides.items():
                figures[streams, side].append(uvloop.run(measure(path, streams, args.seconds)))
    for (streams, side), values in figures.items():
        print(f"{streams:5} streams  {side:<6} {statistics.median(values):6.1f} µs per token  {sorted(values)}")


def _itself(reader: Reader) -> Reader:
    return reader


async def measure(path: Path, streams: int, seconds: float) -> float:
    """Microseconds of the server's CPU time per token that arrived, once all streams run."""
    command = [sys.executable, "-m", "prefillwatch", "sim", "--preset", "steady", "--listen", "127.0.0.1:0"]
    environment = {**os.environ, "PYTHONPATH": str(path)}
    server = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, env=environment)
    assert server.stdout is not None
    try:
        port = int((await server.stdout.readline()).decode().rpartition(":")[2])
        readers = [Reader() for _ in range(streams)]
        for reader in readers:
            await asyncio.get_running_loop().create_connection(functools.partial(_itself, reader), "127.0.0.1", port)
        while not all(reader.events for reader in readers):
            await asyncio.sleep(0.1)
        await asyncio.sleep(SETTLE_S)
        cpu, tokens = procstat.cpu_ns([server.pid]), sum(reader.events for reader in readers)
        await asyncio.sleep(seconds)
        cpu, tokens = procstat.cpu_ns([server.pid]) - cpu, sum(reader.events for reader in readers) - tokens
        return round(cpu / 1e3 / tokens, 1)
    finally:
        server.send_signal(signal.SIGKILL)
        await server.wait()


class Reader(asyncio.Protocol):
    """A client that asks for as long an answer as there is, and counts its events."""

    def __init__(self) -> None:
        self.events = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        asked = {"messages": [{"role": "user", "content": "go on"}], "stream": True, "max_tokens": 8000}
        body = json.dumps(asked | {"ignore_eos": True}).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: {len(body)}\r\n\r\n"
        transport.write(head.encode() + body)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        self.events += data.count(b"data: ")


if __name__ == "__main__":
    main()
