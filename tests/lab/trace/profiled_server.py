"""The simulated vLLM with the profiler's endpoints in front of it, in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.lab.trace.gpu_trace import GpuTrace, MadeStep, write

from prefillwatch.lab.simulator import SimServer, SimSettings

STEPS = (*[MadeStep(22.0)] * 4, *[MadeStep(39.0, 353)] * 3, *[MadeStep(22.0)] * 5)


@dataclass
class ProfiledServer:
    """What the profiler was told, and how it answers."""

    folder: Path
    start_status: int = 200
    stop_status: int = 200
    #: Path and JSON of each request to the profiler.
    told: list[tuple[str, Any]] = field(default_factory=list)
    chats: int = 0
    on_start: Callable[[], None] = lambda: None
    url: str = ""
    running: bool = False
    _sim: str = ""
    _open: dict[asyncio.Task[Any], asyncio.StreamWriter] = field(default_factory=dict)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open[task] = writer
        # Ended by `end`, it ends like any other: asyncio would log a cancelled handler as an error.
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await self._answer(reader, writer)
            writer.close()
            await writer.wait_closed()
        writer.transport.abort()
        del self._open[task]

    async def end(self) -> None:
        while self._open:
            for task in self._open:
                task.cancel()
            await asyncio.wait(set(self._open))
        await asyncio.sleep(0.01)  # for the sockets to be closed, which transports put off

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        method, path, _ = head.decode().split(" ", 2)
        lengths = [int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
        body = await reader.readexactly(lengths[0] if lengths else 0)
        self.chats += path.endswith("/chat/completions")
        if path not in ("/start_profile", "/stop_profile"):
            await self._forward(head + body, reader, writer)
            return
        status = self._profile(method, path, body)
        text = b'{"error": {"message": "it is broken"}}' if status == 500 else b""
        writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(text)}\r\n\r\n".encode() + text)
        await writer.drain()

    def _profile(self, method: str, path: str, body: bytes) -> int:
        if self.start_status == 404:
            return 404
        if method == "GET":
            return 405
        self.told.append((path, json.loads(body)))
        if path == "/start_profile":
            self.running = self.start_status == 200
            self.on_start()
            return self.start_status
        self.running = False
        prefix = self.told[0][1]["profile_prefix"]
        write(self.folder / f"{prefix}_rank0.17.pt.trace.json.gz", GpuTrace(STEPS).events())
        write(self.folder / f"{prefix}_rank1.18.pt.trace.json.gz", GpuTrace(STEPS[:4]).events())
        write(self.folder / f"{prefix}_host_1.async_llm.16.pt.trace.json.gz", [])
        return self.stop_status

    async def _forward(self, request: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self._sim.removeprefix("http://").partition(":")
        sim_reader, sim_writer = await asyncio.open_connection(host, int(port))
        sim_writer.write(request)
        gone = asyncio.ensure_future(reader.read(1))
        gone.add_done_callback(lambda _: sim_writer.close())
        try:
            while data := await sim_reader.read(65536):
                writer.write(data)
                await writer.drain()
        finally:
            gone.cancel()
            sim_writer.close()


@contextlib.contextmanager
def profiled_server(folder: Path, **settings: Any) -> Iterator[ProfiledServer]:
    """`with profiled_server(folder) as server: … server.url …`; the settings are those of `ProfiledServer`."""
    server = ProfiledServer(folder, **settings)
    ready, end = threading.Event(), asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        async with SimServer(SimSettings(preset="small")) as sim:
            server._sim = sim.url
            listener = await asyncio.start_server(server.answer, "127.0.0.1", 0)
            server.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
            ready.set()
            await end.wait()
            # A connection that was just accepted would be left open by asyncio if the listener closed right now.
            await asyncio.sleep(0.05)
            listener.close()
            await server.end()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert ready.wait(10)
    try:
        yield server
    finally:
        loops[0].call_soon_threadsafe(end.set)
        thread.join()
