"""What the kustomize component makes of a Deployment of vLLM."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from tests.deploy.test_systemd import UNIT, values
from tests.deploy.tools import Object, RefusedError, kustomized

from prefillwatch.settings.declared import Settings
from prefillwatch.settings.quantities import parse_size
from prefillwatch.settings.sources import load

ROOT = Path(__file__).parents[2]
KUBERNETES = ROOT / "deploy/kubernetes"
OLDEST_KUBERNETES = "1.29"
#: What the supervisor gives processes beyond the drain, and the observer after them.
TO_END_S = 10


@pytest.fixture(scope="module")
def objects() -> list[Object]:
    return kustomized(KUBERNETES / "example")


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


def of_the_operator(item: Object) -> bool:
    return bool(item["apiVersion"] == "monitoring.coreos.com/v1")


def test_there_is_one_object_of_each_name(objects: list[Object]) -> None:
    names = [(item["kind"], item["metadata"]["name"]) for item in objects]
    assert len(set(names)) == len(names)
    assert {kind for kind, _ in names} == {
        *("Deployment", "Service", "ConfigMap", "NetworkPolicy"),
        *("PodMonitor", "PrometheusRule"),
    }
    assert all(re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name) for _, name in names)


@pytest.mark.parametrize("version", [OLDEST_KUBERNETES, kubernetes_validate.latest_version()])
def test_every_object_is_valid_by_the_schemas_of_kubernetes(objects: list[Object], version: str) -> None:
    """Strictly: a field that does not exist is an error. 1.29 is the first with native sidecars switched on."""
    for item in objects:
        if not of_the_operator(item):
            kubernetes_validate.validate(item, version, strict=True)


def test_a_misspelt_field_would_be_found(objects: list[Object]) -> None:
    wrong = yaml.safe_load(yaml.safe_dump(the(objects, "Deployment")))
    wrong["spec"]["template"]["spec"]["initContainers"][0]["restartPolicies"] = "Always"
    with pytest.raises(kubernetes_validate.ValidationError, match="restartPolicies"):
        kubernetes_validate.validate(wrong, OLDEST_KUBERNETES, strict=True)


def test_operators_objects_have_fields_that_it_knows(objects: list[Object]) -> None:
    """Its schemas are in no package, so the few fields that we use are written down here."""
    assert {item["kind"] for item in objects if of_the_operator(item)} == {"PodMonitor", "PrometheusRule"}
    monitor = the(objects, "PodMonitor")["spec"]
    assert set(monitor) == {"selector", "podMetricsEndpoints"}
    assert set(monitor["podMetricsEndpoints"][0]) == {"port", "path", "interval", "scrapeTimeout", "relabelings"}
    rule = the(objects, "PrometheusRule")["spec"]
    assert set(rule) == {"groups"}
    assert {key for group in rule["groups"] for key in group} == {"name", "interval", "rules"}


def test_rules_of_the_operators_object_are_valid(objects: list[Object], tmp_path: Path) -> None:
    path = tmp_path / "rules.yml"
    path.write_text(yaml.safe_dump(the(objects, "PrometheusRule")["spec"]))
    done = subprocess.run(["promtool", "check", "rules", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


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
    assert settings_of(sidecar).admin.host == "::", "of both versions of IP"
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


def test_the_pod_has_no_token_of_the_cluster(pod: Object) -> None:
    assert pod["automountServiceAccountToken"] is False


def test_images_have_versions(pod: Object) -> None:
    images = [container["image"] for container in (*pod["initContainers"], *pod["containers"])]
    assert all(re.search(r":v?\d+\.\d+\.\d+$", image) for image in images), images


def test_memory_is_enough_for_all_that_has_a_bound(sidecar: Object) -> None:
    """The bodies that are held by default, and three processes with room for what they count."""
    limit = parse_size(sidecar["resources"]["limits"]["memory"].replace("Gi", "GiB"))
    assert limit >= settings_of(sidecar).max_bodies + 3 * 2**28
    assert values(UNIT, "MemoryMax") == [sidecar["resources"]["limits"]["memory"].removesuffix("i")]


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
    maps = [item for item in objects if item["kind"] == "ConfigMap" and "dashboard" in item["metadata"]["name"]]
    data = {name: text for item in maps for name, text in item["data"].items()}
    assert data == {path.name: path.read_text() for path in (ROOT / "grafana/dashboards").glob("*.json")}
    for item in maps:
        assert item["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert sum(len(text.encode()) for text in item["data"].values()) < 2**20


def test_every_runbook_is_in_a_config_map_that_prometheus_can_serve(objects: list[Object]) -> None:
    (pages,) = (item for item in objects if item["metadata"]["name"] == "prefillwatch-runbooks")
    assert pages["data"] == {path.name: path.read_text() for path in (ROOT / "alerts/runbooks").glob("*.md")}


def injected(folder: Path, was: str, becomes: str) -> Object:
    """The Deployment of the example with something changed before the sidecar is put in."""
    (folder / "deployment.yaml").write_text((KUBERNETES / "example/vllm.yaml").read_text().replace(was, becomes))
    shutil.copytree(KUBERNETES / "sidecar", folder / "sidecar")
    (folder / "kustomization.yaml").write_text("resources: [deployment.yaml]\ncomponents: [sidecar]\n")
    found: Object = the(kustomized(folder), "Deployment")
    return found


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> list[Object]:
    """The example with TLS and a token for the admin listener."""
    folder = tmp_path_factory.mktemp("guarded")
    shutil.copy(KUBERNETES / "example/vllm.yaml", folder)
    for component in ("sidecar", "admin-auth"):
        shutil.copytree(KUBERNETES / component, folder / component)
    (folder / "kustomization.yaml").write_text("resources: [vllm.yaml]\ncomponents: [sidecar, admin-auth]\n")
    return kustomized(folder)


def test_a_guarded_admin_listener_has_its_files_where_the_settings_look(guarded: list[Object]) -> None:
    deployment = the(guarded, "Deployment")
    kubernetes_validate.validate(deployment, OLDEST_KUBERNETES, strict=True)
    pod = deployment["spec"]["template"]["spec"]
    (sidecar,), (volume,) = pod["initContainers"], pod["volumes"]
    (mount,) = sidecar["volumeMounts"]
    assert (mount["name"], mount["readOnly"]) == (volume["name"], True)
    files = {f"{mount['mountPath']}/{item['path']}" for item in volume["secret"]["items"]}
    used = {name: value for name, value in variables(sidecar).items() if value.startswith(mount["mountPath"])}
    assert set(used.values()) == files
    assert {name.removeprefix("PREFILLWATCH_").lower() for name in used} <= set(Settings.model_fields)
    assert variables(sidecar)["PREFILLWATCH_UPSTREAM"] == "http://127.0.0.1:8000"


def test_everybody_who_asks_a_guarded_admin_listener_does_it_over_tls(guarded: list[Object]) -> None:
    pod = the(guarded, "Deployment")["spec"]["template"]["spec"]
    (sidecar,) = pod["initContainers"]
    for probe, path in (("startupProbe", "/healthz"), ("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")):
        assert sidecar[probe]["httpGet"] == {"path": path, "port": 9843, "scheme": "HTTPS"}
        assert sidecar[probe]["failureThreshold"] >= 2
    (endpoint,) = the(guarded, "PodMonitor")["spec"]["podMetricsEndpoints"]
    secret = pod["volumes"][0]["secret"]["secretName"]
    assert endpoint["scheme"] == "https"
    assert endpoint["authorization"] == {"type": "Bearer", "credentials": {"name": secret, "key": "token"}}
    assert endpoint["tlsConfig"] == {
        "serverName": "prefillwatch",
        "ca": {"secret": {"name": secret, "key": "ca.crt"}},
    }


def test_the_key_for_upstream_comes_in_a_file(tmp_path: Path) -> None:
    shutil.copy(KUBERNETES / "example/vllm.yaml", tmp_path)
    for component in ("sidecar", "upstream-key"):
        shutil.copytree(KUBERNETES / component, tmp_path / component)
    (tmp_path / "kustomization.yaml").write_text("resources: [vllm.yaml]\ncomponents: [sidecar, upstream-key]\n")
    deployment = the(kustomized(tmp_path), "Deployment")
    kubernetes_validate.validate(deployment, OLDEST_KUBERNETES, strict=True)
    pod = deployment["spec"]["template"]["spec"]
    (sidecar,), (volume,) = pod["initContainers"], pod["volumes"]
    (mount,) = sidecar["volumeMounts"]
    (item,) = volume["secret"]["items"]
    assert mount["name"] == volume["name"]
    assert variables(sidecar)["PREFILLWATCH_UPSTREAM_API_KEY_FILE"] == f"{mount['mountPath']}/{item['path']}"
    assert "upstream_api_key_file" in Settings.model_fields


def test_what_is_not_labelled_is_left_alone(tmp_path: Path) -> None:
    deployment = injected(tmp_path, "prefillwatch: inject", "other: yes-it-is")
    assert "initContainers" not in deployment["spec"]["template"]["spec"]


def test_a_deployment_whose_container_has_another_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="containers/0/name"):
        injected(tmp_path, "- name: vllm", "- name: engine")


def test_a_deployment_without_arguments_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="args"):
        injected(tmp_path, "          args:", "          other:")
