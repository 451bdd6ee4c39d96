"""The constant shape around a stream's text, learned from one event, so that the next ones need no JSON decoder.

A server repeats the same bytes around every token of a stream::

    data: {"id":"…","choices":[{"index":0,"delta":{"content":"   text   "},"finish_reason":null}]}\\n\\n
    `------------------------- head ------------------------'      `------------- tail ------------'

Replacing one JSON string by another changes the value of that string and nothing else. So an event that has the head,
a valid, non-empty JSON string and the tail means what the learned event meant, with other text. Whether the string
found is the text is not guessed: events made from the shape are read the long way and must come out as expected. Where
counters run along (usage in every chunk, sequence numbers), the shape has holes for them, too.

Streams of one server differ in no more than the answer's id and date. By the same reasoning, a shape that was tried
once holds for all of them, so the streams that follow the first need not try it again.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import msgspec

from prefillwatch.wire.facts import MAX_TOKENS, AnswerFacts

#: Reads one block of bytes the long way; gives the facts of that block alone, not `complete` if it is not one event.
Probe = Callable[[bytes], AnswerFacts]
#: Decodes a JSON string, quotes included; raises on anything that is not exactly one.
decode_string: Final = msgspec.json.Decoder(str).decode
_decode_strings: Final = msgspec.json.Decoder(list[str]).decode
#: What `decode_string` raises.
NO_STRING: Final = (msgspec.DecodeError, UnicodeDecodeError)

_TEXT: Final = re.compile(
    rb'"(?:content|reasoning|reasoning_content|text|delta|thinking|partial_json|arguments|refusal)":[ ]?'
    rb'"([^"\\\x00-\x1f]*(?:\\[^\x00-\x1f][^"\\\x00-\x1f]*)*)"'
)
_COUNTER: Final = re.compile(
    rb'"(completion_tokens|output_tokens|total_tokens|reasoning_tokens|sequence_number)":[ ]?([0-9]{1,15})(?=[,}])'
)
_COMPLETION: Final = (b"completion_tokens", b"output_tokens")
_MAX_DIGITS: Final = 15
_ZERO: Final = ord("0")
_MAX_BLOCK: Final = 8192
_MAX_TEXT: Final = 65536  # with what follows it; longer texts go the long way, where there is a limit on events
#: What tells the streams of one server apart: a string and a number at the beginning of each event.
_IDENTITY: Final = re.compile(rb'("id":[ ]?")[ !#-\[\]-~]+(?=")|("created":[ ]?)(?:0|[1-9][0-9]{0,14})(?=[,}])')
_MOST_TRIED: Final = 64
_PROBES: Final = ((b"x", b"0"), (b"other text", b"987654321"))


class Constant:
    """A shape in which nothing but the text changes.

    What `take` does is done twice more, where a call per token would cost too much: by `AnswerReader.feed` for one read
    and by `core.reading` for a packet of them. tests/wire/test_answer.py and tests/core/test_reading.py hold the three
    against the long way.
    """

    __slots__ = ("choice", "head", "head_length", "tail", "tail_length")

    def __init__(self, head: bytes, tail: bytes, choice: int) -> None:
        self.head = head
        self.tail = tail
        self.choice = choice
        self.head_length = len(head)
        self.tail_length = len(tail)

    def build(self, text: bytes, count: bytes) -> bytes:  # noqa: ARG002
        return self.head + text + self.tail

    def take(self, data: bytes, start: int, facts: AnswerFacts) -> int:
        """Read the event at `start` into `facts` and return where it ends; -1 when it has another shape."""
        if not data.startswith(self.head, start):
            return -1
        text_start = start + self.head_length
        text_end = data.find(self.tail, text_start, text_start + _MAX_TEXT)
        if text_end <= text_start:
            return -1
        try:
            text = decode_string(data[text_start - 1 : text_end + 1])
        except NO_STRING:
            return -1
        facts.add_tokens(self.choice, len(text))
        return text_end + self.tail_length


class Counting:
    """A shape with running numbers in it, of which one may be the cumulative tokens of the choice."""

    __slots__ = ("_holes", "choice", "has_count", "head")

    def __init__(self, head: bytes, tail: bytes, choice: int) -> None:
        before, after = _cut(head), _cut(tail)
        self.head = before[0][1]
        # What fills each hole, and the bytes that follow it.
        self._holes = [*before[1:], (b"text", after[0][1]), *after[1:]]
        self.choice = choice
        self.has_count = sum(name in _COMPLETION for name, _ in self._holes) == 1

    def build(self, text: bytes, count: bytes) -> bytes:
        return self.head + b"".join((text if name == b"text" else count) + rest for name, rest in self._holes)

    def take(self, data: bytes, start: int, facts: AnswerFacts) -> int:
        """Read the event at `start` into `facts` and return where it ends; -1 when it has another shape."""
        if not data.startswith(self.head, start):
            return -1
        position = start + len(self.head)
        chars = completion = 0
        for name, rest in self._holes:
            end = data.find(rest, position, position + _MAX_TEXT)
            if end <= position:
                return -1
            if name == b"text":
                try:
                    chars = len(decode_string(data[position - 1 : end + 1]))
                except NO_STRING:
                    return -1
            else:
                digits = data[position:end]
                if not digits.isdigit() or end - position > _MAX_DIGITS or (digits[0] == _ZERO and len(digits) > 1):
                    return -1
                if name in _COMPLETION:
                    completion = int(digits)
                    if completion > MAX_TOKENS:
                        return -1
            position = end + len(rest)
        if self.has_count:
            facts.add_counted_tokens(self.choice, chars, completion)
        else:
            facts.add_tokens(self.choice, chars)
        return position


Template = Constant | Counting


class Tried:
    """Constant shapes that were tried, without what tells streams apart, and the choice that each is of. Only the
    newest are kept."""

    __slots__ = ("_choices",)

    def __init__(self) -> None:
        self._choices: dict[tuple[bytes, bytes], int] = {}

    def choice(self, head: bytes, tail: bytes) -> int | None:
        return self._choices.get((_anonymous(head), tail))

    def add(self, shape: Constant) -> None:
        while len(self._choices) >= _MOST_TRIED:
            del self._choices[next(iter(self._choices))]
        self._choices[_anonymous(shape.head), shape.tail] = shape.choice


def _anonymous(head: bytes) -> bytes:
    return _IDENTITY.sub(rb"\1\2*", head, count=2)


def learn(block: bytes, probe: Probe, tried: Tried) -> Template | None:
    """The shape of `block`, one whole event with text; None when it has none that can be relied on. ``tried`` are
    shapes of events that the same probe reads."""
    if len(block) > _MAX_BLOCK:
        return None
    kind = Counting if _COUNTER.search(block) else Constant
    matches = [match for match in _TEXT.finditer(block) if match.end(1) > match.start(1)]
    if kind is Constant and matches:
        head, tail = block[: matches[0].start(1)], block[matches[0].end(1) :]
        known = tried.choice(head, tail)
        if known is not None:
            return Constant(head, tail, known)
    original = probe(block)
    choice = original.only_choice
    if choice is None or not original.complete:
        return None
    for match in matches:
        template = kind(block[: match.start(1)], block[match.end(1) :], choice)
        if _holds(template, original, probe):
            if isinstance(template, Constant) and match is matches[0]:
                tried.add(template)
            return template
    return None


def _holds(template: Template, original: AnswerFacts, probe: Probe) -> bool:
    for text, count in _PROBES:
        block = template.build(text, count)
        expected = probe(block)
        got = AnswerFacts()
        if template.take(block, 0, got) != len(block) or got.progress() != expected.progress():
            return False
        if expected.progress()[1] != len(text) or expected.frame() != original.frame():
            return False
    return True


def _cut(data: bytes) -> list[tuple[bytes, bytes]]:
    """Cut at running numbers: (counter's name, bytes after its number) in order; the first has no name."""
    pieces: list[tuple[bytes, bytes]] = []
    name, start = b"", 0
    for match in _COUNTER.finditer(data):
        pieces.append((name, data[start : match.start(2)]))
        name, start = match.group(1), match.end(2)
    pieces.append((name, data[start:]))
    return pieces


def text_lengths(texts: list[bytes]) -> list[int]:
    """Characters of each of these insides of JSON strings; 0 for one that is none, or has none.

    Most often all are decoded at once. Without a quote inside any of them, they come out as so many strings only if
    each of the quotes that are put around them ends the string that it was put there to end.
    """
    together = b'","'.join(texts)
    if together.count(b'"') == 2 * (len(texts) - 1):
        try:
            decoded = _decode_strings(b'["' + together + b'"]')
        except NO_STRING:
            decoded = []
        if len(decoded) == len(texts):
            return list(map(len, decoded))
    return list(map(_text_length, texts))


def _text_length(text: bytes) -> int:
    try:
        return len(decode_string(b'"' + text + b'"'))
    except NO_STRING:
        return 0
