"""Asking upstream for usage where the client did not, and taking exactly that out of the answer again."""

from __future__ import annotations

import itertools
import re
from typing import Final

import msgspec

from prefillwatch.wire.routes import endpoint_of

#: An event beyond this is passed on as it is.
MAX_HELD_BYTES: Final = 256 * 1024

_ASK: Final = b'"stream_options":{"include_usage":true,"continuous_usage_stats":true}'
_NULL_OPTIONS: Final = re.compile(rb'"stream_options"[ \t\r\n]*:[ \t\r\n]*null')
_JSON_SPACE: Final = b" \t\r\n"


class _Asked(msgspec.Struct):
    stream: bool | None = None
    stream_options: msgspec.Raw = msgspec.Raw()


_asked: Final = msgspec.json.Decoder(_Asked)


def rewrite(body: bytes, path: str) -> bytes | None:
    """The body that also asks for continuous usage; None when there is nothing to ask, or the client spoke of it."""
    if endpoint_of(path) not in ("chat_completions", "completions"):
        return None
    try:
        asked = _asked.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    if asked.stream is not True:
        return None
    options = bytes(asked.stream_options)
    if not options:
        start = body.index(b"{") + 1
        return body[:start] + _ASK + b"," + body[start:]
    # A quote inside a JSON string is escaped, so what is found can only be a key; being the only one, it is ours.
    found = _NULL_OPTIONS.search(body) if options == b"null" and body.count(b'"stream_options"') == 1 else None
    return body[: found.start()] + _ASK + body[found.end() :] if found is not None else None


_EVENT_END: Final = re.compile(rb"\r\n\r\n|\n\n|\r\r")
#: What an event's end can have in an earlier read.
_LONGEST_END: Final = len(b"\r\n\r")
_STREAM_STARTS: Final = (b"data:", b"event:", b"id:", b"retry:", b":", b"\n", b"\r", b"\xef\xbb\xbf")
# `usage` as the last member of the document, with nothing but counts in it: what vLLM sends with nearly every chunk.
_LAST_USAGE: Final = re.compile(
    rb',"usage":(?:null|\{(?:"[a-z_]+":(?:[0-9]+|null|\{(?:"[a-z_]+":(?:[0-9]+|null),?)*\}),?)*\})(?=\}[\r\n]+\Z)'
)
_USAGE_KEY: Final = re.compile(rb'"usage"[ \t\r\n]*:[ \t\r\n]*')
#: Places in an event that look like its usage and are tried; each try reads the whole event again.
_MAX_TRIES: Final = 8
_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


class UsageStripper:
    """Takes `usage` out of the chunks of a chat or completions stream and drops the chunk that has nothing else.

    All other bytes come out as they went in. An event is held until it is complete; what is not understood passes.
    vLLM moves `system_fingerprint` from the last chunk with text to the one that is dropped; it is not put back.
    """

    __slots__ = ("_has_cr", "_held", "_long_end", "_passing", "_searched")

    def __init__(self) -> None:
        self._held = bytearray()
        self._searched = 0
        self._has_cr = False
        self._passing = False  # gave up: everything goes through
        self._long_end: bytes | None = None  # the last bytes that were passed of an event too long to hold

    def feed(self, data: bytes) -> bytes:
        if self._passing:
            return data
        if self._long_end is not None:
            return self._pass_long_event(self._long_end, data)
        held = self._held
        if not held and data.startswith(b"data:") and data.find(b"\n\n") == len(data) - 2 and b"\r" not in data:
            return strip_usage(data)
        starts_as_stream = bool(held) or data.startswith(_STREAM_STARTS)
        if not starts_as_stream and not any(start.startswith(data) for start in _STREAM_STARTS):
            return self._give_up(data)  # nor is it the beginning of such a start
        held += data
        self._has_cr = self._has_cr or b"\r" in data
        out = self._complete_events()
        if len(held) > MAX_HELD_BYTES:
            out += bytes(held)
            self._long_end = bytes(held[-_LONGEST_END:])
            held.clear()
            self._searched = 0
        return out

    def finish(self) -> bytes:
        """What is still held when the stream ends."""
        return self._give_up(b"")

    def _complete_events(self) -> bytes:
        held = self._held
        out: list[bytes] = []
        start = 0
        while (end := self._event_end(max(start, self._searched - 3))) > 0:
            out.append(strip_usage(bytes(held[start:end])))
            start = self._searched = end
        del held[:start]
        self._searched = len(held)
        return b"".join(out)

    def _event_end(self, start: int) -> int:
        """Where the first event that ends after `start` does; 0 when none does."""
        if self._has_cr:
            found = _EVENT_END.search(self._held, start)
            return found.end() if found is not None else 0
        end = self._held.find(b"\n\n", start)
        return end + 2 if end >= 0 else 0

    def _pass_long_event(self, before: bytes, data: bytes) -> bytes:
        found = _EVENT_END.search(before + data)
        if found is None:
            self._long_end = (before + data)[-_LONGEST_END:]
            return data
        self._long_end = None
        end = found.end() - len(before)
        return data[:end] + self.feed(data[end:])

    def _give_up(self, data: bytes) -> bytes:
        self._passing = True
        rest = bytes(self._held) + data
        self._held.clear()
        return rest


def strip_usage(event: bytes) -> bytes:
    """One event, blank line included, without its usage; nothing at all when usage was all it had."""
    if b'"usage"' not in event or not event.startswith(b"data:"):
        return event
    if b'"choices":[]' not in event:
        start = event.rfind(b',"usage":')
        found = _LAST_USAGE.match(event, start) if start > 0 else None
        if found is not None and event.find(b"\n") >= found.end() and event.find(b"\r", 0, start) < 0:
            return event[:start] + event[found.end() :]
    return _strip_member(event)


def _strip_member(event: bytes) -> bytes:
    payload = event[5:].strip(_JSON_SPACE)
    try:
        members = _members.decode(payload)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return event
    usage = members.pop("usage", None)
    if usage is None:
        return event
    if bytes(members.get("choices", b"")) == b"[]" and bytes(usage) != b"null":
        return b""
    for found in itertools.islice(_USAGE_KEY.finditer(payload), _MAX_TRIES):
        if payload.startswith(bytes(usage), found.end()):
            stripped = _without(payload, found.start(), found.end() + len(bytes(usage)))
            if stripped is not None and _same_members(stripped, members):
                return event.replace(payload, stripped)
    return event


def _without(payload: bytes, start: int, end: int) -> bytes | None:
    """Remove a member together with one comma beside it."""
    before, after = payload[:start].rstrip(_JSON_SPACE), payload[end:].lstrip(_JSON_SPACE)
    if before.endswith(b","):
        return before[:-1] + payload[end:]
    if after.startswith(b","):
        return payload[:start] + after[1:].lstrip(_JSON_SPACE)
    return None


def _same_members(payload: bytes, members: dict[str, msgspec.Raw]) -> bool:
    try:
        found = _members.decode(payload)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
    return list(found) == list(members) and all(bytes(found[key]) == bytes(members[key]) for key in members)
