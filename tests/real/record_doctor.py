"""Records what doctor reads on the page of a real vLLM with our plugin, while long prompts come into steady answers.

    python -m tests.real.record_doctor

writes tests/data/doctor/plugin.json.xz, in the form of `tests.doctor.record`.
"""

from __future__ import annotations

import asyncio
import lzma
import tempfile
import time
from pathlib import Path

import httpx
import msgspec
from tests.doctor.record import FOLDER
from tests.real.engine import Engine
from tests.real.test_doctor import read_on
from tests.real.test_plugin import chat, vllm

PAGES = 5
PROMPTS_BETWEEN = 3


async def record(engine: Engine) -> dict[str, object]:
    leave = asyncio.Event()
    readers = [asyncio.create_task(read_on(engine, f"{i} begin", leave)) for i in range(4)]
    await asyncio.sleep(5.0)
    pages, started = [_page(engine)], time.monotonic()
    while len(pages) < PAGES:
        await asyncio.gather(*(chat(engine.port, 2000 + 100 * len(pages) + i, 4) for i in range(PROMPTS_BETWEEN)))
        await asyncio.sleep(2.0)
        pages.append(_page(engine))
    seconds = time.monotonic() - started
    leave.set()
    await asyncio.gather(*readers)
    return {"pages": pages, "seconds": seconds}


def _page(engine: Engine) -> str:
    return httpx.get(f"{engine.url}/metrics").text


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, vllm(Path(folder)) as engine:
        document = {"server": asyncio.run(record(engine))}
    path = FOLDER / "plugin.json.xz"
    path.write_bytes(lzma.compress(msgspec.json.encode(document), preset=9))
    print(path, path.stat().st_size)


if __name__ == "__main__":
    main()
