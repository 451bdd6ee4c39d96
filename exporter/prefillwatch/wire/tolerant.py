"""JSON read into typed structs, where a field of the wrong shape costs that field and not the document."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

import msgspec

from prefillwatch.wire.reasons import UnparsedReason
from prefillwatch.wire.structure import has_more_marks

S = TypeVar("S")

_MISSING: Final = object()
#: Values inside each other; what is looked for lies less deep, and every level of a misfit is converted once more.
_MAX_DEPTH: Final = 16
#: Values of a document that are looked at one by one, which takes some 10 µs each.
_MAX_SALVAGED: Final = 10_000
#: A misfit of more values than this is not read: an object is made of each of them, some 100 bytes and 1 µs.
_MAX_VALUES: Final = 500_000


class UnreadableError(Exception):
    """Not JSON: `reason` is UTF8 where the bytes are not even text, else JSON. TOO_LONG: it was not tried."""

    def __init__(self, reason: UnparsedReason) -> None:
        super().__init__(reason.value)
        self.reason = reason


class TolerantDecoder(Generic[S]):
    """Decodes JSON into `kind`, mostly a struct whose fields all have defaults; `empty` makes what stands for JSON of
    another kind. Well-formed input takes the typed path only."""

    __slots__ = ("_decode", "_empty", "_kind")

    def __init__(self, kind: Any, empty: Callable[[], S] | None = None) -> None:
        self._kind = kind
        self._empty: Callable[[], S] = empty or kind
        self._decode = msgspec.json.Decoder(kind).decode

    def decode(self, data: bytes) -> S:
        """`data` as far as it fits; nothing but defaults for JSON of another kind.

        Raises UnreadableError for no JSON, and for a misfit with too much in it.
        """
        return self.decode_noting(data)[0]

    def decode_noting(self, data: bytes) -> tuple[S, bool]:
        """What `decode` gives, and whether all of it was looked at."""
        try:
            return self._decode(data), True
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return self._salvage(_any_json(data))

    def salvage(self, value: Any) -> S:
        """What fits `kind` in an already decoded document."""
        return self._salvage(value)[0]

    def _salvage(self, value: Any) -> tuple[S, bool]:
        salvage = _Salvage()
        salvaged = salvage.value(value, self._kind)
        return self._empty() if salvaged is _MISSING else typing.cast("S", salvaged), not salvage.exhausted


def _any_json(data: bytes) -> Any:
    if has_more_marks(data, _MAX_VALUES):
        raise UnreadableError(UnparsedReason.TOO_LONG)
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        pass
    # The standard decoder also takes lone surrogates and raw control characters, as some servers send them.
    try:
        value = json.loads(data.decode("utf-8", "replace"), strict=False)
        # A lone surrogate must not get any further: no text that holds one can be written anywhere.
        return json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        raise UnreadableError(UnparsedReason.JSON if _is_text(data) else UnparsedReason.UTF8) from None


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


class _Salvage:
    """Goes through one document. What lies too deep or comes too late in it is missing."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = _MAX_SALVAGED

    @property
    def exhausted(self) -> bool:
        """Whether something was not looked at."""
        return self._left <= 0

    def value(self, value: Any, kind: Any, depth: int = 0) -> Any:
        if depth > _MAX_DEPTH or self._left <= 0:
            return _MISSING
        self._left -= 1
        if kind is msgspec.Raw:
            return msgspec.Raw(msgspec.json.encode(value))
        try:
            return msgspec.convert(value, kind)
        except (msgspec.ValidationError, RecursionError):
            pass
        for option in _options(kind):
            if isinstance(value, dict) and isinstance(option, type) and issubclass(option, msgspec.Struct):
                return self._struct(value, option, depth + 1)
            if isinstance(value, list) and typing.get_origin(option) is list:
                return self._items(value, typing.get_args(option)[0], depth + 1)
        return _MISSING

    def _items(self, values: list[Any], kind: Any, depth: int) -> list[Any]:
        items = (self.value(item, kind, depth) for item in values[: self._left])
        return [item for item in items if item is not _MISSING]

    def _struct(self, value: dict[str, Any], kind: type[msgspec.Struct], depth: int) -> msgspec.Struct:
        fields = {}
        for field in msgspec.structs.fields(kind):
            if field.encode_name in value:
                salvaged = self.value(value[field.encode_name], field.type, depth)
                if salvaged is not _MISSING:
                    fields[field.name] = salvaged
        return kind(**fields)


def _options(kind: Any) -> tuple[Any, ...]:
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        return typing.get_args(kind)
    return (kind,)
