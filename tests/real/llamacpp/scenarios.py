"""What is played to llama.cpp's server: prompts that freeze others, some of which we do not see, and stops.

In the order given: what prompts cost has been learned before anything comes that must not be blamed on them.
"""

from __future__ import annotations

import asyncio

from tests.real.served import NATIVE
from tests.real.truth.live import Live, Scenario


async def long_prompts(live: Live) -> None:
    for _ in range(3):
        live.prompt(2500)
        await asyncio.sleep(2.5)


async def queued_prompts(live: Live) -> None:
    """Six streams leave two slots free."""
    for _ in range(6):
        live.prompt(700)
    await asyncio.sleep(1)


async def clients_that_leave(live: Live) -> None:
    """The server reads on; somebody else's short prompt comes meanwhile."""
    live.prompt(5000, leaves_after=0.4)
    await asyncio.sleep(3.5)
    live.prompt(5000, leaves_after=0.4)
    await asyncio.sleep(0.6)
    live.prompt(120)
    await asyncio.sleep(3.5)


async def its_own_endpoint(live: Live) -> None:
    for _ in range(2):
        live.prompt(2500, path=NATIVE)
        await asyncio.sleep(2.5)


async def past_the_sidecar(live: Live) -> None:
    for _ in range(2):
        live.prompt(2500, past_sidecar=True)
        await asyncio.sleep(2.5)


async def stopped(live: Live) -> None:
    for seconds in (1.5, 2.5):
        await live.fault("engine_stopped", live.engine.core_pid(), seconds)
        await asyncio.sleep(2)
    live.prompt(120)
    await asyncio.sleep(0.02)
    await live.fault("engine_stopped", live.engine.core_pid(), 1.5)
    await asyncio.sleep(1)


SEEN = (
    Scenario("llamacpp-longs", "2,500-token prompts one by one", "prefill", long_prompts),
    Scenario("llamacpp-queued", "six prompts of 700 tokens for two free slots", "prefill", queued_prompts),
    Scenario("llamacpp-leavers", "clients that leave while their prompts are read", "prefill", clients_that_leave),
    Scenario("llamacpp-native", "prompts by its own endpoint", "prefill", its_own_endpoint),
)
UNSEEN = Scenario("llamacpp-unseen", "prompts past the sidecar", "prefill", past_the_sidecar)
STOPPED = Scenario("llamacpp-stopped", "the whole server is stopped", "engine_pause", stopped)
SCENARIOS = (*SEEN, UNSEEN, STOPPED)
