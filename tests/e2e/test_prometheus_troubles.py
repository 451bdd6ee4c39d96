"""Troubles told by their names: what the alerts say of servers that are crowded, paused, full, mute, dead or gone.

One real Prometheus scrapes them all at once, and a real Alertmanager gets what it finds.
"""

from __future__ import annotations

import contextlib
import json
import re
import signal
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from tests.e2e.processes import CHAT, Sidecar, Sim
from tests.e2e.prometheus_stack import NEWEST, PATIENCE_S, Stack, fetch, free_port, stack
from tests.e2e.scripted_places import in_bursts, late_and_bunched, mute, repeatedly, scripted, starved, thrown_out
from tests.e2e.traffic import readers
from tests.kit.eventually import eventually

from prefillwatch.lab.load import Kind

SCALE = 1 / 15
PAUSE_S = 3.0
DUE_S = 90.0
ABOUT_PREFILL = {"PrefillInterference", "PrefillHeadOfLine"}
#: A document takes the simulated engine 1.3 s, so these come a little faster than they can be read; questions of a few
#: words come in between, and stand in line.
DOCUMENT = Kind("document", (9000, 11000), (5, 10), per_second=0.8)
QUESTION = Kind("question", (30, 60), (10, 20), per_second=2.0)
#: From these the cost of a prompt token is learned: who knows it does not put a pause down to a short prompt.
QUICK_CHAT = Kind("chat", (150, 400), (10, 20), per_second=3.0)
#: vLLM's own budget, which the simulated server has as well.
USUAL_BUDGET = 2048


@dataclass
class Troubles:
    watch: Stack
    instances: dict[str, str]

    def alert(self, name: str, place: str = "", said: str = "", **labels: str) -> dict[str, Any]:
        """As Alertmanager got it, which another alert may keep from being delivered; waits for it, and until its
        description says so. One about the whole fleet has no place."""
        of_place = {"instance": self.instances[place]} if place else {}
        filters = [f'{label}="{value}"' for label, value in {"alertname": name, **of_place, **labels}.items()]
        found: list[dict[str, Any]] = []

        def has_come() -> bool:
            alerts = received(self.watch, *filters)
            found[:] = [alert for alert in alerts if re.search(said, alert["annotations"]["description"])]
            return bool(found)

        def explain() -> str:
            return f"no {filters} {said!r}: {received(self.watch, *filters)} {sorted(self.watch.alert_states(120))}"

        eventually(has_come, explain, patience_s=DUE_S)
        return found[0]


def received(watch: Stack, *filters: str) -> list[dict[str, Any]]:
    answer = httpx.get(f"{watch.manager}/api/v2/alerts", params={"filter": list(filters)}, timeout=PATIENCE_S)
    alerts: list[dict[str, Any]] = answer.raise_for_status().json()
    return alerts


@pytest.fixture(scope="module")
def troubles(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Troubles]:
    with contextlib.ExitStack() as stopped:
        places = {}
        for name in ("crowded", "paused", "dead"):
            sim = Sim("--max-num-batched-tokens", str(USUAL_BUDGET), "--max-model-len", "65536")
            stopped.callback(sim.kill)
            places[name] = sim, Sidecar("serve", "--upstream", sim.url)
            stopped.callback(places[name][1].kill)
        scripts = {"late": late_and_bunched, "hop": in_bursts, "full": thrown_out, "mute": mute, "starved": starved}
        made = {name: stopped.enter_context(scripted()) for name in scripts}
        sidecars = {name: sidecar for name, (_, sidecar) in places.items()}
        sidecars |= {name: place.sidecar for name, place in made.items()}
        instances = {name: sidecar.admin.removeprefix("http://") for name, sidecar in sidecars.items()}
        instances["gone"] = f"127.0.0.1:{free_port()}"
        targets = {"prefillwatch": list(instances.values()), "vllm": []}
        watch = stopped.enter_context(stack(fetch(NEWEST), tmp_path_factory.mktemp("troubles"), targets, SCALE))
        # A signal that was never there cannot be lost.
        had_signal = f'prefillwatch_kv_signal_present{{instance="{instances["mute"]}"}} == 1'
        eventually(lambda: watch.query(had_signal), watch.log)
        for name, script in scripts.items():
            stopped.enter_context(script(made[name]))
        # One that was never up is a new one, which is given its time.
        was_up = f'prefillwatch_up{{instance="{instances["dead"]}"}} == 1'
        eventually(lambda: watch.query(was_up), watch.log)
        places["dead"][0].kill()
        stopped.enter_context(readers(places["crowded"][1].url, 3, DOCUMENT, QUESTION))
        stopped.enter_context(readers(places["paused"][1].url, 3, QUICK_CHAT))
        stopped.enter_context(_pausing(*places["paused"]))
        yield Troubles(watch, instances)


@contextlib.contextmanager
def _pausing(sim: Sim, sidecar: Sidecar) -> Iterator[None]:
    """Stops the engine now and then, each time with a question in prefill that is far too short to explain it."""

    def pause() -> None:
        if not sidecar.value("prefill_cost_seconds_per_token"):
            return
        with _asking(sidecar.url, words=250):
            time.sleep(0.03)
            sim.send(signal.SIGSTOP)
            time.sleep(PAUSE_S)
            sim.send(signal.SIGCONT)

    with repeatedly(2.0, pause):
        yield


@contextlib.contextmanager
def _asking(url: str, words: int) -> Iterator[None]:
    """A request that is on its way when the block begins, and whose answer is waited for at the end."""
    address = urlsplit(url)
    messages = [{"role": "user", "content": "word " * words}]
    body = json.dumps({"model": "sim-4b", "stream": True, "max_tokens": 5, "messages": messages}).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nHost: {address.netloc}\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection((address.hostname, address.port or 80), timeout=PATIENCE_S) as connection:
        connection.sendall(head.encode() + body)
        yield
        while connection.recv(65536):
            pass


def test_interference_names_the_sizes_to_blame_and_the_budget_that_would_help(troubles: Troubles) -> None:
    advice = r"Advice: --max-num-batched-tokens (\d+) keeps gaps under their target\."
    text = troubles.alert("PrefillInterference", "crowded", advice)["annotations"]["description"]
    (lost,) = re.findall(r"lost ([\d.]+)% of their decoding time", text)
    assert 5 < float(lost) <= 100
    assert re.search(r"size of the prompt to blame: 8k-32k tokens \(\d+ s\)", text)
    (budget,) = re.findall(advice, text)
    assert USUAL_BUDGET / 10 < int(budget) < USUAL_BUDGET


def test_questions_that_stand_behind_documents_are_told(troubles: Troubles) -> None:
    alert = troubles.alert("PrefillHeadOfLine", "crowded")
    assert alert["labels"]["model"] == "sim-4b"
    (tokens,) = re.findall(r"In prefill now: (\d+) prompt tokens", alert["annotations"]["description"])
    assert int(tokens) > DOCUMENT.prompt_tokens[0]


def test_a_pause_of_the_engine_is_told_from_prefill(troubles: Troubles) -> None:
    alert = troubles.alert("NotPrefillEnginePause", "paused")
    assert "Step budgets do not help" in alert["annotations"]["description"]
    assert not any(
        (name, instance) == ("PrefillInterference", troubles.instances["paused"])
        for name, _, instance in troubles.watch.alert_states(120)
    )


@pytest.mark.parametrize(
    ("name", "place", "labels", "said"),
    [
        ("NotPrefillFrontend", "late", {}, "handed on late and bunched"),
        ("NotPrefillPreemption", "full", {}, "the KV cache ran out"),
        ("PreemptionStorm", "full", {}, "more than 0.3 for each request"),
        ("KVCacheNearlyFull", "full", {"engine": "0"}, "uses 9"),
        ("QueueSaturation", "mute", {}, "40 requests wait"),
        ("FirstTokenStuck", "mute", {}, "without a first token has waited for "),
        ("KVSignalLost", "mute", {}, "has found no KV cache usage"),
        ("MeasurementUnreliable", "hop", {"reason": "buffering"}, "releases them in bursts"),
        ("MeasurementUnreliable", "starved", {"reason": "loop_lag"}, "it lacks CPU"),
    ],
)
def test_a_trouble_is_told_by_its_name(
    troubles: Troubles, name: str, place: str, labels: dict[str, str], said: str
) -> None:
    alert = troubles.alert(name, place, said, **labels)
    assert alert["annotations"]["runbook_url"].endswith(f"/{name}.md")


@pytest.mark.parametrize("place", ["late", "hop", "full", "mute", "starved"])
def test_none_of_these_is_put_down_to_prefill(troubles: Troubles, place: str) -> None:
    states = troubles.watch.alert_states(240)
    assert not {name for name, _, instance in states if instance == troubles.instances[place]} & ABOUT_PREFILL


@pytest.mark.parametrize(
    ("long", "severity"), [("1h", "critical"), ("6h", "critical"), ("1d", "warning"), ("3d", "warning")]
)
def test_the_budget_burns_in_every_window(troubles: Troubles, long: str, severity: str) -> None:
    assert troubles.alert("ITLBudgetBurn", model="sim-4b", long=long)["labels"]["severity"] == severity


def test_first_tokens_that_come_later_than_promised(troubles: Troubles) -> None:
    late = troubles.alert("TTFTHigh")
    assert late["labels"]["model"] == "sim-4b"
    assert "promised are" in late["annotations"]["description"]


@pytest.mark.parametrize(("name", "place"), [("UpstreamDown", "dead"), ("ExporterDown", "gone")])
def test_what_does_not_answer_is_paged(troubles: Troubles, name: str, place: str) -> None:
    troubles.alert(name, place)
    eventually(lambda: troubles.watch.webhook.alerts(name, "firing"), troubles.watch.log)
    (first, *_) = troubles.watch.webhook.alerts(name, "firing")
    assert first["path"] == "/pager"


#: What fires together on a replica, and which of it is not told because the other says it already.
TOLD_ALREADY = [
    ({"alertname": "ExporterDown", "reason": "scrape_failed"}, {"alertname": "StreamFreeze"}),
    ({"alertname": "UpstreamDown"}, {"alertname": "StreamFreeze"}),
    ({"alertname": "ITLBudgetBurn", "severity": "critical"}, {"alertname": "ITLBudgetBurn", "severity": "warning"}),
    ({"alertname": "StreamFreeze"}, {"alertname": "FirstTokenStuck"}),
    ({"alertname": "PrefillHeadOfLine"}, {"alertname": "QueueSaturation"}),
    ({"alertname": "PreemptionStorm"}, {"alertname": "KVCacheNearlyFull"}),
    ({"alertname": "MeasurementUnreliable"}, {"alertname": "PrefillInterference"}),
]


def test_what_is_told_already_is_not_told_again(troubles: Troubles) -> None:
    """By the shipped inhibition rules; on another replica, of another model or in another namespace, where the same
    names may be, it is told all the same."""
    posted = []
    for number, (source, target) in enumerate(TOLD_ALREADY):
        here = {"job": "prefillwatch", "instance": f"replica-{number}", "model": f"model-{number}"}
        elsewhere = {"job": "prefillwatch", "instance": f"other-{number}", "model": f"other-{number}"}
        of_others = {**here, "namespace": "another"}
        posted += [{**here, **source}, {**here, **target, "is": "known"}]
        posted += [{**place, **target, "is": "news"} for place in (elsewhere, of_others)]
    body = [{"labels": labels} for labels in posted]
    httpx.post(f"{troubles.watch.manager}/api/v2/alerts", json=body, timeout=PATIENCE_S).raise_for_status()
    status = {kind: received(troubles.watch, f'is="{kind}"') for kind in ("known", "news")}
    assert [len(alerts) for alerts in status.values()] == [len(TOLD_ALREADY), 2 * len(TOLD_ALREADY)]
    assert [alert["labels"] for alert in status["known"] if not alert["status"]["inhibitedBy"]] == []
    assert [alert["labels"] for alert in status["news"] if alert["status"]["inhibitedBy"]] == []
