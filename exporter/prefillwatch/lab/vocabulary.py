"""Made-up text whose token count is known: on the simulator every whitespace-separated word is one token."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable

_ONSETS: Final = ("b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v", "z", "br", "st")
_RHYMES: Final = ("a", "e", "i", "o", "u", "an", "el", "im", "or", "un", "ar", "es", "il", "on", "ut", "ek")
WORDS: Final = tuple(onset + rhyme for onset in _ONSETS for rhyme in _RHYMES)

#: What the simulator's chat template adds to each message: start, role, separator, end.
TOKENS_PER_MESSAGE: Final = 4
#: What it adds to open the reply: start, role, separator.
TOKENS_PER_REPLY: Final = 3
TOKENS_PER_IMAGE: Final = 256
SINGLE_MESSAGE_OVERHEAD: Final = TOKENS_PER_MESSAGE + TOKENS_PER_REPLY


def prompt_of(tokens: int, rng: random.Random, overhead: int = SINGLE_MESSAGE_OVERHEAD) -> str:
    """A user message that makes a single-message chat exactly `tokens` prompt tokens long on the simulator.

    Raises ValueError where the chat template alone is as long.
    """
    if tokens <= overhead:
        raise ValueError(f"a chat prompt has at least {overhead + 1} tokens, not {tokens}")
    return " ".join(rng.choices(WORDS, k=tokens - overhead))


def tokenize(text: str) -> list[str]:
    return text.split()


def tokenize_chat(messages: Iterable[tuple[str, list[str]]]) -> list[str]:
    """The tokens of (role, tokens) messages under the chat template, the opened reply included."""
    tokens: list[str] = []
    for role, content in messages:
        tokens += ("<start>", role, "<says>", *content, "<end>")
    return [*tokens, "<start>", "assistant", "<says>"]


def content_tokens(content: Any) -> list[str]:
    """Tokens of a message's content: a string, or a list of parts. Anything that is no text counts as an image."""
    if isinstance(content, str):
        return tokenize(content)
    tokens: list[str] = []
    for part in content if isinstance(content, list) else ():
        text = part.get("text") if isinstance(part, dict) else part
        tokens += tokenize(text) if isinstance(text, str) else ["<image>"] * TOKENS_PER_IMAGE
    return tokens


def token_id(token: str) -> int:
    """A stable number for a token, as `/tokenize` shows it."""
    return zlib.crc32(token.encode()) % 150_000
