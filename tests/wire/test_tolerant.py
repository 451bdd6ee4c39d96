from __future__ import annotations

import msgspec
import pytest

from prefillwatch.wire.tolerant import TolerantDecoder, UnreadableError


class Inner(msgspec.Struct):
    text: str | None = None
    numbers: list[int] | None = None


class Outer(msgspec.Struct):
    name: str = ""
    inner: Inner | None = None
    many: list[Inner] | None = None
    raw: msgspec.Raw = msgspec.Raw(b"")


class Nested(msgspec.Struct):
    inner: list[Nested] | None = None
    name: str = ""


DECODER: TolerantDecoder[Outer] = TolerantDecoder(Outer)


def test_what_fits_is_kept_at_every_depth() -> None:
    found = DECODER.decode(
        b'{"name":5,"inner":{"text":"a","numbers":[1,"2",3]},"many":[null,{"text":"b"},7,{"text":[]}],"raw":{"x":1}}'
    )
    assert found.name == ""
    assert found.inner == Inner("a", [1, 3])
    assert found.many == [Inner("b"), Inner()]
    assert bytes(found.raw) == b'{"x":1}'


@pytest.mark.parametrize("depth", [3, 60, 200, 300, 400, 470])
def test_a_misfit_deep_inside_does_no_harm(depth: int) -> None:
    decoder: TolerantDecoder[Nested] = TolerantDecoder(Nested)
    found = decoder.decode(b'{"name":"a","inner":[' * depth + b'{"name":5}' + b"]}" * depth)
    assert found.name == "a"
    assert found.inner is not None
    assert found.inner[0].name == "a"


def test_a_document_of_misfits_without_end_is_gone_through_in_part() -> None:
    found = DECODER.decode(b'{"name":"a","many":[' + b'{"text":5},{"text":"b"},' * 20_000 + b'{}],"raw":1}')
    assert found.name == "a"
    assert found.many is not None
    assert found.many[:2] == [Inner(), Inner("b")]
    assert 5_000 < len(found.many) <= 10_000
    assert bytes(found.raw) == b""


@pytest.mark.parametrize("data", [b"[]", b"1", b"null", b'"x"', b"[{}]", b"NaN"])
def test_other_json_is_an_empty_struct(data: bytes) -> None:
    assert DECODER.decode(data).name == ""


@pytest.mark.parametrize(
    ("data", "reason"),
    [(b"", "json"), (b"{", "json"), (b'{"name":"a"} x', "json"), (b"\xff", "utf8"), (b"[" * 100_000, "json")],
)
def test_no_json_is_an_error_with_a_reason(data: bytes, reason: str) -> None:
    with pytest.raises(UnreadableError) as error:
        DECODER.decode(data)
    assert error.value.reason == reason


def test_json_as_some_write_it() -> None:
    assert DECODER.decode(b'{"name":"a\nb","x":NaN}').name == "a\nb"
    assert DECODER.decode(b'{"name":"a\\ud83d"}').name == "a?"
    assert DECODER.decode(b'{"name":"a\xff"}').name == "a\ufffd"
