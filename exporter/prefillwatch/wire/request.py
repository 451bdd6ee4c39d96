"""What a request asks for: which model, how much prompt, how many answers, streamed or not.

What a stranger sends is read within bounds: of a body no more is built than its structure allows (see `structure`), and
no more of a compressed one comes out than the caller allows. What is beyond them is not read; then the size of the body
has to tell.
"""

from __future__ import annotations

import contextlib
import json
import re
from typing import Final, TypeVar

import msgspec

from prefillwatch.wire import partial
from prefillwatch.wire.faults import place_of
from prefillwatch.wire.fingerprint import (
    BLOCK_CHARS,
    BLOCK_TOKENS,
    MAX_BLOCKS,
    stand_in,
    text_fingerprint,
    token_fingerprint,
)
from prefillwatch.wire.inflate import InflateError, inflate_beginning
from prefillwatch.wire.reasons import UnparsedReason
from prefillwatch.wire.routes import GENERATING, READING, endpoint_of
from prefillwatch.wire.sender import clipped
from prefillwatch.wire.structure import MOST_MARKS, has_more_marks
from prefillwatch.wire.tolerant import TolerantDecoder, UnreadableError

T = TypeVar("T")

#: Of a compressed request body no more than this is looked at.
MAX_INFLATED_BYTES: Final = 2 * 1024 * 1024
#: Of either end of a body, where it is not read.
GLANCED_BYTES: Final = 4096
#: The name of a model that no server can have: one that is no text, or longer than any name.
UNKNOWN_MODEL: Final = "other"

#: A body that only a forgiving decoder reads is not read beyond this size: that one makes an object of every value.
_MOST_MENDED: Final = 1024 * 1024
_FINGERPRINT_CHARS: Final = BLOCK_CHARS * MAX_BLOCKS
_MAX_COUNT: Final = 1 << 31
#: Contents inside each other: a message's, a tool result's, and what that quotes. No prompt goes deeper.
_MAX_CONTENT_DEPTH: Final = 8
_MEDIA_PARTS: Final = frozenset(
    {
        *("image_url", "input_image", "image", "image_embeds", "image_pil", "input_audio", "audio_url", "audio"),
        *("video_url", "video", "input_video", "file", "input_file", "document"),
    }
)
_NOTHING: Final = msgspec.Raw()
_NULL: Final = msgspec.Raw(b"null")
_SPACE: Final = b" \t\r\n"
_LONGEST_NAME: Final = 256
_LONGEST_USER_BYTES: Final = 8192  # a whole name of escapes, and more than any server takes
_LONGEST_NAME_BYTES: Final = 6 * _LONGEST_NAME + 2  # every character escaped
# Inside a string its quotes would be escaped.
_MODEL: Final = re.compile(rb'(?<!\\)"model"[ \t\r\n]*:[ \t\r\n]*("[^"\\\x00-\x1f]{0,256}"|[^"\s])')
_FIELDS: Final = re.compile(rb'name="(model|stream)"\r\n\r\n([^\r\n]{0,256})\r\n')
_STREAM: Final = re.compile(rb'(?<!\\)"stream"[ \t\r\n]*:[ \t\r\n]*(true|false)')


class RequestFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One request. What could not be read is None (counts: their default); then `complete` is False."""

    endpoint: str
    model: str = ""
    stream: bool | None = None
    prompts: int = 1
    choices: int = 1  # answers per prompt; the answer has prompts * choices streams
    prompt_chars: int | None = None  # of all prompts together
    prompt_tokens: int | None = None  # exact, where the prompt came as token ids
    media: int = 0  # images, audio, video, files: their tokens are known from usage only
    max_tokens: int | None = None
    include_usage: bool | None = None  # None: the client did not say
    continuous_usage: bool | None = None
    hides_thought: bool = False  # tokens of thought are made and not shown
    prefix: tuple[int, ...] = ()  # see fingerprint; of the first prompt
    user: str = ""  # as the body says; whoever reads it makes a name of it (see `sender`), or forgets it
    priority: int | None = None  # clipped to the classes of `sender`
    complete: bool = True
    fault: str = ""  # where an error of ours was, if there was one


class Part(msgspec.Struct, gc=False):
    """A piece of content in any of the three dialects."""

    type: str = ""
    text: str | None = None
    thinking: str | None = None
    refusal: str | None = None
    content: str | list[str | Part] | None = None  # of tool results
    name: str | None = None
    input: msgspec.Raw = _NOTHING  # of tool use
    image_url: msgspec.Raw = _NOTHING
    input_audio: msgspec.Raw = _NOTHING
    audio_url: msgspec.Raw = _NOTHING
    video_url: msgspec.Raw = _NOTHING
    source: msgspec.Raw = _NOTHING
    file: msgspec.Raw = _NOTHING


class Item(msgspec.Struct, gc=False):
    """A message, or an item of a Responses input."""

    role: str | None = None
    content: str | list[str | Part] | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: msgspec.Raw = _NOTHING
    function_call: msgspec.Raw = _NOTHING
    name: str | None = None
    arguments: str | None = None  # of function calls
    output: str | list[str | Part] | None = None  # of function call outputs


class StreamOptions(msgspec.Struct, gc=False):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class Body(msgspec.Struct, gc=False):
    """The members of a request body that matter here, for all four endpoints. None is built before it was looked at."""

    model: msgspec.Raw = _NOTHING
    stream: msgspec.Raw = _NOTHING
    n: msgspec.Raw = _NOTHING
    max_tokens: msgspec.Raw = _NOTHING
    max_completion_tokens: msgspec.Raw = _NOTHING
    max_output_tokens: msgspec.Raw = _NOTHING
    stream_options: msgspec.Raw = _NOTHING
    user: msgspec.Raw = _NOTHING
    priority: msgspec.Raw = _NOTHING
    include_reasoning: msgspec.Raw = _NOTHING
    prompt: msgspec.Raw = _NOTHING
    prompt_embeds: msgspec.Raw = _NOTHING
    messages: msgspec.Raw = _NOTHING
    input: msgspec.Raw = _NOTHING
    instructions: msgspec.Raw = _NOTHING
    # Prompts of endpoints other than the four.
    text: msgspec.Raw = _NOTHING
    input_ids: msgspec.Raw = _NOTHING
    inputs: msgspec.Raw = _NOTHING
    token_ids: msgspec.Raw = _NOTHING
    input_prefix: msgspec.Raw = _NOTHING
    input_suffix: msgspec.Raw = _NOTHING
    text_1: msgspec.Raw = _NOTHING
    text_2: msgspec.Raw = _NOTHING
    queries: msgspec.Raw = _NOTHING
    query: msgspec.Raw = _NOTHING
    items: msgspec.Raw = _NOTHING
    n_predict: msgspec.Raw = _NOTHING
    system: msgspec.Raw = _NOTHING
    tools: msgspec.Raw = _NOTHING
    functions: msgspec.Raw = _NOTHING
    documents: msgspec.Raw = _NOTHING


#: Where an endpoint has its prompts, each of which is a text, token ids, or a list of either. What is not here has a
#: conversation.
_PROMPTS: Final[dict[str, tuple[str, ...]]] = {
    "completions": ("prompt",),
    "native": ("prompt", "input_prefix", "input_suffix", "text", "input_ids", "inputs", "token_ids"),
    "embeddings": ("input", "prompt"),
    "pooling": ("input",),
    "classify": ("input",),
    "score": ("text_1", "text_2", "queries", "query", "documents", "items"),
    "rerank": ("query", "documents"),
}
#: Of these the prompts may be a conversation instead.
_CONVERSING: Final = frozenset({"native", "embeddings", "pooling", "classify"})

_envelopes = msgspec.json.Decoder(Body)
_bodies: TolerantDecoder[Body] = TolerantDecoder(Body)
_names = msgspec.json.Decoder(str)
_flags = msgspec.json.Decoder(bool)
_counts = msgspec.json.Decoder(int)
_stream_options: TolerantDecoder[StreamOptions] = TolerantDecoder(StreamOptions)
_NO_OPTIONS: Final = StreamOptions()


_messages: TolerantDecoder[list[Item]] = TolerantDecoder(list[Item])
_batches: TolerantDecoder[list[list[Item]]] = TolerantDecoder(list[list[Item]])
_inputs: TolerantDecoder[str | list[str | Item]] = TolerantDecoder(str | list[str | Item], str)
_contents: TolerantDecoder[str | list[str | Part]] = TolerantDecoder(str | list[str | Part], str)
_prompts: TolerantDecoder[str | list[str | int | list[int]]] = TolerantDecoder(str | list[str | int | list[int]], str)
_ids = msgspec.json.Decoder(list[int])
_LISTS: Final = re.compile(rb"\[[ \t\r\n]*\[")
_IDS: Final = re.compile(rb"\[[ \t\r\n]*(?:\[[ \t\r\n]*)?[0-9]")
#: The beginning of a list of token ids that is built, for its fingerprint.
_IDS_SHOWN: Final = 8 * BLOCK_TOKENS * MAX_BLOCKS


def read_request(
    path: str, content_encoding: str, body: bytes, complete: bool = True, most_inflated: int = MAX_INFLATED_BYTES
) -> RequestFacts | None:
    """The facts of a request to a generating endpoint, None for other paths. Never raises.

    `complete=False` says that `body` is only the beginning of what the client sent. Servers look at content type and
    encoding or do not, so what reads as JSON is taken for JSON.
    """
    endpoint = endpoint_of(path)
    if endpoint not in GENERATING:
        return None
    if endpoint == "audio" and body.lstrip(_SPACE)[:1] != b"{":
        # A form with a recording in it, whose size says little of its tokens.
        model, stream = _form(body)
        return RequestFacts(endpoint=endpoint, model=model, stream=stream, prompt_chars=0, media=1)
    try:
        return _read(endpoint, content_encoding, body, complete, most_inflated)
    except UnreadableError:
        return RequestFacts(endpoint=endpoint, complete=False)
    except Exception as error:  # a fault of ours costs the facts of this request, not the figures of all others
        return RequestFacts(endpoint=endpoint, complete=False, fault=place_of(error))


def glance(body: bytes | bytearray) -> tuple[str, bool | None]:
    """Which model a body names and whether it asks for a stream, by its first and last bytes: "" and None where they do
    not say. For bodies that are not read, or not yet."""
    ends = bytes(body[:GLANCED_BYTES])
    if len(body) > GLANCED_BYTES:
        ends += b"\0" + body[-GLANCED_BYTES:]
    model, stream = _MODEL.search(ends), _STREAM.search(ends)
    name = _name(msgspec.Raw(model[1])) if model is not None else ""
    return name, stream[1] == b"true" if stream is not None else None


def _form(body: bytes) -> tuple[str, bool | None]:
    """Model and `stream` of a form with several parts, by its first and last bytes."""
    ends = body[:GLANCED_BYTES] + b"\0" + body[-GLANCED_BYTES:]
    fields = dict(_FIELDS.findall(ends))
    name = fields.get(b"model", b"").decode("utf-8", "replace")[:_LONGEST_NAME]
    stream = fields.get(b"stream")
    return name, stream.lower() in (b"true", b"1") if stream is not None else None


def _read(endpoint: str, content_encoding: str, body: bytes, complete: bool, most_inflated: int) -> RequestFacts:
    coded = bool(content_encoding) and content_encoding.strip().lower() != "identity"
    if not coded:
        return _read_json(endpoint, body, complete)
    if body[:GLANCED_BYTES].lstrip(_SPACE)[:1] == b"{":  # servers that do not inflate do not look at the encoding
        try:
            return _facts(endpoint, _bodies.decode(body), complete)
        except UnreadableError:
            pass
    try:
        inflated = inflate_beginning(content_encoding, body, most_inflated)
    except InflateError:
        return _read_json(endpoint, body, complete)
    return _read_json(endpoint, inflated, complete and len(inflated) < most_inflated)


def _read_json(endpoint: str, body: bytes, complete: bool) -> RequestFacts:
    try:
        return _facts(endpoint, _envelope(body), complete)
    except UnreadableError:
        pass
    encoding = json.detect_encoding(body[:4])  # servers in Python find out UTF-16 and UTF-32 by themselves
    text = body if encoding == "utf-8" else body.decode(encoding, "replace").encode("utf-8", "replace")
    if len(text) <= _MOST_MENDED and not has_more_marks(text):
        try:
            return _facts(endpoint, _bodies.decode(text), complete and text.lstrip(_SPACE)[:1] == b"{")
        except UnreadableError:
            pass
    return _facts(endpoint, _envelope(partial.close(text)), False)


def _envelope(body: bytes) -> Body:
    try:
        return _envelopes.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise UnreadableError(UnparsedReason.JSON) from None


def _facts(endpoint: str, body: Body, complete: bool) -> RequestFacts:
    text = PromptText()
    prompts, tokens = _read_all_prompts(endpoint, body, text)
    if endpoint not in _PROMPTS or (endpoint in _CONVERSING and not text.chars and tokens is None):
        prompts = _read_conversation(body, text)
    options = _stream_options.decode(bytes(body.stream_options)) if _is_said(body.stream_options) else _NO_OPTIONS
    complete = complete and text.whole
    stream = _said(body.stream, _flags)
    if stream is None and complete:
        stream = False
    return RequestFacts(
        endpoint=endpoint,
        model=_name(body.model),
        stream=stream,
        prompts=prompts,
        choices=_count(body.n) or 1,
        prompt_chars=text.chars,
        prompt_tokens=tokens,
        media=text.media,
        max_tokens=_most_tokens(endpoint, body),
        include_usage=options.include_usage,
        continuous_usage=options.continuous_usage_stats,
        hides_thought=body.include_reasoning is not _NOTHING and _said(body.include_reasoning, _flags) is False,
        prefix=text.fingerprint,
        user=_user(body.user) if body.user is not _NOTHING else "",
        priority=_priority(body.priority) if body.priority is not _NOTHING else None,
        complete=complete,
    )


def _user(raw: msgspec.Raw) -> str:
    """As far as it tells users apart."""
    return (_said(raw, _names) or "")[:_LONGEST_NAME] if len(bytes(raw)) <= _LONGEST_USER_BYTES else ""


def _priority(raw: msgspec.Raw) -> int | None:
    """None for what is no whole number, which a server refuses."""
    said = _said(raw, _counts)
    return None if said is None else clipped(said)


def _is_said(raw: msgspec.Raw) -> bool:
    return raw is not _NOTHING and raw not in (_NOTHING, _NULL)  # the first is what most are, and quick


def _said(raw: msgspec.Raw, decoder: msgspec.json.Decoder[T]) -> T | None:
    """A member's value; None where it is missing or of another kind."""
    if raw is _NOTHING:
        return None
    try:
        return decoder.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def _name(raw: msgspec.Raw) -> str:
    """The model that is asked for; "" stands for the server's default."""
    if not _is_said(raw):
        return ""
    name = _said(raw, _names) if len(bytes(raw)) <= _LONGEST_NAME_BYTES else None
    return name if name is not None and len(name) <= _LONGEST_NAME else UNKNOWN_MODEL


def _count(raw: msgspec.Raw) -> int | None:
    """A number that makes sense; 0 does: a request for the prompt's log probabilities alone."""
    count = _said(raw, _counts)
    return count if count is not None and 0 <= count < _MAX_COUNT else None


def _most_tokens(endpoint: str, body: Body) -> int | None:
    """By the first limit that is said."""
    if endpoint in READING:
        return 0
    for raw in (body.max_completion_tokens, body.max_tokens, body.max_output_tokens, body.n_predict):
        if raw is not _NOTHING and (count := _count(raw)) is not None:
            return count
    return None


class PromptText:
    """Collects a prompt in the order in which chat templates write it; of the text only the beginning is kept."""

    __slots__ = ("_kept", "_pieces", "_token_fingerprint", "chars", "media", "whole")

    def __init__(self) -> None:
        self.whole = True  # False: some of it was too much to look at; then `chars` counts its bytes
        self.chars = 0
        self.media = 0
        self._pieces: list[str] = []
        self._kept = 0
        self._token_fingerprint: tuple[int, ...] = ()

    @property
    def fingerprint(self) -> tuple[int, ...]:
        return self._token_fingerprint or text_fingerprint("".join(self._pieces))

    def add(self, text: str | None) -> None:
        if text:
            self.chars += len(text)
            self.mark(text)

    def add_raw(self, raw: msgspec.Raw) -> None:
        """A JSON value that templates write out as it is, or nearly so."""
        data = bytes(raw)
        if data and data != b"null":
            self.add(data.decode("utf-8", "replace"))

    def take(self, raw: msgspec.Raw, decoder: TolerantDecoder[T]) -> T | None:
        """The value of a member, to be gone through; None where there is none, or too much."""
        if not _is_said(raw):
            return None
        data = bytes(raw)
        if has_more_marks(data):
            self.add_unread(data)
            return None
        value, whole = decoder.decode_noting(data)
        self.whole = self.whole and whole
        return value

    def add_unread(self, data: bytes) -> None:
        self.chars += len(data)
        self.whole = False

    def add_media(self, raw: bytes) -> None:
        self.media += 1
        self.mark(stand_in(raw))

    def add_tokens(self, tokens: list[int]) -> None:
        self._token_fingerprint = token_fingerprint(tokens)

    def mark(self, text: str) -> None:
        """Text that belongs to the fingerprint alone."""
        if self._kept < _FINGERPRINT_CHARS:
            self._kept += len(text)
            self._pieces.append(text[:_FINGERPRINT_CHARS])


def _read_all_prompts(endpoint: str, body: Body, text: PromptText) -> tuple[int, int | None]:
    """Number of prompts, and their tokens where all came as ids. One request of those that write nothing is one."""
    prompts, tokens = 1, None
    for member in _PROMPTS.get(endpoint, ()):
        raw: msgspec.Raw = getattr(body, member)
        if _is_said(raw):
            number, its_tokens = _read_prompts(raw, text)
            prompts = max(prompts, number)
            tokens = (tokens or 0) + its_tokens if its_tokens is not None else tokens
    if endpoint == "completions" and _is_said(body.prompt_embeds):
        text.add_media(bytes(body.prompt_embeds))
    if endpoint in READING:
        prompts = 1
    return prompts, tokens if not text.chars else None


def _read_prompts(raw: msgspec.Raw, text: PromptText) -> tuple[int, int | None]:
    """Number of prompts, and their tokens where they came as ids."""
    if len(bytes(raw)) > MOST_MARKS and _IDS.match(raw) and has_more_marks(bytes(raw)):
        return _count_ids(bytes(raw), text)
    prompt = text.take(raw, _prompts)
    if prompt is None or isinstance(prompt, str):
        text.add(prompt)
        return 1, None
    if not prompt:
        return 1, None
    if isinstance(prompt[0], int):
        ids = [token for token in prompt if isinstance(token, int)]
        text.add_tokens(ids)
        return 1, len(ids)
    if isinstance(prompt[0], list):
        text.add_tokens(prompt[0])
        return len(prompt), sum(len(ids) for ids in prompt if isinstance(ids, list))
    text.add(prompt[0])
    text.chars += sum(len(other) for other in prompt[1:] if isinstance(other, str))
    return len(prompt), None


def _count_ids(data: bytes, text: PromptText) -> tuple[int, int | None]:
    """The same for a list of more token ids than are worth building: what stands between commas is one."""
    if b'"' in data or b"{" in data:
        text.add_unread(data)
        return 1, None
    start = data.rindex(b"[", 0, _IDS_SHOWN) + 1 if data.find(b"]", 0, _IDS_SHOWN) < 0 else data.index(b"[") + 1
    front = data[start:_IDS_SHOWN].partition(b"]")[0]
    with contextlib.suppress(msgspec.MsgspecError, ValueError):
        text.add_tokens(_ids.decode(b"[" + front[: front.rfind(b",")] + b"]"))
    return max(data.count(b"[") - 1, 1), data.count(b",") + 1


def _read_conversation(body: Body, text: PromptText) -> int:
    """How many conversations there are."""
    for definitions in (body.tools, body.functions, body.documents):
        if definitions is not _NOTHING:
            text.add_raw(definitions)
    text.add(_said(body.instructions, _names))
    if body.system is not _NOTHING:
        _read_content(text.take(body.system, _contents), text)
    asked = text.take(body.input, _inputs)
    if isinstance(asked, str):
        text.add(asked)
        asked = None
    if _LISTS.match(body.messages):
        conversations = text.take(body.messages, _batches) or []
    else:
        conversations = [text.take(body.messages, _messages) or []]
    for messages in (*conversations, asked or ()):
        for message in messages:
            _read_item(message, text)
    return max(1, len(conversations))


def _read_item(item: str | Item, text: PromptText) -> None:
    if isinstance(item, str):
        text.add(item)
        return
    text.mark(f"\n{item.role or ''}\n")
    text.add(item.reasoning or item.reasoning_content)
    if isinstance(item.content, str):  # nearly always
        text.add(item.content)
    else:
        _read_content(item.content, text)
    if item.arguments is not None:
        text.add(item.name)
        text.add(item.arguments)
    _read_content(item.output, text)
    for calls in (item.tool_calls, item.function_call):
        if calls is not _NOTHING:
            text.add_raw(calls)


def _read_content(content: str | list[str | Part] | None, text: PromptText, depth: int = 0) -> None:
    if content is None or isinstance(content, str):
        text.add(content)
        return
    if depth > _MAX_CONTENT_DEPTH:
        return
    for part in content:
        if isinstance(part, str):
            text.add(part)
        else:
            _read_part(part, text, depth)


def _read_part(part: Part, text: PromptText, depth: int) -> None:
    if part.type in _MEDIA_PARTS:
        sources = (part.image_url, part.input_audio, part.audio_url, part.video_url, part.source, part.file)
        text.add_media(b"".join(map(bytes, sources)))
        return
    for piece in (part.text, part.thinking, part.refusal):
        text.add(piece)
    if part.type == "tool_use":
        text.add(part.name)
        text.add_raw(part.input)
    _read_content(part.content, text, depth + 1)
