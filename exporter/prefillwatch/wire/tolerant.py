"""JSON read into typed structs, where a field of the wrong shape costs that field and not the document."""

from __future__ import annotations

import json
import types
import typing
from typing import Any, Final, Generic, TypeVar

import msgspec

S = TypeVar("S", bound=msgspec.Struct)

_MISSING: Final = object()
#: Values inside each other; what is looked for lies less deep, and every level of a misfit is converted once more.
_MAX_DEPTH: Final = 16
#: Values of a document that are looked at one by one, which takes some 10 µs each.
_MAX_SALVAGED: Final = 10_000


class UnreadableError(Exception):
    """Not JSON. `reason` is `utf8` where the bytes are not even text, else `json`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class TolerantDecoder(Generic[S]):
    """Decodes JSON into `kind`, whose fields must all have defaults. Well-formed input takes the typed path only."""

    __slots__ = ("_decode", "_kind")

    def __init__(self, kind: type[S]) -> None:
        self._kind = kind
        self._decode = msgspec.json.Decoder(kind).decode

    def decode(self, data: bytes) -> S:
        """`data` as far as it fits; an empty struct for JSON of another kind. Raises UnreadableError for no JSON."""
        try:
            return self._decode(data)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return self.salvage(_any_json(data))

    def salvage(self, value: Any) -> S:
        """What fits `kind` in an already decoded document."""
        salvaged = _Salvage().value(value, self._kind)
        return self._kind() if salvaged is _MISSING else typing.cast("S", salvaged)


def _any_json(data: bytes) -> Any:
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
        raise UnreadableError("json" if _is_text(data) else "utf8") from None


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
