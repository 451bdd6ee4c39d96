"""Certificates whose files change under a running supervisor, told as a timeline of looks."""

from __future__ import annotations

import datetime
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.fakes.certificate import HOUR, self_signed

from prefillwatch.errors import ConfigError
from prefillwatch.relay.certificate import read_shared
from prefillwatch.settings.sources import load
from prefillwatch.supervision.certificates import Certificate, Certificates
from prefillwatch.supervision.validity import expires_at

DAMAGED = "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n"


@pytest.fixture(autouse=True)
def _log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


def made(folder: Path, good_for: datetime.timedelta = HOUR) -> tuple[Path, Path]:
    folder.mkdir(parents=True, exist_ok=True)
    return self_signed(folder, good_for)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    return made(tmp_path / "served")


@pytest.fixture
def certificate(files: tuple[Path, Path]) -> Iterator[Certificate]:
    loaded = Certificate("data", "tls", *files)
    yield loaded
    loaded.close()


def served(certificate: Certificate) -> bytes:
    """What a relay would read."""
    pem = read_shared(certificate.fd)
    assert pem is not None
    return pem


def both(files: tuple[Path, Path]) -> bytes:
    return b"\n".join(path.read_bytes() for path in files)


def put(source: tuple[Path, Path], target: tuple[Path, Path]) -> None:
    """Anew, as most who renew do: written aside and renamed."""
    for one, other in zip(source, target, strict=True):
        aside = other.with_suffix(".new")
        shutil.copy(one, aside)
        aside.replace(other)


def test_without_a_change_nothing_is_done(certificate: Certificate, files: tuple[Path, Path]) -> None:
    context = certificate.context
    assert not certificate.look()
    assert not certificate.look(asked=True)
    os.utime(files[0])
    assert not certificate.look()
    assert certificate.context is context
    assert served(certificate) == both(files)


def test_a_renewed_one_is_served_and_said(
    certificate: Certificate, files: tuple[Path, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = certificate.context
    put(made(tmp_path / "new", 9 * HOUR), files)
    assert certificate.look()
    assert certificate.context is not before
    assert served(certificate) == both(files)
    assert certificate.expires_at == expires_at(files[0].read_text())
    assert f"tls_cert '{files[0]}' and tls_key '{files[1]}': a new certificate is served, good until" in caplog.text
    assert not certificate.look()


def test_a_link_that_is_swapped_as_kubernetes_does(tmp_path: Path) -> None:
    """tls.crt leads through ..data, which is replaced by one rename."""
    first, second = made(tmp_path / "..1"), made(tmp_path / "..2", 9 * HOUR)
    (tmp_path / "..data").symlink_to("..1")
    links = []
    for path in first:
        links.append(tmp_path / path.name)
        links[-1].symlink_to(f"..data/{path.name}")
    loaded = Certificate("data", "tls", links[0], links[1])
    assert not loaded.look()
    (tmp_path / "..data_tmp").symlink_to("..2")
    (tmp_path / "..data_tmp").replace(tmp_path / "..data")
    shutil.rmtree(tmp_path / "..1")
    assert loaded.look()
    assert served(loaded) == both(second)
    loaded.close()


def test_a_key_that_comes_after_its_certificate_is_no_trouble(
    certificate: Certificate, files: tuple[Path, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old = both(files)
    new_certificate, new_key = made(tmp_path / "new", 9 * HOUR)
    shutil.copy(new_certificate, files[0])
    assert not certificate.look()
    assert served(certificate) == old
    shutil.copy(new_key, files[1])
    assert certificate.look()
    assert served(certificate) == both(files)
    assert [record.levelname for record in caplog.records] == ["INFO"]


def test_a_pair_that_never_fits_is_said_once_and_mended_later(
    certificate: Certificate, files: tuple[Path, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old = both(files)
    new = made(tmp_path / "new", 9 * HOUR)
    shutil.copy(new[0], files[0])
    for _ in range(5):
        assert not certificate.look()
    (warning,) = caplog.records
    assert warning.levelname == "WARNING"
    assert "cannot be served (key values mismatch); the certificate from before is, and is good until" in caplog.text
    assert served(certificate) == old
    put(new, files)
    assert certificate.look()
    assert served(certificate) == both(files)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda path: path.unlink(), "no such file or directory"),
        (lambda path: path.write_text(""), "it holds no certificate"),
        (
            lambda path: path.write_text("-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n"),
            "its certificate cannot be read",
        ),
        (lambda path: (path.unlink(), path.mkdir()), "is a directory"),
    ],
    ids=["gone", "empty", "damaged", "a folder"],
)
def test_files_that_cannot_be_used_leave_the_one_before(
    certificate: Certificate,
    files: tuple[Path, Path],
    spoil: Callable[[Path], object],
    reason: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    old = both(files)
    spoil(files[0])
    assert not certificate.look(asked=True)
    assert reason in caplog.text, "whoever asks is answered at once"
    assert served(certificate) == old


def test_an_expired_one_does_not_replace_one_that_is_good(
    certificate: Certificate, files: tuple[Path, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old = both(files)
    put(made(tmp_path / "new", -HOUR), files)
    assert not certificate.look(asked=True)
    assert "the new certificate was good until" in caplog.text
    assert served(certificate) == old


def test_an_expired_one_at_the_start_is_served_but_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    expired = made(tmp_path / "old", -HOUR)
    loaded = Certificate("data", "tls", *expired)
    assert "the certificate was good until" in caplog.text
    put(made(tmp_path / "new"), expired)
    assert loaded.look()
    loaded.close()


def test_at_the_start_what_cannot_be_used_is_an_error(tmp_path: Path) -> None:
    certificate, _ = made(tmp_path / "one")
    _, key = made(tmp_path / "other")
    with pytest.raises(ConfigError, match=r"tls_cert '.*' and tls_key '.*' are no pair .* \(key values mismatch\)"):
        Certificate("data", "tls", certificate, key)


def test_those_of_both_listeners_are_told_by_their_end(tmp_path: Path) -> None:
    data, admin = made(tmp_path / "data"), made(tmp_path / "admin", 9 * HOUR)
    flags = dict(
        zip(("tls_cert", "tls_key", "admin_tls_cert", "admin_tls_key"), map(str, (*data, *admin)), strict=True)
    )
    loaded = Certificates(load(flags, {}))
    assert loaded.expiry == {
        "data": expires_at(data[0].read_text()),
        "admin": expires_at(admin[0].read_text()),
    }
    renewed: list[Certificate] = []
    put(made(tmp_path / "new"), admin)
    loaded.look(renewed.append)
    assert renewed == [loaded.admin]
    loaded.close()
    assert Certificates(load({}, {})).expiry == {}
