"""Plays scenarios: one vLLM for each set of flags, one sidecar for it, and one more for what goes through the hop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.real.engine import Engine
from tests.real.record_workload import Session
from tests.real.sidecar import Sidecar
from tests.real.truth.hop import BufferingHop
from tests.real.truth.live import Scenario, Take, play

Servers = Callable[[tuple[str, ...]], AbstractContextManager[Engine]]


@contextlib.contextmanager
def own_engine(flags: tuple[str, ...]) -> Iterator[Engine]:
    with TemporaryDirectory() as logs, Engine(Path(logs), flags) as engine:
        yield engine


def play_all(scenarios: Iterable[Scenario], servers: Servers, out: Path) -> Iterator[Take]:
    out.mkdir(parents=True, exist_ok=True)
    by_flags: dict[tuple[str, ...], list[Scenario]] = {}
    for scenario in scenarios:
        by_flags.setdefault(scenario.flags, []).append(scenario)
    for flags, group in by_flags.items():
        with servers(flags) as engine:
            asyncio.run(warm_up(engine))
            yield from _play_group(group, engine, out)


def _play_group(group: list[Scenario], engine: Engine, out: Path) -> Iterator[Take]:
    for through_hop in (False, True):
        members = [each for each in group if each.through_hop is through_hop]
        if not members:
            continue
        with contextlib.ExitStack() as stack:
            hop = stack.enter_context(BufferingHop(engine.port)) if through_hop else None
            upstream = hop.url if hop else engine.url
            name = f"{members[0].name}.serve.log"
            sidecar = stack.enter_context(Sidecar(out / name, ("serve", f"--upstream={upstream}")))
            for scenario in members:
                yield play(scenario, engine, sidecar, hop, out)


async def warm_up(engine: Engine) -> None:
    """Whatever vLLM compiles at the first request of its kind, it shall compile now."""
    session = Session(engine, seed=1)
    for tokens in (1500, 100):
        await session.send(f"warm{tokens}", "warm", session.text(tokens), 20)
