"""One simulated server for all tests here, and commands that are stopped when their test ends."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.e2e.processes import Command, Sidecar, Sim


@pytest.fixture(scope="session")
def sim() -> Iterator[Sim]:
    server = Sim()
    yield server
    server.kill()


@pytest.fixture
def start() -> Iterator[Callable[..., Any]]:
    """Starts a Command of a class given, by its arguments."""
    started: list[Command] = []

    def start(kind: type[Command], *arguments: str, **more: Any) -> Command:
        started.append(kind(*arguments, **more))
        return started[-1]

    yield start
    for command in started:
        command.kill()


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A self-signed certificate for 127.0.0.1 and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.timezone.utc)
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    folder = tmp_path_factory.mktemp("tls")
    (folder / "cert.pem").write_bytes(built.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return folder / "cert.pem", folder / "key.pem"


@pytest.fixture
def serve(sim: Sim, start: Callable[..., Any]) -> Callable[..., Sidecar]:
    def serve(*arguments: str, **more: Any) -> Sidecar:
        sidecar: Sidecar = start(Sidecar, "serve", "--upstream", sim.url, *arguments, **more)
        return sidecar

    return serve
