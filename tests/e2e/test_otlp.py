"""A whole sidecar that pushes by OTLP: a freeze arrives, and a receiver that goes away harms nobody."""

from __future__ import annotations

import contextlib
import itertools
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import yaml
from tests.e2e.processes import Sidecar, Sim
from tests.e2e.prometheus_stack import NEWEST, PATIENCE_S, fetch, free_port
from tests.e2e.remote_write import hand_on
from tests.e2e.traffic import paste_document, readers
from tests.kit.eventually import eventually
from tests.kit.otlp import Receiver, plain, receiver

from prefillwatch.export.spec import Kind
from prefillwatch.export.table import INTER_TOKEN_LATENCY, TABLE

#: In one piece this takes the simulated engine some seconds.
DOCUMENT_TOKENS = 12_000
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def frozen_by_traced_prompt(there: Receiver) -> Any:
    """The span of the freeze that our prompt made."""
    found = [
        span
        for span in there.spans()
        for link in span.links
        if link.trace_id.hex() == TRACE and plain(link.attributes)["prefillwatch.role"] == "culprit"
    ]
    return found[0] if found else None


def test_a_freeze_arrives_with_the_trace_of_its_culprit(start: Callable[..., Any]) -> None:
    with receiver() as there:
        sim: Sim = start(Sim, "--no-enable-chunked-prefill", "--max-model-len", "65536")
        settings = ("--otlp-endpoint", there.url, "--otlp-interval", "1s")
        sidecar: Sidecar = start(Sidecar, "serve", "--upstream", sim.url, *settings)
        with readers(sidecar.url, 4):
            eventually(lambda: there.metrics and there.metric("prefillwatch.inter_token_latency"))
            answer = paste_document(sidecar.url, DOCUMENT_TOKENS, traceparent=f"00-{TRACE}-00f067aa0ba902b7-01")
            assert answer.complete, answer.error
            span = eventually(lambda: frozen_by_traced_prompt(there))
            eventually(lambda: there.metric("gen_ai.server.request.duration"))
        assert span.name == "freeze prefill"
        assert plain(span.attributes)["prefillwatch.incident.victims"] >= 1
        assert span.end_time_unix_nano > span.start_time_unix_nano
        assert sidecar.stop() == 0
    assert f"OTLP metrics get to {there.url}/v1/metrics" in sidecar.output
    assert "Traceback" not in sidecar.output


def test_a_receiver_that_is_gone_costs_a_line_in_the_log_and_no_token(start: Callable[..., Any]) -> None:
    with receiver() as there:
        pass
    sim: Sim = start(Sim)
    sidecar: Sidecar = start(
        Sidecar, "serve", "--upstream", sim.url, "--otlp-endpoint", there.url, "--otlp-interval", "1s"
    )
    eventually(lambda: (sidecar.value("otlp_exports_total", signal="metrics", outcome="failed") or 0) >= 2)
    answer = paste_document(sidecar.url, 100)
    assert answer.complete, answer.error
    assert sidecar.value("otlp_exports_total", signal="metrics", outcome="ok") == 0
    assert sidecar.output.count("OTLP metrics do not get to") == 1
    assert sidecar.stop() == 0
    assert "opentelemetry" not in sidecar.output


@contextlib.contextmanager
def prometheus(folder: Path, admin: str) -> Iterator[tuple[Callable[[str], list[dict[str, Any]]], str]]:
    """One that scrapes the sidecar and takes remote writes: what asks it for an expression, and its address."""
    config = {
        "global": {"scrape_interval": "1s"},
        "scrape_configs": [{"job_name": "scraped", "static_configs": [{"targets": [admin.removeprefix("http://")]}]}],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    address = f"127.0.0.1:{free_port()}"
    options = [
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
        "--web.enable-remote-write-receiver",
        "--enable-feature=native-histograms",
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([fetch(NEWEST)["prometheus"], *options], stdout=log, stderr=log)

    def ask(expression: str) -> list[dict[str, Any]]:
        answer = httpx.get(f"http://{address}/api/v1/query", params={"query": expression}, timeout=PATIENCE_S).json()
        assert answer["status"] == "success", answer
        found: list[dict[str, Any]] = answer["data"]["result"]
        return found

    try:
        eventually(lambda: _answers(f"http://{address}/-/ready"), (folder / "log").read_text)
        yield ask, f"http://{address}"
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=PATIENCE_S).status_code == 200
    except httpx.TransportError:
        return False


def test_prometheus_has_the_same_names_and_native_histograms_of_the_same_values(
    start: Callable[..., Any], tmp_path: Path
) -> None:
    with receiver() as there:
        sim: Sim = start(Sim)
        settings = ("--otlp-endpoint", there.url, "--otlp-traces-endpoint", "off", "--otlp-interval", "1s")
        sidecar: Sidecar = start(Sidecar, "serve", "--upstream", sim.url, *settings)
        with prometheus(tmp_path, sidecar.admin) as (ask, address):
            with readers(sidecar.url, 4):
                eventually(lambda: (sidecar.value("requests_total", outcome="ok") or 0) >= 2)
            eventually(lambda: sidecar.value("decoding_streams") == 0)
            seen = len(there.metrics)
            eventually(lambda: len(there.metrics) > seen + 1)  # the last is of when all was over
            hand_on(there.metrics[-1], address)
            names = {job: {each["metric"]["__name__"] for each in ask(_ALL.format(job=job))} for job in _JOBS}
            scraped = {re.sub("_(bucket|sum|count)$", "", name) for name in names["scraped"]}
            pushed = {name for name in names["prefillwatch"] if name.startswith("prefillwatch_")}
            assert pushed - _ONLY_SOMETIMES == scraped - _ONLY_SOMETIMES - {"prefillwatch_relay_loop_lag_seconds"}
            assert {name for name in names["prefillwatch"] if name.startswith("gen_ai_")} == {
                "gen_ai_server_time_to_first_token_seconds",
                "gen_ai_server_time_per_output_token_seconds",
                "gen_ai_server_request_duration_seconds",
            }
            gaps = "prefillwatch_inter_token_latency_seconds"
            (native,) = ask(f'histogram_count(sum({gaps}{{job="prefillwatch"}}))')
            classic = sidecar.value("inter_token_latency_seconds_count")
            assert float(native["value"][1]) == classic
            for quantile in (0.1, 0.5, 0.99):
                (middle,) = ask(f'histogram_quantile({quantile}, sum({gaps}{{job="prefillwatch"}}))')
                low, high = classic_bounds(sidecar, quantile)
                assert low / 1.1 <= float(middle["value"][1]) <= high * 1.1


_JOBS = ("scraped", "prefillwatch")
_ALL = '{{__name__=~"(prefillwatch|gen_ai)_.+", job="{job}"}}'
#: Gauges that come and go from one second to the next.
_ONLY_SOMETIMES = {spec.full_name for spec in TABLE if spec.kind is Kind.GAUGE}


def classic_bounds(sidecar: Sidecar, quantile: float) -> tuple[float, float]:
    """Of the fixed bucket that the quantile of all gaps is in."""
    bounds = (0.0, *INTER_TOKEN_LATENCY.bounds)
    total = sidecar.value("inter_token_latency_seconds_count")
    assert total
    for low, high in itertools.pairwise(bounds):
        if (sidecar.value("inter_token_latency_seconds_bucket", le=repr(high)) or 0.0) >= quantile * total:
            return low, high
    raise AssertionError("above all bounds")
