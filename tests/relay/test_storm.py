"""Many exchanges at once, each cut, paused, framed and ended at random: what arrives is what was sent."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from tests.kit.eventually import eventually, soon
from tests.relay.peers import chunk, post
from tests.relay.running import RunningRelay

from prefillwatch.wire.tap import Finish

EXCHANGES = 80
LIMIT_S = 60.0


@dataclass
class Plan:
    """What one exchange does; both ends follow it. Bodies of requests carry its number."""

    number: int
    framing: str = "chunked"
    events: list[bytes] = field(default_factory=list)
    request_size: int = 0
    end: str = "complete"  # or who leaves: "client", "upstream"

    @property
    def answer(self) -> bytes:
        body = b"".join(self.events)
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
        if self.framing == "chunked":
            return head + b"Transfer-Encoding: chunked\r\n\r\n" + b"".join(map(chunk, self.events)) + b"0\r\n\r\n"
        if self.framing == "length":
            return head + b"Content-Length: %d\r\n\r\n" % len(body) + body
        return head + b"Connection: close\r\n\r\n" + body

    @property
    def request(self) -> bytes:
        return post(body=b"%08d" % self.number + b"x" * self.request_size)


def plan(number: int, chance: random.Random) -> Plan:
    size = chance.choice([30, 200, 200, 3000, 20_000])
    return Plan(
        number,
        framing=chance.choice(["chunked", "chunked", "chunked", "length", "close"]),
        events=[b"data: " + bytes(chance.choices(b"abcdefgh", k=chance.randint(1, size))) + b"\n\n" for _ in range(40)],
        request_size=chance.choice([0, 100, 70_000, 300_000]),
        end=chance.choice(["complete", "complete", "complete", "client", "upstream"]),
    )


async def write_in_pieces(writer: asyncio.StreamWriter, data: bytes, chance: random.Random) -> None:
    position = 0
    while position < len(data):
        size = chance.choice([1, 7, 300, 5000, 80_000])
        writer.write(data[position : position + size])
        position += size
        if chance.random() < 0.5:
            await writer.drain()
        if chance.random() < 0.2:
            await asyncio.sleep(chance.random() * 0.005)
    await writer.drain()


class Storm:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.plans = [plan(number, self.chance) for number in range(EXCHANGES)]
        self.port = 0
        self.serving = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Upstream: any number of requests per connection."""
        self.serving += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                size = int(head.partition(b"Content-Length: ")[2].partition(b"\r\n")[0])
                body = await reader.readexactly(size)
                found = self.plans[int(body[:8])]
                assert body == found.request[-size:]
                answer = found.answer
                if found.end == "upstream":
                    answer = answer[: self.chance.randint(1, len(answer) - 6)]
                await write_in_pieces(writer, answer, self.chance)
                if found.end == "upstream" or found.framing == "close":
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            return  # the relay hung up
        finally:
            self.serving -= 1
            writer.close()

    async def ask(self, found: Plan) -> None:
        await asyncio.sleep(self.chance.random())
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=4096)
        try:
            await write_in_pieces(writer, found.request, self.chance)
            await self.compare(found, reader)
        finally:
            writer.close()

    async def compare(self, found: Plan, reader: asyncio.StreamReader) -> None:
        expected = found.answer
        stop = self.chance.randint(0, len(expected) - 6) if found.end == "client" else len(expected)
        seen = b""
        while len(seen) < stop:
            if self.chance.random() < 0.1:
                await asyncio.sleep(self.chance.random() * 0.02)
            try:
                data = await reader.read(self.chance.choice([100, 3000, 70_000]))
            except ConnectionResetError:
                break
            if not data:
                break
            seen += data
        if found.end == "upstream":
            assert expected.startswith(seen) or seen.startswith(b"HTTP/1.1 502 ")
            assert seen != expected
        else:
            assert seen[:stop] == expected[:stop]

    async def run(self, start: Callable[..., RunningRelay]) -> RunningRelay:
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0, limit=2**21)
        relay = start(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        self.port = relay.port
        observing = asyncio.create_task(self.observe(relay))
        await asyncio.wait_for(asyncio.gather(*map(self.ask, self.plans)), LIMIT_S)
        observing.cancel()
        server.close()
        relay.call(relay.relay.pool.close)
        await soon(lambda: not self.serving)
        return relay

    async def observe(self, relay: RunningRelay) -> None:
        while True:
            relay.tap.read()
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_storm(start: Callable[..., RunningRelay], seed: int) -> None:
    storm = Storm(seed)
    relay = asyncio.run(storm.run(start))
    assert relay.becomes_idle()
    assert eventually(lambda: not relay.relay.clients)
    assert relay.relay.tap.dropped == 0
    finishes = [relay.tap.end(stream).finish for stream in range(1, EXCHANGES + 1)]
    assert finishes.count(Finish.COMPLETE) >= sum(found.end == "complete" for found in storm.plans)
