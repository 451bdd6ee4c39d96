"""All that is taken away at once: by the manifests that are shipped, and by somebody who likes to take away more."""

from __future__ import annotations

import signal
import ssl
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.deploy.test_kubernetes import KUBERNETES, settings_of, the, variables
from tests.deploy.tools import Object, kustomized
from tests.e2e.processes import Sim, Stream
from tests.fakes.certificate import HOUR, self_signed
from tests.kit.eventually import eventually
from tests.sandbox.confined import Confined, Surroundings, serves_under_traffic
from tests.sandbox.network import Network
from tests.sandbox.unit_filter import UNIT, UnitFilter

from prefillwatch.settings.quantities import parse_size

Start = Callable[..., Confined]
SimIn = Callable[[Network, str], Sim]
#: Container engines have filters of their own in files that are not here; that of the unit allows less.
CALLS = UnitFilter.of(UNIT.read_text())


@pytest.fixture(scope="module")
def sidecar() -> Object:
    found: Object = the(kustomized(KUBERNETES / "example"), "Deployment")["spec"]["template"]["spec"]["initContainers"][
        0
    ]
    return found


def pod(sidecar: Object, network: Network) -> Surroundings:
    """What the manifest asks the kubelet for."""
    context = sidecar["securityContext"]
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert context["allowPrivilegeEscalation"] is False
    return Surroundings(
        read_only=context["readOnlyRootFilesystem"],
        temporary=False,
        home=False,
        user=context["runAsUser"],
        first=True,
        network=network,
        memory=parse_size(sidecar["resources"]["limits"]["memory"].replace("Gi", "GiB")),
        calls=CALLS,
        environment=variables(sidecar),
    )


def where(sidecar: Object) -> list[str]:
    settings = settings_of(sidecar)
    return ["--listen", str(settings.listen), "--admin", str(settings.admin)]


def test_the_pod(confined: Start, ipv4_only: Network, sim_in: SimIn, sidecar: Object) -> None:
    sim = sim_in(ipv4_only, "127.0.0.1:8000")
    assert sim.url == settings_of(sidecar).required_upstream()
    started = confined(pod(sidecar, ipv4_only), *where(sidecar), sim=sim)
    serves_under_traffic(started)
    assert started.group.peak_memory < 2**29, "half of what it may take is far more than it needs"


def test_everything_at_once(confined: Start, ipv6_only: Network, sim_in: SimIn, sidecar: Object) -> None:
    around = replace(
        pod(sidecar, ipv6_only),
        processes="subset=pid,hidepid=invisible",
        descriptors=64,
        cores=1,
        calls=UnitFilter(CALLS.calls, None),
    )
    serves_under_traffic(confined(around, *where(sidecar), sim=sim_in(ipv6_only, "[::1]:8000")))


def test_certificates_are_renewed_there(confined: Start, sidecar: Object, tmp_path: Path) -> None:
    """They come from memory that has no file, by a name in /proc."""
    folders = [tmp_path / name for name in ("old-certificate", "new-certificate")]
    for folder in folders:
        folder.mkdir()
    (certificate, key), new = self_signed(folders[0]), self_signed(folders[1], 9 * HOUR)
    names = ["/etc/prefillwatch/tls.crt", "/etc/prefillwatch/tls.key"]
    around = Surroundings(
        read_only=True,
        temporary=False,
        home=False,
        user=sidecar["securityContext"]["runAsUser"],
        processes="subset=pid,hidepid=invisible",
        calls=UnitFilter(CALLS.calls, None),
        shown={names[0]: str(certificate), names[1]: str(key)},
    )
    key.chmod(0o644)
    started = confined(around, "--tls-cert", names[0], "--tls-key", names[1])
    old = Stream(started.url, tokens=60, verify=ssl.create_default_context(cafile=certificate)).begin()
    certificate.write_bytes(new[0].read_bytes())
    key.write_bytes(new[1].read_bytes())
    started.send(signal.SIGHUP)
    eventually(lambda: "a new certificate is served" in started.output)
    assert Stream(started.url, tokens=3, verify=ssl.create_default_context(cafile=new[0])).end().done
    assert old.end().done
    assert started.stop() == 0
    started.leaves_nothing()
