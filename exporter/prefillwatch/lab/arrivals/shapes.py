"""Objects that hold several requests: AIBrix's batches, WEKA's conversations, spans of OpenTelemetry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from prefillwatch.lab.arrivals.fields import plain_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_DEEPEST: Final = 8
#: What tokenizers make of English, where a span has texts and no counts.
CHARACTERS_PER_TOKEN: Final = 4
_GENERATES: Final = ("chat", "generate", "generate_content", "text_completion")
_COUNTS_IN: Final = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens")
_COUNTS_OUT: Final = ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens")
_TEXTS_IN: Final = ("gen_ai.input.messages", "gen_ai.prompt")
_TEXTS_OUT: Final = ("gen_ai.output.messages", "gen_ai.output.text", "gen_ai.completion")
_FAILED: Final = (2, "2", "ERROR", "STATUS_CODE_ERROR", "error")
#: Set on rows whose tokens are estimates.
ESTIMATED: Final = "estimated"


def requests_in(whole: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The requests of one object of the file, with plain keys. Raises ValueError."""
    yield from _requests({plain_key(name): value for name, value in whole.items()}, 0)


def _requests(fields: dict[str, Any], depth: int) -> Iterator[dict[str, Any]]:
    if depth > _DEEPEST:
        raise ValueError(f"requests within requests, more than {_DEEPEST} deep")
    for name in ("resourcespans", "scopespans", "spans"):
        if isinstance(inner := fields.get(name), list):
            for each in _objects(inner, name):
                yield from _requests(each, depth + 1)
            return
    if "attributes" in fields and ("starttime" in fields or "starttimeunixnano" in fields):
        yield from _span(fields)
        return
    if not isinstance(nested := fields.get("requests"), list):
        yield fields
        return
    outer = {name: value for name, value in fields.items() if name != "requests"}
    if "timestamp" in outer:
        outer["batchtimestamp"] = outer["timestamp"]
    inner = list(_objects(nested, "requests"))
    later = _spawned(outer, inner)
    for each in inner:
        moved = {"t": each["t"] + later} if later and isinstance(each.get("t"), (int, float)) else {}
        yield from _requests({**outer, **each, **moved}, depth + 1)


def _spawned(outer: Mapping[str, Any], inner: list[dict[str, Any]]) -> float:
    """What is to be added to times that count from the start of an agent within a conversation."""
    start = outer.get("t")
    first = next((each["t"] for each in inner if isinstance(each.get("t"), (int, float))), None)
    return start if isinstance(start, (int, float)) and first is not None and first < start else 0.0


def _objects(values: list[Any], name: str) -> Iterator[dict[str, Any]]:
    for value in values:
        if not isinstance(value, dict):
            raise ValueError(f"{name} holds something that is no object")
        yield {plain_key(key): each for key, each in value.items()}


def _span(fields: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A call of a model, if the span is one that succeeded; agents' and tools' spans are not sent."""
    told = _attributes(fields["attributes"])
    counted = any(name in told for name in (*_COUNTS_IN, *_COUNTS_OUT))
    status = fields.get("status")
    failed = isinstance(status, dict) and status.get("code") in _FAILED
    if failed or not (counted or told.get("gen_ai.operation.name") in _GENERATES):
        return
    prompt, output = _length(told, _COUNTS_IN, _TEXTS_IN), _length(told, _COUNTS_OUT, _TEXTS_OUT)
    times = {"starttimens": fields["starttimeunixnano"]} if "starttimeunixnano" in fields else {}
    yield {
        **(times or {"starttime": fields["starttime"]}),
        "prompttokens": prompt,
        "outputtokens": output,
        ESTIMATED: not all(any(name in told for name in names) for names in (_COUNTS_IN, _COUNTS_OUT)),
    }


def _attributes(given: Any) -> dict[str, Any]:
    """As an object, or as the list of keys and typed values that OTLP has in JSON."""
    if isinstance(given, dict):
        return given
    told: dict[str, Any] = {}
    for each in given if isinstance(given, list) else ():
        if isinstance(each, dict) and isinstance(value := each.get("value"), dict):
            told[str(each.get("key"))] = next(iter(value.values()), None)
    return told


def _length(told: Mapping[str, Any], counts: tuple[str, ...], texts: tuple[str, ...]) -> Any:
    """Tokens as counted; else as many as the texts make of them."""
    if (count := next((told[name] for name in counts if name in told), None)) is not None:
        return count
    text = next((told[name] for name in texts if told.get(name)), "")
    return -(-_characters(text) // CHARACTERS_PER_TOKEN)


def _characters(value: Any, depth: int = 0) -> int:
    """Of all contents in messages, without names of fields and roles."""
    if isinstance(value, str):
        if depth == 0 and value.lstrip()[:1] in ("[", "{"):
            try:
                return _characters(msgspec.json.decode(value), 1)
            except (msgspec.DecodeError, RecursionError):
                return len(value)
        return len(value)
    if isinstance(value, list) and depth <= _DEEPEST:
        return sum(_characters(each, depth + 1) for each in value)
    if isinstance(value, dict) and depth <= _DEEPEST:
        return sum(_characters(value.get(name), depth + 1) for name in ("content", "text", "parts", "arguments"))
    return 0
