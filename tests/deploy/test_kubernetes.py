"""What the kustomize component makes of a Deployment of vLLM."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.deploy.kustomization import Object, build

from prefillwatch.config import Settings, load

ROOT = Path(__file__).parents[2]
KUBERNETES = ROOT / "deploy/kubernetes"
#: What the supervisor gives processes beyond the drain, and the observer after them.
TO_END_S = 10


@pytest.fixture(scope="module")
def objects() -> list[Object]:
    return build(KUBERNETES / "example")


@pytest.fixture(scope="module")
def pod(objects: list[Object]) -> Object:
    return the(objects, "Deployment")["spec"]["template"]["spec"]


@pytest.fixture(scope="module")
def sidecar(pod: Object) -> Object:
    return pod["initContainers"][0]


@pytest.fixture(scope="module")
def vllm(pod: Object) -> Object:
    (container,) = pod["containers"]
    return container


def the(objects: list[Object], kind: str) -> Any:
    (found,) = (item for item in objects if item["kind"] == kind)
    return found


def variables(container: Object) -> dict[str, str]:
    return {item["name"]: item["value"] for item in container["env"]}


def settings_of(container: Object) -> Settings:
    return load({}, variables(container))


@pytest.mark.skipif(
    shutil.which("kubectl") is None, reason="kubectl is not installed; the same objects are built in Python"
)
def test_kubectl_builds_the_same_objects(objects: list[Object]) -> None:
    done = subprocess.run(
        ["kubectl", "kustomize", str(KUBERNETES / "example")], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert by_name(list(yaml.safe_load_all(done.stdout))) == by_name(objects)


def by_name(objects: list[Object]) -> dict[tuple[str, str], Object]:
    return {(item["kind"], item["metadata"]["name"]): item for item in objects}


def test_every_object_is_one_that_kubernetes_takes(objects: list[Object]) -> None:
    versions = {
        "Deployment": "apps/v1",
        "Service": "v1",
        "ConfigMap": "v1",
        "PodMonitor": "monitoring.coreos.com/v1",
        "PrometheusRule": "monitoring.coreos.com/v1",
        "NetworkPolicy": "networking.k8s.io/v1",
    }
    assert {item["kind"] for item in objects} == set(versions)
    for item in objects:
        assert item["apiVersion"] == versions[item["kind"]]
        assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", item["metadata"]["name"])
        assert all(isinstance(value, str) for value in item["metadata"]["labels"].values())
    assert len(by_name(objects)) == len(objects)


def test_a_native_sidecar_that_starts_before_vllm(pod: Object, sidecar: Object) -> None:
    assert [item["name"] for item in pod["initContainers"]] == ["prefillwatch"]
    assert sidecar["restartPolicy"] == "Always"
    assert sidecar["image"] == "registry.example.com/prefillwatch:0.1.0"


def test_settings_are_ones_we_have(sidecar: Object, vllm: Object) -> None:
    settings = settings_of(sidecar)
    assert sidecar["args"] == ["serve"]
    assert settings.required_upstream() == "http://127.0.0.1:8000"
    assert {"--host=127.0.0.1", "--port=8000"} <= set(vllm["args"])


def test_only_readiness_depends_on_vllm(sidecar: Object) -> None:
    """Else the kubelet waits for the sidecar, and the sidecar for vLLM, which the kubelet starts afterwards."""
    port = settings_of(sidecar).admin.port
    assert sidecar["startupProbe"]["httpGet"] == {"path": "/healthz", "port": port}
    assert sidecar["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": port}
    assert sidecar["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": port}


def test_probes_can_reach_what_they_ask(sidecar: Object, vllm: Object) -> None:
    assert settings_of(sidecar).admin.host == "0.0.0.0"
    assert "readinessProbe" not in vllm
    for name in ("startupProbe", "livenessProbe"):
        assert "httpGet" not in vllm[name], "the kubelet does not reach loopback"
        code = vllm[name]["exec"]["command"][-1]
        compile(code, name, "exec")
        assert "127.0.0.1:8000/health" in code


def test_order_of_the_end_fits_into_the_grace_period(pod: Object, sidecar: Object, vllm: Object) -> None:
    sleep, pre_stop = vllm["lifecycle"]["preStop"]["exec"]["command"]
    assert sleep == "sleep"
    (shutdown,) = (int(item.partition("=")[2]) for item in vllm["args"] if item.startswith("--shutdown-timeout="))
    drain = settings_of(sidecar).drain_timeout
    assert pod["terminationGracePeriodSeconds"] >= int(pre_stop) + shutdown + drain + TO_END_S
    assert "lifecycle" not in sidecar, "a hook of the sidecar would run beside that of vLLM, not after it"


def test_pod_security_of_the_sidecar(sidecar: Object) -> None:
    context = sidecar["securityContext"]
    assert context["runAsNonRoot"] is True
    assert context["runAsUser"] > 0
    assert context["allowPrivilegeEscalation"] is False
    assert context["readOnlyRootFilesystem"] is True
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert "cpu" not in sidecar["resources"]["limits"]


def test_service_leads_to_the_sidecar(objects: list[Object], sidecar: Object) -> None:
    service, deployment = the(objects, "Service"), the(objects, "Deployment")
    (port,) = service["spec"]["ports"]
    assert port["targetPort"] == settings_of(sidecar).listen.port
    assert matches(service["spec"]["selector"], deployment)
    assert matches(deployment["spec"]["selector"]["matchLabels"], deployment)


def matches(labels: dict[str, str], deployment: Object) -> bool:
    return labels.items() <= deployment["spec"]["template"]["metadata"]["labels"].items()


def test_pod_monitor_scrapes_the_admin_port_under_the_name_that_rules_select(
    objects: list[Object], sidecar: Object
) -> None:
    spec = the(objects, "PodMonitor")["spec"]
    assert matches(spec["selector"]["matchLabels"], the(objects, "Deployment"))
    (endpoint,) = spec["podMetricsEndpoints"]
    ports = {port["name"]: port["containerPort"] for port in sidecar["ports"]}
    assert ports[endpoint["port"]] == settings_of(sidecar).admin.port
    assert all(re.fullmatch(r"[a-z0-9-]{1,15}", name) for name in ports)
    names = yaml.safe_load((ROOT / "alerts/source.yml").read_text())["names"]
    assert endpoint["relabelings"] == [{"action": "replace", "targetLabel": "job", "replacement": names["job"]}]


def test_network_policy_keeps_the_admin_port_for_prometheus(objects: list[Object], sidecar: Object) -> None:
    spec = the(objects, "NetworkPolicy")["spec"]
    assert matches(spec["podSelector"]["matchLabels"], the(objects, "Deployment"))
    settings = settings_of(sidecar)
    senders = {port["port"]: rule.get("from") for rule in spec["ingress"] for port in rule["ports"]}
    assert set(senders) == {settings.listen.port, settings.admin.port}
    assert senders[settings.listen.port] is None
    assert senders[settings.admin.port]


def test_rules_are_the_generated_ones(objects: list[Object]) -> None:
    shipped = yaml.safe_load((ROOT / "alerts/kubernetes/prometheusrule.yaml").read_text())
    assert the(objects, "PrometheusRule")["spec"] == shipped["spec"]


def test_every_dashboard_is_a_config_map_that_grafana_finds(objects: list[Object]) -> None:
    maps = [item for item in objects if item["kind"] == "ConfigMap"]
    data = {name: text for item in maps for name, text in item["data"].items()}
    assert data == {path.name: path.read_text() for path in (ROOT / "grafana/dashboards").glob("*.json")}
    for item in maps:
        assert item["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert sum(len(text.encode()) for text in item["data"].values()) < 2**20


def test_what_is_not_labelled_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "deployment.yaml").write_text(
        (KUBERNETES / "example/vllm.yaml").read_text().replace("prefillwatch: inject", "other: yes-it-is")
    )
    (tmp_path / "sidecar").symlink_to(KUBERNETES / "sidecar")
    (tmp_path / "kustomization.yaml").write_text("resources: [deployment.yaml]\ncomponents: [sidecar]\n")
    assert "initContainers" not in the(build(tmp_path), "Deployment")["spec"]["template"]["spec"]


def test_a_deployment_whose_container_has_another_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "deployment.yaml").write_text(
        (KUBERNETES / "example/vllm.yaml").read_text().replace("- name: vllm", "- name: engine")
    )
    (tmp_path / "sidecar").symlink_to(KUBERNETES / "sidecar")
    (tmp_path / "kustomization.yaml").write_text("resources: [deployment.yaml]\ncomponents: [sidecar]\n")
    with pytest.raises(AssertionError):
        build(tmp_path)
