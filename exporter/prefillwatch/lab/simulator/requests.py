"""From a request's JSON to what shall be generated, refusing in vLLM's words what vLLM would refuse."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from prefillwatch.lab.vocabulary import content_tokens, token_id, tokenize, tokenize_chat

if TYPE_CHECKING:
    from collections.abc import Callable

CHAT: Final = "/v1/chat/completions"
COMPLETIONS: Final = "/v1/completions"
RESPONSES: Final = "/v1/responses"
MESSAGES: Final = "/v1/messages"

DEFAULT_COMPLETION_TOKENS: Final = 16
MAX_SEQUENCES_PER_REQUEST: Final = 1024


class BadRequestError(Exception):
    """A request that gets an error for an answer."""

    def __init__(
        self, message: str, param: str | None = None, status: int = 400, kind: str = "BadRequestError"
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.status = status
        self.kind = kind


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """What to generate. `max_tokens` is None where the client leaves the end to the model."""

    prompts: list[list[str]]
    n: int = 1
    max_tokens: int | None = None
    ignore_eos: bool = False
    stream: bool = False
    include_usage: bool = False
    continuous_usage: bool = False

    @property
    def prompt_tokens(self) -> int:
        return sum(len(prompt) for prompt in self.prompts)


def parse_request(path: str, body: bytes, model: str, max_model_len: int) -> GenerationRequest:
    """Reads the body of a generating endpoint. Raises BadRequestError."""
    fields = decode_object(body)
    check_model(fields, model)
    request = _PARSERS[path](fields)
    _check(request, max_model_len)
    return request


def decode_object(body: bytes) -> dict[str, Any]:
    try:
        fields = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise _invalid("json_invalid", "body.0", "JSON decode error") from None
    if not isinstance(fields, dict):
        text = "Input should be a valid dictionary or object to extract fields from"
        raise _invalid("model_attributes_type", "body", text)
    return fields


def check_model(fields: dict[str, Any], model: str) -> None:
    """No name means the one model there is."""
    asked = fields.get("model")
    if asked not in (None, model):
        raise BadRequestError(
            f"The model `{asked}` does not exist. Valid aliases: {model}.", "model", 404, "NotFoundError"
        )


def prompt_to_count(fields: dict[str, Any]) -> list[str]:
    """The tokens that `/tokenize` is asked about: a chat's or a plain prompt's."""
    if "messages" in fields:
        return _chat_prompt(fields)
    return tokenize(str(_required(fields, "prompt")))


def _chat(fields: dict[str, Any]) -> GenerationRequest:
    include_usage, continuous_usage = _stream_options(fields)
    limit = fields.get("max_completion_tokens")
    return GenerationRequest(
        prompts=[_chat_prompt(fields)],
        n=_integer(fields, "n", 1),
        max_tokens=_integer(fields, "max_tokens", None) if limit is None else limit,
        ignore_eos=bool(fields.get("ignore_eos")),
        stream=bool(fields.get("stream")),
        include_usage=include_usage,
        continuous_usage=continuous_usage,
    )


def _completion(fields: dict[str, Any]) -> GenerationRequest:
    include_usage, continuous_usage = _stream_options(fields)
    return GenerationRequest(
        prompts=_completion_prompts(_required(fields, "prompt")),
        n=_integer(fields, "n", 1),
        max_tokens=_integer(fields, "max_tokens", DEFAULT_COMPLETION_TOKENS),
        ignore_eos=bool(fields.get("ignore_eos")),
        stream=bool(fields.get("stream")),
        include_usage=include_usage,
        continuous_usage=continuous_usage,
    )


def _responses(fields: dict[str, Any]) -> GenerationRequest:
    asked = _required(fields, "input")
    items = [{"role": "user", "content": asked}] if isinstance(asked, str) else asked
    messages = _messages_of(items, "input")
    if isinstance(fields.get("instructions"), str):
        messages.insert(0, ("system", tokenize(fields["instructions"])))
    return GenerationRequest(
        prompts=[tokenize_chat(messages)],
        max_tokens=_integer(fields, "max_output_tokens", None),
        ignore_eos=bool(fields.get("ignore_eos")),
        stream=bool(fields.get("stream")),
    )


def _messages(fields: dict[str, Any]) -> GenerationRequest:
    messages = _messages_of(_required(fields, "messages"), "messages")
    if fields.get("system"):
        messages.insert(0, ("system", content_tokens(fields["system"])))
    _required(fields, "max_tokens")
    return GenerationRequest(
        prompts=[tokenize_chat(messages)],
        max_tokens=_integer(fields, "max_tokens", None),
        ignore_eos=bool(fields.get("ignore_eos")),
        stream=bool(fields.get("stream")),
    )


_PARSERS: dict[str, Callable[[dict[str, Any]], GenerationRequest]] = {
    CHAT: _chat,
    COMPLETIONS: _completion,
    RESPONSES: _responses,
    MESSAGES: _messages,
}


def _chat_prompt(fields: dict[str, Any]) -> list[str]:
    return tokenize_chat(_messages_of(_required(fields, "messages"), "messages"))


def _messages_of(items: Any, name: str) -> list[tuple[str, list[str]]]:
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise _invalid("list_type", f"body.{name}", "Input should be a valid list")
    return [(str(item.get("role", "user")), content_tokens(item.get("content"))) for item in items]


def _completion_prompts(prompt: Any) -> list[list[str]]:
    """A string, a list of strings, a list of token ids, or a list of such lists."""
    if isinstance(prompt, str):
        return [tokenize(prompt)]
    if isinstance(prompt, list) and prompt and all(isinstance(part, int) for part in prompt):
        return [[str(part) for part in prompt]]
    if isinstance(prompt, list) and prompt:
        return [tokens for part in prompt for tokens in _completion_prompts(part)]
    raise _invalid("string_type", "body.prompt", "Input should be a valid string")


def _stream_options(fields: dict[str, Any]) -> tuple[bool, bool]:
    options = fields.get("stream_options")
    if not options:
        return False, False
    if not fields.get("stream"):
        raise BadRequestError("Stream options can only be defined when `stream=True`.", "stream_options")
    if not isinstance(options, dict):
        raise _invalid("model_attributes_type", "body.stream_options", "Input should be a valid dictionary")
    include_usage = bool(options.get("include_usage"))
    return include_usage, include_usage and bool(options.get("continuous_usage_stats"))


def _required(fields: dict[str, Any], name: str) -> Any:
    if fields.get(name) is None:
        raise _invalid("missing", f"body.{name}", "Field required")
    return fields[name]


def _integer(fields: dict[str, Any], name: str, default: Any) -> Any:
    value = fields.get(name)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool):
        raise _invalid("int_type", f"body.{name}", "Input should be a valid integer")
    return value


def _invalid(kind: str, place: str, text: str) -> BadRequestError:
    message = f"1 validation error:\n  {{'type': '{kind}', 'loc': '{place}', 'msg': '{text}'}}"
    return BadRequestError(message, place, kind="Bad Request")


def _check(request: GenerationRequest, max_model_len: int) -> None:
    if request.n < 1:
        raise BadRequestError(f"n must be at least 1, got {request.n}.")
    if request.n * len(request.prompts) > MAX_SEQUENCES_PER_REQUEST:
        raise BadRequestError(f"n times the number of prompts must be at most {MAX_SEQUENCES_PER_REQUEST}.", "n")
    limit = request.max_tokens
    if limit is not None and limit < 1:
        raise BadRequestError(
            f"max_tokens must be at least 1, got {limit}. (parameter=max_tokens, value={limit})", "max_tokens"
        )
    for prompt in request.prompts:
        _check_length(len(prompt), limit, max_model_len)


def _check_length(prompt_tokens: int, max_tokens: int | None, max_model_len: int) -> None:
    start = f"This model's maximum context length is {max_model_len} tokens. However, "
    end = f"(parameter=input_tokens, value={prompt_tokens})"
    if prompt_tokens == 0:
        raise BadRequestError("The decoder prompt cannot be empty.", "prompt")
    if prompt_tokens >= max_model_len:
        raise BadRequestError(
            f"{start}your prompt contains at least {prompt_tokens} input tokens, which exceeds this limit even without "
            f"any output tokens. Please reduce the length of the input prompt. {end}",
            "input_tokens",
        )
    if max_tokens is not None and prompt_tokens + max_tokens > max_model_len:
        raise BadRequestError(
            f"{start}you requested {max_tokens} output tokens and your prompt contains at least {prompt_tokens} input "
            f"tokens, for a total of at least {prompt_tokens + max_tokens} tokens. Please reduce the length of the "
            f"input prompt or the number of requested output tokens. {end}",
            "input_tokens",
        )


def token_ids(tokens: list[str]) -> list[int]:
    return [token_id(token) for token in tokens]
