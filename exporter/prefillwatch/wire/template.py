"""The constant shape around a stream's text, learned from one event, so that the next ones need no JSON decoder.

A server repeats the same bytes around every token of a stream::

    data: {"id":"…","choices":[{"index":0,"delta":{"content":"   text   "},"finish_reason":null}]}\\n\\n
    `------------------------- head ------------------------'      `------------- tail ------------'

Replacing one JSON string by another changes the value of that string and nothing else. So an event that has the head,
a valid, non-empty JSON string and the tail means what the learned event meant, with other text. Whether the string
found is the text is not guessed: events made from the shape are read the long way and must come out as expected. Where
counters run along (usage in every chunk, sequence numbers), the shape has holes for them, too.

Streams of one server differ in no more than the answer's id and date. By the same reasoning, a shape that was tried
once holds for all of them (`Tried`): the streams that follow the first need not try it again, and where the shape tells
nothing but text, id and model, not even their first event is decoded.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import islice
from typing import Final, NamedTuple

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
_ID: Final = re.compile(rb"[ !#-\[\]-~]+")
_DATE: Final = re.compile(rb"(?:0|[1-9][0-9]{0,14})")
_IDENTITY: Final = re.compile(rb'"id":[ ]?"(%b)(?=")|"created":[ ]?(%b)(?=[,}])' % (_ID.pattern, _DATE.pattern))
#: Every stream is held against them in turn, the one that was found last first.
_MOST_TRIED: Final = 16
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


class Same(NamedTuple):
    """An event of a shape that was tried in another stream."""

    shape: Constant
    #: What it tells besides text, id and model is nothing.
    plain: bool
    chars: int
    response_id: str
    model: str
    #: How its reader left `AnswerFacts.continuous`.
    continuous: bool


class _TriedShape:
    """A constant shape without what tells streams apart."""

    __slots__ = ("begin", "choice", "continuous", "holes", "model", "plain", "tail", "tells_id")

    def __init__(self, shape: Constant, original: AnswerFacts) -> None:
        self.begin, position = shape.head, 0
        #: What fills each hole, and the bytes that follow it.
        self.holes: list[tuple[re.Pattern[bytes], bytes]] = []
        ids = []
        for hole in islice(_IDENTITY.finditer(shape.head), 2):
            start, end = hole.span(hole.lastindex or 0)
            self._cut(shape.head[position:start])
            self.holes.append((_ID if hole.lastindex == 1 else _DATE, shape.head[end:]))
            ids += [shape.head[start:end].decode()] if hole.lastindex == 1 else []
            position = end
        self.tail = shape.tail
        self.choice = shape.choice
        self.model = original.model
        self.continuous = original.continuous
        #: The first of them is the answer's id.
        self.tells_id = ids == [original.response_id]
        told = AnswerFacts()
        told.identify(original.response_id, original.model)
        self.plain = original.frame() == told.frame() and (self.tells_id or not original.response_id)
        self.plain = self.plain and original.completion_tokens is None

    def _cut(self, piece: bytes) -> None:
        """What comes before the next hole."""
        if self.holes:
            self.holes[-1] = (self.holes[-1][0], piece)
        else:
            self.begin = piece

    @property
    def pieces(self) -> tuple[bytes, ...]:
        return (self.begin, *(rest for _, rest in self.holes), self.tail)

    def fit(self, block: bytes) -> tuple[int, bytes] | None:
        """Where the text begins, if the block looks like this, and the id before it."""
        if not (block.endswith(self.tail) and block.startswith(self.begin)):
            return None
        position, response_id = len(self.begin), b""
        for pattern, rest in self.holes:
            filling = pattern.match(block, position)
            if filling is None or not block.startswith(rest, filling.end()):
                return None
            position = filling.end() + len(rest)
            if pattern is _ID:
                response_id = filling[0]
        return position, response_id


class Tried:
    """Constant shapes that were tried. Only those that were found last are kept."""

    __slots__ = ("_shapes",)

    def __init__(self) -> None:
        self._shapes: list[_TriedShape] = []

    def find(self, block: bytes) -> Same | None:
        """The shape of one whole event, if it was tried; None where it was not."""
        for place, shape in enumerate(self._shapes):
            found = shape.fit(block)
            if found is None:
                continue
            (begin, its_id), end = found, len(block) - len(shape.tail)
            try:
                chars = len(decode_string(block[begin - 1 : end + 1])) if begin < end else 0
            except NO_STRING:
                chars = 0
            if not chars:
                continue
            if place:
                self._shapes.insert(0, self._shapes.pop(place))
            response_id = its_id.decode() if shape.tells_id else ""
            known = Constant(block[:begin], shape.tail, shape.choice)
            return Same(known, shape.plain, chars, response_id, shape.model, shape.continuous)
        return None

    def add(self, shape: Constant, original: AnswerFacts) -> None:
        """``original``: what the event told that it was learned from."""
        new = _TriedShape(shape, original)
        self._shapes = [new, *(old for old in self._shapes if old.pieces != new.pieces)]
        del self._shapes[_MOST_TRIED:]


def learn(block: bytes, probe: Probe, tried: Tried) -> Template | None:
    """The shape of `block`, one whole event with text; None when it has none that can be relied on. ``tried`` are
    shapes of events that the same probe reads."""
    if len(block) > _MAX_BLOCK:
        return None
    known = tried.find(block)
    if known is not None:
        return known.shape
    kind = Counting if _COUNTER.search(block) else Constant
    matches = [match for match in _TEXT.finditer(block) if match.end(1) > match.start(1)]
    original = probe(block)
    choice = original.only_choice
    if choice is None or not original.complete:
        return None
    for match in matches:
        template = kind(block[: match.start(1)], block[match.end(1) :], choice)
        if _holds(template, original, probe):
            if isinstance(template, Constant) and match is matches[0]:
                tried.add(template, original)
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
