"""Certificates that are renewed under a sidecar that serves."""

from __future__ import annotations

import os
import re
import shutil
import signal
import ssl
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from tests.e2e.processes import Command, Sidecar, Sim, Stream
from tests.fakes.certificate import HOUR, self_signed
from tests.kit.eventually import eventually

from prefillwatch.supervision.validity import expires_at

Serve = Callable[..., Sidecar]


@pytest.fixture
def old(tmp_path: Path) -> tuple[Path, Path]:
    (tmp_path / "old").mkdir()
    return self_signed(tmp_path / "old")


@pytest.fixture
def new(tmp_path: Path) -> tuple[Path, Path]:
    (tmp_path / "new").mkdir()
    return self_signed(tmp_path / "new", 9 * HOUR)


def shown(url: str) -> str:
    """What one new connection is shown."""
    host, _, port = url.removeprefix("https://").rpartition(":")
    return ssl.get_server_certificate((host, int(port)))


def told_end(admin: str, trusted: Path) -> float | None:
    """Until when the admin listener's certificate is good, by its own page; None while nobody answers."""
    try:
        page = httpx.get(f"{admin}/metrics", verify=ssl.create_default_context(cafile=trusted)).text
    except httpx.TransportError:
        return None
    found = re.search(r'^prefillwatch_certificate_expiry_timestamp_seconds{listener="admin"} (\S+)', page, re.MULTILINE)
    return float(found.group(1)) if found else None


def is_shown_by_all(sidecar: Sidecar, certificate: Path) -> bool:
    """Several connections, which the kernel spreads over the relays."""
    expected = ssl.PEM_cert_to_DER_cert(certificate.read_text())
    return all(ssl.PEM_cert_to_DER_cert(shown(sidecar.url)) == expected for _ in range(12))


def test_files_that_change_are_served_to_new_connections_while_streams_go_on(
    serve: Serve, old: tuple[Path, Path], new: tuple[Path, Path]
) -> None:
    trusted = ssl.create_default_context(cafile=old[0])
    sidecar = serve("--relays", "3", "--tls-cert", str(old[0]), "--tls-key", str(old[1]))
    assert is_shown_by_all(sidecar, old[0])
    eventually(
        lambda: sidecar.value("certificate_expiry_timestamp_seconds", listener="data") == expires_at(old[0].read_text())
    )
    streams = [Stream(sidecar.url, tokens=250, verify=trusted).begin() for _ in range(6)]
    shutil.copy(new[0], old[0])
    shutil.copy(new[1], old[1])
    eventually(lambda: is_shown_by_all(sidecar, new[0]))
    assert all(stream.end().done and stream.tokens == 250 for stream in streams)
    assert sidecar.value("certificate_expiry_timestamp_seconds", listener="data") == expires_at(new[0].read_text())
    assert sidecar.output.count("a new certificate is served") == 1
    assert sidecar.value("relay_restarts_total") == 0
    assert sidecar.stop() == 0


def test_after_a_renewal_that_went_wrong_a_relay_that_dies_comes_back_with_what_was_good(
    serve: Serve, old: tuple[Path, Path]
) -> None:
    served = old[0].read_text()
    sidecar = serve("--tls-cert", str(old[0]), "--tls-key", str(old[1]))
    old[1].write_text("nothing of use")
    sidecar.send(signal.SIGHUP)
    eventually(lambda: "cannot be served" in sidecar.output)
    (killed,) = sidecar.pids("relay")
    os.kill(killed, signal.SIGKILL)
    eventually(lambda: sidecar.pids("relay") not in ([], [killed]))
    assert ssl.PEM_cert_to_DER_cert(shown(sidecar.url)) == ssl.PEM_cert_to_DER_cert(served)
    trusted = ssl.create_default_context(cadata=served)
    assert Stream(sidecar.url, tokens=3, verify=trusted).end().done
    assert sidecar.value("relay_restarts_total") == 1
    assert sidecar.stop() == 0


def test_the_admin_listener_serves_the_new_one_too(sim: Sim, old: tuple[Path, Path], new: tuple[Path, Path]) -> None:
    served = old[0].read_text()
    flags = ("--admin-tls-cert", str(old[0]), "--admin-tls-key", str(old[1]), "--listen", "127.0.0.1:0")
    sidecar = Command("serve", "--upstream", sim.url, "--admin", "127.0.0.1:0", *flags)
    try:
        admin = sidecar.wait_for(r"metrics: (https://\S+)/metrics")
        eventually(lambda: told_end(admin, old[0]) == expires_at(served))
        shutil.copy(new[0], old[0])
        shutil.copy(new[1], old[1])
        sidecar.send(signal.SIGHUP)
        sidecar.wait_for("(a new certificate is served)")
        eventually(lambda: told_end(admin, new[0]) == expires_at(new[0].read_text()))
        assert sidecar.stop() == 0
    finally:
        sidecar.kill()
