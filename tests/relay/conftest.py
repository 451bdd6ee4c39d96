"""A scripted upstream and a relay in front of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest
from tests.relay.peers import ScriptedUpstream
from tests.relay.running import RelayProcess, RunningRelay


@pytest.fixture
def upstream() -> Iterator[ScriptedUpstream]:
    with closing(ScriptedUpstream.on_tcp()) as upstream:
        yield upstream


@pytest.fixture
def start(upstream: ScriptedUpstream) -> Iterator[Callable[..., RunningRelay]]:
    """Starts a relay with options of its own."""
    with ExitStack() as stack:

        def start(url: str = upstream.url, **options: Any) -> RunningRelay:
            return stack.enter_context(closing(RunningRelay(url, **options)))

        yield start


@pytest.fixture
def relay(start: Callable[..., RunningRelay]) -> RunningRelay:
    return start()


@pytest.fixture
def start_process(upstream: ScriptedUpstream) -> Iterator[Callable[..., RelayProcess]]:
    """Starts the real process."""
    with ExitStack() as stack:

        def start_process(url: str = upstream.url, **options: Any) -> RelayProcess:
            return stack.enter_context(closing(RelayProcess(url, **options)))

        yield start_process
