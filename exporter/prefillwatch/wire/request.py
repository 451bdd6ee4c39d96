"""What a request asks for: which model, how much prompt, how many answers, streamed or not."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from prefillwatch.wire import partial
from prefillwatch.wire.faults import place_of
from prefillwatch.wire.fingerprint import BLOCK_CHARS, MAX_BLOCKS, stand_in, text_fingerprint, token_fingerprint
from prefillwatch.wire.inflate import InflateError, inflater_for
from prefillwatch.wire.routes import GENERATING, endpoint_of
from prefillwatch.wire.tolerant import TolerantDecoder, UnreadableError

__all__ = ["MAX_INFLATED_BYTES", "RequestFacts", "endpoint_of", "read_request"]

#: A compressed request body that comes out larger than this is not read.
MAX_INFLATED_BYTES: Final = 32 * 1024 * 1024

_FINGERPRINT_CHARS: Final = BLOCK_CHARS * MAX_BLOCKS
_MAX_COUNT: Final = 1 << 31
#: Contents inside each other: a message's, a tool result's, and what that quotes. Nobody's prompt goes deeper.
_MAX_CONTENT_DEPTH: Final = 8
_TEXT_PARTS: Final = frozenset({"", "text", "input_text", "output_text", "refusal", "thinking", "reasoning_text"})
_MEDIA_PARTS: Final = frozenset(
    {
        *("image_url", "input_image", "image", "image_embeds", "image_pil", "input_audio", "audio_url", "audio"),
        *("video_url", "video", "input_video", "file", "input_file", "document"),
    }
)
_NOTHING: Final = msgspec.Raw()


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
    prefix: tuple[int, ...] = ()  # see fingerprint; of the first prompt
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
    """The members of a request body that matter here, for all four endpoints."""

    model: str | None = None
    stream: bool | None = None
    n: int | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    max_output_tokens: int | None = None
    stream_options: StreamOptions | None = None
    prompt: str | list[str | int | list[int]] | None = None
    messages: list[Item] | None = None
    input: str | list[str | Item] | None = None
    instructions: str | None = None
    system: str | list[str | Part] | None = None
    tools: msgspec.Raw = _NOTHING
    functions: msgspec.Raw = _NOTHING
    documents: msgspec.Raw = _NOTHING


_bodies = TolerantDecoder(Body)


def read_request(
    path: str, content_type: str, content_encoding: str, body: bytes, complete: bool = True
) -> RequestFacts | None:
    """The facts of a request to a generating endpoint, None for other paths. Never raises.

    `complete=False` says that `body` is only the beginning of what the client sent. Servers take JSON under many
    content types, so anything but a form is tried.
    """
    endpoint = endpoint_of(path)
    if endpoint not in GENERATING:
        return None
    if content_type.lower().startswith("multipart/"):
        return RequestFacts(endpoint=endpoint, complete=False)
    try:
        return _read_body(endpoint, inflater_for(content_encoding, MAX_INFLATED_BYTES).feed(body), complete)
    except InflateError:
        return RequestFacts(endpoint=endpoint, complete=False)
    except Exception as error:  # a fault of ours costs the facts of this request, not the figures of all others
        return RequestFacts(endpoint=endpoint, complete=False, fault=place_of(error))


def _read_body(endpoint: str, body: bytes, complete: bool) -> RequestFacts:
    try:
        return _facts(endpoint, _bodies.decode(body), complete and body.lstrip()[:1] == b"{")
    except UnreadableError:
        return _from_partial(endpoint, body)


def _from_partial(endpoint: str, body: bytes) -> RequestFacts:
    try:
        return _facts(endpoint, _bodies.decode(partial.close(body)), False)
    except UnreadableError:
        return RequestFacts(endpoint=endpoint, complete=False)


def _facts(endpoint: str, body: Body, complete: bool) -> RequestFacts:
    text = PromptText()
    prompts, tokens = 1, None
    if endpoint == "completions":
        prompts, tokens = _read_prompts(body.prompt, text)
    else:
        _read_conversation(body, text)
    options = body.stream_options or StreamOptions()
    stream = body.stream
    if stream is None and complete:
        stream = False
    return RequestFacts(
        endpoint=endpoint,
        model=(body.model or "")[:256],
        stream=stream,
        prompts=prompts,
        choices=_first_count(body.n) or 1,
        prompt_chars=text.chars,
        prompt_tokens=tokens,
        media=text.media,
        max_tokens=_first_count(body.max_completion_tokens, body.max_tokens, body.max_output_tokens),
        include_usage=options.include_usage,
        continuous_usage=options.continuous_usage_stats,
        prefix=text.fingerprint,
        complete=complete,
    )


def _first_count(*values: int | None) -> int | None:
    """The first that is said and makes sense; 0 does: a request for the prompt's log probabilities alone."""
    return next((value for value in values if value is not None and 0 <= value < _MAX_COUNT), None)


class PromptText:
    """Collects a prompt in the order in which chat templates write it; of the text only the beginning is kept."""

    __slots__ = ("_kept", "_pieces", "_token_fingerprint", "chars", "media")

    def __init__(self) -> None:
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

    def add_media(self, raw: bytes) -> None:
        self.media += 1
        self.mark(stand_in(raw))

    def add_tokens(self, tokens: list[int]) -> None:
        self._token_fingerprint = token_fingerprint(tokens)

    def mark(self, text: str) -> None:
        """Text that belongs to the fingerprint alone."""
        if self._kept < _FINGERPRINT_CHARS:
            self._kept += len(text)
            self._pieces.append(text)


def _read_prompts(prompt: str | list[Any] | None, text: PromptText) -> tuple[int, int | None]:
    """Number of prompts, and their tokens where they came as ids."""
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


def _read_conversation(body: Body, text: PromptText) -> None:
    for definitions in (body.tools, body.functions, body.documents):
        text.add_raw(definitions)
    text.add(body.instructions)
    _read_content(body.system, text)
    if isinstance(body.input, str):
        text.add(body.input)
    for item in (*(body.messages or ()), *(body.input if isinstance(body.input, list) else ())):
        _read_item(item, text)


def _read_item(item: str | Item, text: PromptText) -> None:
    if isinstance(item, str):
        text.add(item)
        return
    text.mark(f"\n{item.role or ''}\n")
    text.add(item.reasoning or item.reasoning_content)
    _read_content(item.content, text)
    if item.arguments is not None:
        text.add(item.name)
        text.add(item.arguments)
    _read_content(item.output, text)
    text.add_raw(item.tool_calls)
    text.add_raw(item.function_call)


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
