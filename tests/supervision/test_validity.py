"""The end of a certificate, against what `cryptography` reads."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
from cryptography import x509
from tests.fakes.certificate import self_signed

from prefillwatch.supervision.validity import expires_at

YEAR = datetime.timedelta(days=365)


@pytest.mark.parametrize("good_for", [-datetime.timedelta(hours=1), YEAR, 60 * YEAR], ids=["past", "soon", "in 2086"])
def test_reads_the_end(tmp_path: Path, good_for: datetime.timedelta) -> None:
    """Beyond 2049 the moment is written in another form."""
    certificate, _ = self_signed(tmp_path, good_for)
    expected = x509.load_pem_x509_certificate(certificate.read_bytes()).not_valid_after_utc
    assert expires_at(certificate.read_text()) == expected.timestamp()


def test_the_first_of_a_chain_counts_and_text_around_it_does_not(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    leaf, key = self_signed(tmp_path)
    issuer, _ = self_signed(tmp_path / "other", YEAR)
    text = f"subject=CN = x\n{key.read_text()}{leaf.read_text()}{issuer.read_text()}"
    assert expires_at(text) == expires_at(leaf.read_text())


BEGIN, END = "-----BEGIN CERTIFICATE-----\n", "\n-----END CERTIFICATE-----\n"


@pytest.mark.parametrize("text", ["", "hello", BEGIN, f"{BEGIN}!{END}", f"{BEGIN}MAA={END}", f"{BEGIN}MAMCAQE={END}"])
def test_what_is_no_certificate_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="certificate"):
        expires_at(text)
