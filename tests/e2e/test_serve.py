"""`prefillwatch serve` as a user runs it, in front of the simulated server."""

from __future__ import annotations

import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from tests.e2e.processes import Sidecar, Sim, Stream, is_alive
from tests.kit.eventually import eventually

Serve = Callable[..., Sidecar]


def test_a_stream_is_passed_on_and_accounted_for(serve: Serve) -> None:
    sidecar = serve()
    stream = Stream(sidecar.url, tokens=20).end()
    assert stream.done
    eventually(lambda: sidecar.value("generated_tokens_total", model="sim-4b") == 20)
    assert sidecar.value("requests_total", model="sim-4b", endpoint="chat_completions", outcome="ok") == 1
    assert sidecar.value("time_to_first_token_seconds_count", model="sim-4b") == 1
    # A gap is told when it is known which prompt was in service meanwhile; two tokens may have come in one read.
    gaps, coalesced = "inter_token_latency_seconds_count", "coalesced_tokens_total"
    eventually(lambda: sum(sidecar.value(name, model="sim-4b") or 0 for name in (gaps, coalesced)) == 19)
    assert sidecar.value("inter_token_latency_p50_seconds", window="1m", population="all") is not None
    assert sidecar.stop() == 0


def test_the_servers_own_pages_stay_reachable(serve: Serve, sim: Sim) -> None:
    sidecar = serve()
    assert httpx.get(f"{sidecar.url}/v1/models").json() == httpx.get(f"{sim.url}/v1/models").json()
    assert "vllm:num_requests_running" in httpx.get(f"{sidecar.url}/metrics").text


def test_engine_figures_come_from_the_servers_metrics(serve: Serve) -> None:
    sidecar = serve()
    eventually(lambda: sidecar.value("kv_cache_capacity_tokens", engine="0") is not None)
    assert sidecar.value("kv_signal_present") == 1
    assert sidecar.value("up") == 1


def test_several_relays_share_the_port_and_one_account(serve: Serve) -> None:
    sidecar = serve("--relays", "3")
    streams = [Stream(sidecar.url, tokens=10) for _ in range(24)]
    assert all(stream.end().done for stream in streams)
    eventually(lambda: sidecar.value("generated_tokens_total", model="sim-4b") == 240)
    assert len(sidecar.pids("relay")) == 3
    received = [sidecar.value("tap_packets_total", relay=str(index)) for index in range(3)]
    assert all(received)


def test_no_token_is_lost_when_the_observer_is_killed(serve: Serve) -> None:
    sidecar = serve()
    stream = Stream(sidecar.url, tokens=120).begin()
    (killed,) = sidecar.pids("observer")
    os.kill(killed, signal.SIGKILL)
    assert stream.end().done
    assert stream.tokens == 120
    eventually(lambda: sidecar.readiness() == 200)
    (successor,) = sidecar.pids("observer")
    assert successor != killed
    assert Stream(sidecar.url, tokens=5).end().done
    eventually(lambda: (sidecar.value("requests_total", outcome="ok") or 0) >= 1)
    assert f"observer (pid {killed}) was killed by SIGKILL; it is started again in 0.1 s" in sidecar.output


def test_a_stream_that_was_running_is_known_to_the_next_observer(serve: Serve) -> None:
    sidecar = serve()
    stream = Stream(sidecar.url, tokens=400).begin()
    os.kill(sidecar.pids("observer")[0], signal.SIGKILL)
    eventually(lambda: sidecar.readiness() == 200)
    eventually(lambda: sidecar.value("decoding_streams", model="sim-4b") == 1)
    assert stream.end().done


def test_a_killed_relay_costs_its_own_streams_only(serve: Serve) -> None:
    sidecar = serve("--relays", "2")
    streams = [Stream(sidecar.url, tokens=150).begin() for _ in range(12)]
    killed = sidecar.pids("relay")[0]
    os.kill(killed, signal.SIGKILL)
    done = [stream.end().done for stream in streams]
    assert any(done)
    assert not all(done)
    assert all(stream.error for stream in streams if not stream.done)
    eventually(lambda: len(sidecar.pids("relay")) == 2 and killed not in sidecar.pids("relay"))
    assert all(Stream(sidecar.url, tokens=5).end().done for _ in range(8))
    assert sidecar.value("relay_restarts_total") == 1


def test_running_streams_end_well_after_sigterm(serve: Serve) -> None:
    sidecar = serve()
    pids = [process["pid"] for process in sidecar.state()["processes"]]
    stream = Stream(sidecar.url, tokens=100).begin()
    sidecar.send(signal.SIGTERM)
    eventually(lambda: sidecar.readiness() == 503)
    assert sidecar.value("draining") == 1
    assert httpx.get(f"{sidecar.admin}/healthz").status_code == 200
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{sidecar.url}/health")
    assert stream.end().done
    assert stream.tokens == 100
    assert sidecar.wait() == 0
    assert not any(map(is_alive, pids))


def test_an_answer_beyond_the_drain_limit_is_cut_so_that_the_client_knows(serve: Serve) -> None:
    sidecar = serve("--drain-timeout", "200ms")
    stream = Stream(sidecar.url, tokens=2000).begin()
    assert sidecar.stop() == 0
    assert not stream.end().done
    assert isinstance(stream.error, httpx.RemoteProtocolError)


def test_a_second_interrupt_cuts_at_once(serve: Serve) -> None:
    sidecar = serve("--drain-timeout", "1h")
    stream = Stream(sidecar.url, tokens=4000).begin()
    sidecar.send(signal.SIGINT)
    eventually(lambda: sidecar.readiness() == 503)
    time.sleep(0.6)  # a second one right behind the first is taken for the same
    assert sidecar.stop(signal.SIGINT) == 0
    assert not stream.end().done


def test_one_signal_for_the_whole_group_drains_as_well(serve: Serve) -> None:
    sidecar = serve("--drain-timeout", "1h")
    stream = Stream(sidecar.url, tokens=60).begin()
    for process in sidecar.state()["processes"]:
        os.kill(process["pid"], signal.SIGTERM)
    eventually(lambda: sidecar.readiness() == 503)
    assert stream.end().done
    assert sidecar.wait() == 0


def test_nothing_is_left_of_a_killed_supervisor(serve: Serve) -> None:
    sidecar = serve("--relays", "2")
    pids = [process["pid"] for process in sidecar.state()["processes"]]
    assert len(pids) == 4
    sidecar.stop(signal.SIGKILL)
    eventually(lambda: not any(map(is_alive, pids)))


def test_two_on_one_port_are_refused(serve: Serve, sim: Sim) -> None:
    sidecar = serve("--relays", "2")
    address = sidecar.url.removeprefix("http://")
    command = ["serve", "--upstream", sim.url, "--listen", address, "--admin", "127.0.0.1:0", "--relays", "2"]
    second = subprocess.run(
        [sys.executable, "-m", "prefillwatch", *command], capture_output=True, text=True, check=False
    )
    assert second.returncode == 1
    assert second.stderr == (
        f"prefillwatch: error: {address} is in use by another process; stop that one or choose another address with "
        "--listen\n"
    )


def test_serving_on_ipv6(serve: Serve) -> None:
    sidecar = serve("--listen", "[::1]:0")
    assert sidecar.url.startswith("http://[::1]:")
    assert Stream(sidecar.url, tokens=3).end().done


def test_serving_over_tls(serve: Serve, certificate: tuple[Path, Path]) -> None:
    cert, key = certificate
    sidecar = serve("--tls-cert", str(cert), "--tls-key", str(key))
    assert sidecar.url.startswith("https://127.0.0.1:")
    stream = Stream(sidecar.url, tokens=5, verify=ssl.create_default_context(cafile=cert)).end()
    assert stream.done
    assert sidecar.stop() == 0


def test_without_an_upstream_it_waits_and_says_502(start: Callable[..., Sidecar]) -> None:
    sidecar = start(Sidecar, "serve", "--upstream", "http://127.0.0.1:1", ready=False)
    eventually(lambda: sidecar.readiness() == 503)
    answer = httpx.post(f"{sidecar.url}/v1/chat/completions", json={"model": "m", "messages": []})
    assert answer.status_code == 502
    assert answer.json()["error"]["message"]
    assert sidecar.value("up") == 0


def test_settings_come_from_the_environment_and_a_file(sim: Sim, start: Callable[..., Sidecar], tmp_path: Path) -> None:
    file = tmp_path / "prefillwatch.yml"
    file.write_text(f"upstream: {sim.url}\nlog_format: json\nwindows: [5s]\n")
    sidecar = start(
        Sidecar,
        "serve",
        "--log-format",
        "text",
        environment={"PREFILLWATCH_CONFIG": str(file), "PREFILLWATCH_RELAYS": "2"},
    )
    assert len(sidecar.pids("relay")) == 2
    assert Stream(sidecar.url, tokens=3).end().done
    eventually(lambda: sidecar.value("inter_token_latency_p50_seconds", window="5s") is not None)


def test_secrets_and_texts_are_in_no_log_page_or_argument(serve: Serve) -> None:
    sidecar = serve("--log-level", "debug", environment={"PREFILLWATCH_UPSTREAM_API_KEY": "marker-own-key"})
    secret = {"Authorization": "Bearer marker-authorization", "X-Api-Key": "marker-api-key", "Cookie": "marker-cookie"}
    body = {"model": "marker-model", "messages": [{"role": "user", "content": "marker-prompt"}], "user": "marker-user"}
    httpx.post(f"{sidecar.url}/v1/chat/completions?key=marker-query", json=body, headers=secret)
    stream = Stream(sidecar.url, 3, True, **secret).end()
    assert stream.done
    pages = [httpx.get(f"{sidecar.admin}{path}").text for path in ("/", "/metrics", "/api/state", "/readyz")]
    arguments = [Path(f"/proc/{process['pid']}/cmdline").read_text() for process in sidecar.state()["processes"]]
    sidecar.stop()
    for text in (*pages, *arguments, sidecar.output):
        assert "marker" not in text
