"""The compose stack: mounts, ports, commands, and the configurations as the containers see them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import yaml
from tests.deploy.commands import accept
from tests.deploy.test_image import environment

from prefillwatch.settings.declared import Settings
from prefillwatch.settings.sources import load

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy/compose"
STACK: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = STACK["services"]
OURS = {name: service for name, service in SERVICES.items() if service["image"].startswith("prefillwatch:")}
PROFILES = ("demo", "sim", "vllm")


def mounts(name: str) -> dict[str, str]:
    """Target in the container: source, which is a path or the name of a volume."""
    parts = (volume.split(":") for volume in SERVICES[name].get("volumes", ()))
    return {target: source for source, target, *_ in parts}


def flag(name: str, key: str) -> str:
    (value,) = (item.partition("=")[2] for item in SERVICES[name]["command"] if item.startswith(f"--{key}="))
    return str(value)


def settings_of_sidecar() -> Settings:
    return load({}, environment() | SERVICES["sidecar"]["environment"])


@pytest.mark.parametrize("name", [name for name, service in SERVICES.items() if "volumes" in service])
def test_every_mount_exists(name: str) -> None:
    for volume in SERVICES[name]["volumes"]:
        source, _, *mode = volume.split(":")
        if source.startswith("."):
            assert (FOLDER / source).exists()
            assert mode == ["ro"], f"{source} is part of the repository; nobody should write there"
        else:
            assert source in STACK["volumes"]


def test_the_image_is_built_from_our_dockerfile() -> None:
    assert {"demo", "simulator", "sidecar"} == set(OURS)
    for service in OURS.values():
        context = FOLDER / service["build"]["context"]
        assert (context / service["build"]["dockerfile"]).samefile(ROOT / "deploy/Dockerfile")


@pytest.mark.parametrize("name", OURS)
def test_our_commands_are_ones_we_have(name: str) -> None:
    command, *arguments = OURS[name]["command"]
    accept(command, arguments)


@pytest.mark.parametrize("profile", PROFILES)
def test_every_profile_has_one_sidecar_and_one_server(profile: str) -> None:
    chosen = {name for name, service in SERVICES.items() if profile in service.get("profiles", [])}
    servers = {"demo": {"demo"}, "sim": {"simulator", "sidecar"}, "vllm": {"vllm", "sidecar"}}
    assert chosen == servers[profile]


def test_the_profile_that_is_chosen_exists() -> None:
    lines = (line.partition("=") for line in (FOLDER / ".env").read_text().splitlines() if not line.startswith("#"))
    assert {name: value for name, _, value in lines}["COMPOSE_PROFILES"] in PROFILES


def test_the_server_is_only_reached_through_the_sidecar() -> None:
    assert SERVICES["vllm"]["command"][-4:] == ["--host", "127.0.0.1", "--port", "8000"]
    assert SERVICES["simulator"]["command"][1:3] == ["--listen", "127.0.0.1:8000"]
    assert settings_of_sidecar().required_upstream() == "http://127.0.0.1:8000"
    others = {name for name, service in SERVICES.items() if service.get("network_mode") != "service:net"}
    assert others == {"net"}


def test_ports_are_published_on_loopback() -> None:
    settings = settings_of_sidecar()
    published = [port.split(":") for port in SERVICES["net"]["ports"]]
    assert all(host == "127.0.0.1" and outside == inside for host, outside, inside in published)
    assert {int(inside) for _, _, inside in published} == {settings.listen.port, settings.admin.port, 9090, 9093, 3000}


def test_the_sidecar_has_time_to_drain() -> None:
    assert int(SERVICES["sidecar"]["stop_grace_period"].removesuffix("s")) >= settings_of_sidecar().drain_timeout + 10


def test_the_sidecar_drains_while_its_server_is_still_there() -> None:
    """Compose stops a service before those it depends on. Those of another profile are not there, and need not be."""
    servers = {
        name for profile in ("sim", "vllm") for name, each in SERVICES.items() if profile in each.get("profiles", [])
    }
    servers.remove("sidecar")
    depends = SERVICES["sidecar"]["depends_on"]
    assert set(depends) == servers
    assert all(how == {"condition": "service_started", "required": False} for how in depends.values())


@pytest.mark.parametrize("name", OURS)
def test_our_containers_can_do_little(name: str) -> None:
    service = OURS[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]


def test_prometheus_finds_its_rules_where_they_are_mounted(tmp_path: Path) -> None:
    for target, source in mounts("prometheus").items():
        if source.startswith("."):
            shutil.copytree(FOLDER / source, tmp_path / target.lstrip("/"))
    config = tmp_path / flag("prometheus", "config.file").lstrip("/")
    done = subprocess.run(["promtool", "check", "config", config], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rule_files = len(list((ROOT / "alerts/rules").glob("*.yml")))
    assert f"{rule_files} rule files found" in done.stdout


def test_prometheus_serves_the_runbooks_that_alerts_link_to() -> None:
    served = PurePosixPath(flag("prometheus", "web.user-assets")) / "runbooks"
    names = yaml.safe_load((ROOT / "alerts/source.yml").read_text())["names"]
    assert names["runbook_base"] == "{{ $externalURL }}/user/runbooks/"
    assert (FOLDER / mounts("prometheus")[str(served)] / f"StreamFreeze{names['runbook_suffix']}").is_file()
    assert flag("prometheus", "web.external-url").removeprefix("http://") + ":9090" in SERVICES["net"]["ports"]


def test_prometheus_scrapes_and_alerts_where_the_others_listen() -> None:
    folder = FOLDER / mounts("prometheus")["/prefillwatch/deploy/prometheus"]
    config = yaml.safe_load((folder / "prometheus.yml").read_text())
    targets = {job["job_name"]: job["static_configs"][0]["targets"] for job in config["scrape_configs"]}
    settings = settings_of_sidecar()
    assert {settings.admin.host, settings.listen.host} == {"::"}, "which 127.0.0.1 is part of"
    assert targets == {
        "prefillwatch": [f"127.0.0.1:{settings.admin.port}"],
        "vllm": [f"127.0.0.1:{settings.listen.port}"],
    }
    assert config["alerting"]["alertmanagers"][0]["static_configs"][0]["targets"] == ["127.0.0.1:9093"]


def test_alertmanager_finds_its_configuration() -> None:
    path = PurePosixPath(flag("alertmanager", "config.file"))
    assert (FOLDER / mounts("alertmanager")[str(path.parent)] / path.name).is_file()


def test_grafana_finds_datasource_and_dashboards() -> None:
    there = mounts("grafana")
    provisioning = FOLDER / there["/etc/grafana/provisioning"]
    (provider,) = yaml.safe_load((provisioning / "dashboards/prefillwatch.yaml").read_text())["providers"]
    assert list((FOLDER / there[provider["options"]["path"]]).glob("*.json"))
    (source,) = yaml.safe_load((provisioning / "datasources/prefillwatch.yaml").read_text())["datasources"]
    assert source["url"].removeprefix("$") in SERVICES["grafana"]["environment"]
