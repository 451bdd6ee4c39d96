"""Names of tenants: the same for the same text and key, and never the text where it is a secret."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefillwatch.wire.sender import OTHER, UNNAMED, TenantIds, by_credential, clipped, priority_of

IDS = TenantIds("key of this test")
PLAIN = TenantIds("key of this test", plain=True)


def test_a_name_is_a_short_hash_that_hangs_on_text_and_key() -> None:
    name = IDS("acme")
    assert len(name) == 12
    assert int(name, 16) >= 0
    assert name == IDS(b" acme ") == TenantIds("key of this test")("acme")
    assert len({name, IDS("acme2"), TenantIds("another key")("acme")}) == 3


def test_nothing_has_no_name() -> None:
    assert IDS("") == IDS(b"  ") == PLAIN("") == ""


@pytest.mark.parametrize("text", ["acme", "team blue", "größe", "a" * 64])
def test_plain_names_are_as_they_are(text: str) -> None:
    assert PLAIN(text) == text


@pytest.mark.parametrize("text", ["a" * 65, "a\nb", b"\xff\xfe", OTHER, UNNAMED, "a\u202eb", "\ud800"])
def test_what_cannot_be_a_label_or_means_something_else_is_hashed_in_any_case(text: str | bytes) -> None:
    name = PLAIN(text)
    assert len(name) == 12
    assert int(name, 16) >= 0


@given(st.binary(min_size=1, max_size=200).filter(bytes.strip))
def test_a_hash_shows_nothing_of_its_text(text: bytes) -> None:
    name = IDS(text)
    assert len(name) == 12
    assert name not in text.decode("latin-1")
    assert len(text.strip()) < 4 or text.strip().decode("latin-1") not in name


def test_names_of_ten_thousand_tenants_differ() -> None:
    assert len({IDS(f"tenant-{number}") for number in range(10_000)}) == 10_000


@pytest.mark.parametrize(
    "headers",
    [
        {b"authorization": b"Bearer sk-one"},
        {b"authorization": b"bearer sk-one"},
        {b"x-api-key": b"sk-one"},
        {b"api-key": b"sk-one"},
    ],
)
def test_one_key_is_one_tenant_whichever_header_it_comes_in(headers: dict[bytes, bytes]) -> None:
    assert by_credential(lambda name: headers.get(name, b""), IDS) == IDS("sk-one")


def test_another_kind_of_credential_counts_as_a_whole() -> None:
    assert by_credential(lambda _: b"Basic dXNlcjpwYXNz", IDS) == IDS("Basic dXNlcjpwYXNz")
    assert by_credential(lambda _: b"", IDS) == ""


@pytest.mark.parametrize(
    ("value", "priority"),
    [(b"0", 0), (b"-1", -1), (b"1", 1), (b"7", 2), (b"-99", -2), (b"", None), (b"high", None), (b"9" * 30, None)],
)
def test_priorities_of_the_header_are_clipped_to_five(value: bytes, priority: int | None) -> None:
    assert priority_of(value) == priority


def test_priorities_are_clipped_at_both_ends() -> None:
    assert [clipped(value) for value in (-(2**63), -2, -1, 0, 1, 2, 2**63)] == [-2, -2, -1, 0, 1, 2, 2]
