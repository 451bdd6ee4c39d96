"""What must not be called prefill: a healthy server, and three with troubles of another kind, watched all at once.

One real Prometheus scrapes four sidecars, each in front of a simulated server of its own.
"""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from tests.e2e.processes import Sidecar, Sim
from tests.e2e.prometheus_stack import NEWEST, Stack, fetch, stack
from tests.e2e.traffic import readers, slow_reader
from tests.kit.eventually import eventually

from prefillwatch.lab.load import CHAT, Kind

SCALE = 1 / 15
WATCHED_S = 36.0
PAUSE_S = 3.0
READ_LATE_S = 5.0
ABOUT_PREFILL = {"PrefillInterference", "PrefillHeadOfLine"}

#: Some of these are in prefill whenever the engine pauses: they stand still as well, and are no culprits.
QUICK_CHAT = Kind("chat", (250, 500), (20, 40), per_second=1.5)
#: Answers of 1,500 tokens; three of them do not fit into 4,608 tokens of KV cache together.
ESSAY = Kind("essay", (40, 60), (1400, 1600), per_second=0.5)

Start = Callable[..., Any]


@dataclass
class Place:
    """A simulated server with its sidecar."""

    sim: Sim
    sidecar: Sidecar

    @property
    def instance(self) -> str:
        return self.sidecar.admin.removeprefix("http://")


@pytest.fixture(scope="module")
def places() -> Iterator[dict[str, Place]]:
    with contextlib.ExitStack() as stopped:
        found = {}
        for name, preset in (("healthy", "article"), ("paused", "article"), ("slow", "small"), ("full", "tiny-kv")):
            sim = Sim("--preset", preset)
            stopped.callback(sim.kill)
            sidecar = Sidecar("serve", "--upstream", sim.url)
            stopped.callback(sidecar.kill)
            found[name] = Place(sim, sidecar)
        yield found


@dataclass
class Watched:
    """What was seen while everything ran."""

    states: set[tuple[str, str, str]]
    places: dict[str, Place]
    value: Callable[[str], float | None]

    def alerts(self, name: str, *states: str) -> set[str]:
        """Names of alerts that were in one of the states for a place at any time; in any state when none is given."""
        return {
            alert
            for alert, state, instance in self.states
            if instance == self.places[name].instance and (not states or state in states)
        }

    def stalled(self, name: str, cause: str) -> float:
        """Stall seconds of a place by cause."""
        instance = self.places[name].instance
        return self.value(f'sum(prefillwatch_stall_seconds_total{{instance="{instance}", cause="{cause}"}})') or 0.0


@pytest.fixture(scope="module")
def watched(places: dict[str, Place], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    targets = {
        "prefillwatch": [place.instance for place in places.values()],
        "vllm": [place.sidecar.url.removeprefix("http://") for place in places.values()],
    }
    folder = tmp_path_factory.mktemp("quiet")
    with stack(fetch(NEWEST), folder, targets, SCALE) as watch, contextlib.ExitStack() as traffic:
        began = time.monotonic()
        traffic.enter_context(readers(places["healthy"].sidecar.url, 3, CHAT))
        traffic.enter_context(readers(places["paused"].sidecar.url, 3, QUICK_CHAT))
        traffic.enter_context(readers(places["slow"].sidecar.url, 2, model="sim-0.5b"))
        traffic.enter_context(slow_reader(places["slow"].sidecar.url, 7500, model="sim-0.5b"))
        traffic.enter_context(readers(places["full"].sidecar.url, 4, ESSAY))
        _pause_now_and_then(places["paused"].sim, until=began + WATCHED_S)
        watched = Watched(set(), places, watch.value)
        # On a busy machine the buffers between server and reader take longer to fill.
        eventually(lambda: watched.stalled("slow", "client") > READ_LATE_S, "nobody waited for the slow reader", 90)
        yield dataclasses.replace(watched, states=_states(watch, began))


def _pause_now_and_then(sim: Sim, until: float) -> None:
    while time.monotonic() < until:
        time.sleep(5.0)
        sim.send(signal.SIGSTOP)
        time.sleep(PAUSE_S)
        sim.send(signal.SIGCONT)


def _states(watch: Stack, began: float) -> set[tuple[str, str, str]]:
    return watch.alert_states(time.monotonic() - began + 10)


def test_a_healthy_server_gives_no_alert(watched: Watched) -> None:
    """But one may say that a machine busy with tests makes the sidecar wait for a core."""
    assert watched.alerts("healthy", "firing") - {"MeasurementUnreliable"} == set()


@pytest.mark.parametrize("place", ["healthy", "paused", "slow", "full"])
def test_nobody_is_warned_of_prefill(watched: Watched, place: str) -> None:
    """Pending they may be for moments: where a machine busy with tests starves a simulator, prompts are read late."""
    assert watched.alerts(place, "firing") & ABOUT_PREFILL == set()


def test_no_stall_time_to_speak_of_is_put_down_to_prefill(watched: Watched) -> None:
    """A little is, and rightly: prompts that gathered during a pause are read together in one step behind it."""
    for name, place in watched.places.items():
        seconds = 'sum(prefillwatch_stall_seconds_total{{instance="{}", cause{}"prefill"}}) or vector(0)'
        blamed = watched.value(seconds.format(place.instance, "="))
        others = watched.value(seconds.format(place.instance, "!="))
        assert blamed is not None
        assert others is not None
        assert blamed <= 0.1 * others + 0.5, name


def test_the_engine_did_pause_and_readers_felt_it(watched: Watched) -> None:
    """Where no prompt was caught in the pause, nothing tells it from other silences, and no cause is named."""
    assert watched.stalled("paused", "engine_pause") + watched.stalled("paused", "unattributed") > 3 * PAUSE_S


def test_requests_were_preempted(watched: Watched) -> None:
    instance = watched.places["full"].instance
    assert (watched.value(f'sum(prefillwatch_preemptions_total{{instance="{instance}"}})') or 0) > 3
    assert watched.alerts("full") & {"PreemptionStorm", "NotPrefillPreemption", "KVCacheNearlyFull"}


def test_a_client_did_read_slowly(watched: Watched) -> None:
    assert watched.stalled("slow", "client") > READ_LATE_S
    assert watched.stalled("slow", "client") > 10 * watched.stalled("slow", "engine_pause")
