"""Metrics and incidents of a scene, pushed by OTLP and read by OpenTelemetry's own messages."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from tests.kit.eventually import PATIENCE_S, eventually
from tests.kit.otlp import Receiver, plain, receiver
from tests.scenarios.playbook import Scene, beat

from prefillwatch import __version__
from prefillwatch.contract.buckets import LAG_BOUNDS
from prefillwatch.engine.upstream import Scrapes
from prefillwatch.export import table
from prefillwatch.export.exponential import SCALE, bucket_of
from prefillwatch.export.otel_names import otel_name
from prefillwatch.observer.otlp import OtlpPush
from prefillwatch.settings.processes import OtlpSettings
from prefillwatch.wire.tap import Kind, RelayStats, encode_payload

UPSTREAM = "http://gpu-7.example:8000"
CULPRIT, VICTIM = "c" * 32, "a" * 32
SPAN = "00f067aa0ba902b7"
CUMULATIVE = 2


@pytest.fixture(scope="module")
def scene() -> Scene:
    """Three streams that stand still for 830 ms, one of which has a trace, as has the prompt that does it."""
    scene = Scene(exponential=True)
    scene.victims(3, beat(21, 12_000, (7000, 830)), traceparents=[f"00-{VICTIM}-{SPAN}-01"])
    prompt = scene.prompt(5400, 6000, "lump", traceparent=f"00-{CULPRIT}-{SPAN}-00")
    prompt.answers(beat(21, 8200, start=7830)).ends(8210)
    lag = RelayStats(1, 1, 0, 1, lag_bounds=LAG_BOUNDS, lag_counts=(5, 1, *[0] * (len(LAG_BOUNDS) - 1)), lag_sum=0.004)
    scene.at(9000, lambda relay: relay.add(9000, 0, Kind.STATS, encode_payload(lag)))
    return scene


@pytest.fixture(scope="module")
def sent(scene: Scene) -> Iterator[Receiver]:
    with receiver() as there:
        push = OtlpPush(settings(there.url, headers="authorization=Bearer%20abc"), scene.observed.observation, UPSTREAM)
        push.start()
        scene.play()
        push.push()
        push.close()
        eventually(lambda: there.metrics and there.traces)
        yield there


def settings(endpoint: str | None, traces: str | None = None, headers: str | None = None) -> OtlpSettings:
    return OtlpSettings(endpoint, traces, headers, 15.0)


def point(metric: Any, **labels: str) -> Any:
    """The one data point with these attributes."""
    data = getattr(metric, metric.WhichOneof("data"))
    (found,) = [each for each in data.data_points if labels.items() <= plain(each.attributes).items()]
    return found


# --- Metrics ---


def test_the_standards_histograms_have_what_the_standard_asks_for(sent: Receiver) -> None:
    required = {
        "gen_ai.request.model": "m",
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "_OTHER",
        "server.address": "gpu-7.example",
        "server.port": 8000,
    }
    for name, count in (("time_to_first_token", 4), ("time_per_output_token", 4), ("request.duration", 4)):
        metric = sent.metric(f"gen_ai.server.{name}")
        assert metric.unit == "s"
        assert metric.exponential_histogram.aggregation_temporality == CUMULATIVE
        found = point(metric)
        assert plain(found.attributes) == required, name
        assert found.count == count
    first = point(sent.metric("gen_ai.server.time_to_first_token"))
    assert first.sum == pytest.approx(3 * 0.09 + 2.43, abs=0.02)


def test_a_failed_request_has_its_outcome_as_type_of_error() -> None:
    scene = Scene(exponential=True)
    scene.prompt(100, 16).answers(beat(21, 300)).breaks_off(310)
    scene.prompt(100, 16).answers(beat(21, 300)).ends(310)
    with receiver() as there:
        push_once(scene, there)
        points = there.metric("gen_ai.server.request.duration").exponential_histogram.data_points
    assert sorted(plain(each.attributes).get("error.type", "") for each in points) == ["", "upstream_truncated"]


def push_once(scene: Scene, there: Receiver) -> None:
    push = OtlpPush(settings(there.url, "off"), scene.observed.observation, UPSTREAM)
    push.start()
    scene.play()
    push.push()
    push.close()
    eventually(lambda: there.metrics)


def test_gaps_are_in_exponential_buckets_by_their_own_length(scene: Scene, sent: Receiver) -> None:
    metric = sent.metric("prefillwatch.inter_token_latency")
    assert (metric.unit, metric.description) == ("s", table.INTER_TOKEN_LATENCY.help)
    frozen = point(metric, model="m", concurrent_prompt="2k-8k")
    assert frozen.scale == SCALE
    counts = dict(enumerate(frozen.positive.bucket_counts, frozen.positive.offset))
    assert sum(count for number, count in counts.items() if number >= bucket_of(0.75)) == 3
    assert frozen.count == scene.observed.counts(table.INTER_TOKEN_LATENCY)[("m", "2k-8k")]
    assert frozen.sum == pytest.approx(scene.observed.sums(table.INTER_TOKEN_LATENCY)[("m", "2k-8k")])


def test_of_a_histogram_whose_values_only_a_relay_saw_no_precision_is_made_up(sent: Receiver) -> None:
    lag = point(sent.metric("prefillwatch.relay_loop_lag"), relay="0")
    assert (lag.count, sum(lag.bucket_counts), lag.sum) == (6, 6, 0.004)
    assert list(lag.explicit_bounds) == list(table.RELAY_LOOP_LAG.bounds)


def test_counters_are_sums_that_rise_and_gauges_are_gauges(scene: Scene, sent: Receiver) -> None:
    stalls = sent.metric("prefillwatch.stalls")
    assert stalls.sum.is_monotonic
    assert stalls.sum.aggregation_temporality == CUMULATIVE
    assert point(stalls, cause="prefill").as_double == 3
    assert sent.metric("prefillwatch.build_info").gauge.data_points[0].as_double == 1


def test_all_that_the_page_has_is_sent(scene: Scene, sent: Receiver) -> None:
    page = {otel_name(family.spec).name for family in scene.observed.snapshot() if family.label_sets}
    own = {otel_name(spec).name for spec in (table.OTLP_EXPORTS, table.OTLP_DROPPED)}
    assert {name for name in sent.names() if name.startswith("prefillwatch.")} - own == page - own
    assert len(page) > 30


def test_a_slow_value_has_its_trace_as_exemplar(sent: Receiver) -> None:
    first = point(sent.metric("prefillwatch.time_to_first_token"), prompt_bucket="2k-8k")
    (exemplar,) = first.exemplars
    assert (exemplar.trace_id.hex(), exemplar.span_id.hex()) == (CULPRIT, SPAN)
    assert plain(exemplar.filtered_attributes) == {"request_id": "lump"}
    assert exemplar.as_double == pytest.approx(2.43, abs=0.02)


def test_who_sends_is_said_and_headers_are_sent_along(sent: Receiver) -> None:
    resource = plain(sent.metrics[-1].resource_metrics[0].resource.attributes)
    assert resource["service.name"] == "prefillwatch"
    assert resource["service.version"] == __version__
    assert resource["service.instance.id"].endswith("/gpu-7.example:8000")
    assert {headers["authorization"] for headers in sent.headers} == {"Bearer abc"}


def test_the_environment_has_the_last_word_on_who_we_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.instance.id=pod-3,k8s.pod.name=pod-3")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "watch")
    with receiver() as there:
        push_once(Scene(exponential=True), there)
        resource = plain(there.metrics[-1].resource_metrics[0].resource.attributes)
    assert (resource["service.name"], resource["service.instance.id"]) == ("watch", "pod-3")
    assert resource["k8s.pod.name"] == "pod-3"


# --- Traces ---


def test_an_incident_is_a_span_that_links_culprit_and_victim(scene: Scene, sent: Receiver) -> None:
    (span,) = sent.spans()
    incident = scene.incident()
    assert span.name == "freeze prefill"
    assert (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9 == pytest.approx(incident["duration_seconds"])
    assert span.start_time_unix_nano / 1e9 == pytest.approx(incident["started_at"], abs=PATIENCE_S)
    attributes = plain(span.attributes)
    assert attributes["gen_ai.request.model"] == "m"
    assert attributes["prefillwatch.incident.id"] == incident["id"]
    assert attributes["prefillwatch.incident.cause"] == "prefill"
    assert attributes["prefillwatch.incident.victims"] == 3
    assert attributes["prefillwatch.incident.strength"] == incident["evidence"]["strength"]
    assert attributes["prefillwatch.incident.stall_seconds"] == pytest.approx(incident["stall_seconds"])
    assert attributes["prefillwatch.incident.culprits"] == ["lump"]
    links = {plain(link.attributes)["prefillwatch.role"]: link for link in span.links}
    assert {role: link.trace_id.hex() for role, link in links.items()} == {"culprit": CULPRIT, "victim": VICTIM}
    assert {link.span_id.hex() for link in links.values()} == {SPAN}
    assert plain(links["culprit"].attributes)["prefillwatch.stall_seconds"] == pytest.approx(
        incident["stall_seconds"], rel=0.01
    )


def test_no_victim_and_no_text_is_named(sent: Receiver) -> None:
    assert b"victim-" not in sent.traces[0].SerializeToString()


def test_traces_may_go_elsewhere_and_metrics_nowhere(scene: Scene) -> None:
    again = Scene()
    again.victims(3, beat(21, 12_000, (7000, 830)))
    again.prompt(5400, 6000, "lump").answers(beat(21, 8200, start=7830)).ends(8210)
    with receiver() as there:
        push = OtlpPush(settings(None, there.url), again.observed.observation, UPSTREAM)
        push.start()
        again.play()
        push.close()
        eventually(lambda: there.traces)
        assert not there.metrics
    assert [span.name for span in there.spans()] == ["freeze prefill"]
    assert not there.spans()[0].links


# --- When it does not get through ---


def test_a_receiver_that_refuses_is_counted_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    observation = Scene(exponential=True).observed.observation
    with receiver() as there:
        there.status = 401
        push = OtlpPush(settings(there.url), observation, UPSTREAM)
        assert push._metrics is not None
        for _ in range(2):
            push.push()
            push._metrics.turn()
    (line,) = [each.getMessage() for each in caplog.records if each.name.startswith("prefillwatch.observer.otlp")]
    assert line.startswith(f"OTLP metrics do not get to {there.url}/v1/metrics: ")
    assert "401" in line
    observation.snapshot()
    exports = observation.registry.counter(table.OTLP_EXPORTS)
    assert exports.value(("metrics", "failed")) == 2
    assert exports.value(("metrics", "ok")) == 0


def test_where_nothing_is_to_be_sent_nothing_is_loaded_and_nothing_counted() -> None:
    observation = Scene().observed.observation
    push = OtlpPush(settings(None), observation, UPSTREAM)
    push.start()
    push.push()
    push.close()
    assert observation.standard is None
    observation.feed(Scrapes())
    observation.snapshot()
    assert not len(observation.registry.counter(table.OTLP_EXPORTS))
    code = "import prefillwatch.observer.process, sys; sys.exit('opentelemetry' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
