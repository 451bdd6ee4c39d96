"""`serve` where there is only one version of IP."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable, Sequence

from tests.e2e.processes import Sim
from tests.kit.eventually import PATIENCE_S
from tests.sandbox.confined import Confined, Surroundings, serves_under_traffic
from tests.sandbox.network import Network

Start = Callable[..., Confined]
EVERYWHERE = ("--listen", "[::]:0", "--admin", "[::]:0")
#: What images of Debian and container engines bring.
NAMES = {
    "/etc/hosts": "::1 localhost\n127.0.0.1 localhost\n",
    "/etc/host.conf": "multi on\n",
    "/etc/nsswitch.conf": "hosts: files dns\n",
}
Inside = Callable[..., Sequence[str]]
SimIn = Callable[[Network, str], Sim]


def healthcheck(program: Sequence[str], sidecar: Confined) -> str:
    """What our own command says inside, asking where an image would: every interface."""
    port = sidecar.admin.rpartition(":")[2]
    argv = [*program, "healthcheck", "--ready", "--admin", f"[::]:{port}"]
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=PATIENCE_S).stdout


def test_ipv6_alone(confined: Start, ipv6_only: Network, sim_in: SimIn, inside: Inside) -> None:
    around = Surroundings(network=ipv6_only)
    sidecar = confined(around, *EVERYWHERE, sim=sim_in(ipv6_only, "[::1]:0"))
    assert "ready" in healthcheck(inside(around), sidecar)
    serves_under_traffic(sidecar)


def test_ipv4_alone(confined: Start, ipv4_only: Network, sim_in: SimIn, inside: Inside) -> None:
    """IPv6 is switched off: it has sockets, and no address."""
    around = Surroundings(network=ipv4_only)
    sidecar = confined(around, *EVERYWHERE, sim=sim_in(ipv4_only, "127.0.0.1:0"))
    assert "ready" in healthcheck(inside(around), sidecar)
    serves_under_traffic(sidecar)


def test_a_kernel_without_ipv6(confined: Start, ipv4_only: Network, sim_in: SimIn, inside: Inside) -> None:
    around = Surroundings(network=ipv4_only, no_family=socket.AF_INET6)
    sidecar = confined(around, *EVERYWHERE, sim=sim_in(ipv4_only, "127.0.0.1:0"))
    assert "there is no IPv6 here" in sidecar.output
    assert "ready" in healthcheck(inside(around), sidecar)
    serves_under_traffic(sidecar)


def test_a_server_by_name(confined: Start, ipv4_only: Network, sim_in: SimIn) -> None:
    """As a sidecar's upstream often is; the name stands for an address that is not there as well."""
    sim = sim_in(ipv4_only, "127.0.0.1:0")
    sim.url = sim.url.replace("127.0.0.1", "localhost")
    around = Surroundings(network=ipv4_only, files=NAMES)
    serves_under_traffic(confined(around, *EVERYWHERE, sim=sim))
