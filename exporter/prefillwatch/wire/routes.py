"""Request paths folded to a small, fixed set of endpoint names."""

from __future__ import annotations

from functools import lru_cache
from typing import Final
from urllib.parse import unquote

#: Endpoints whose answers come whole: the engine reads a prompt, and writes nothing that could be timed.
READING: Final = frozenset({"embeddings", "pooling", "classify", "score", "rerank"})
#: Endpoints whose answers are text that comes token by token.
WRITING: Final = frozenset(
    {
        *("chat_completions", "completions", "responses", "messages", "cohere_chat", "audio"),
        "native",  # servers' own
    }
)
#: Endpoints on which the engine works and whose prompts are read in depth.
GENERATING: Final = READING | WRITING

#: Endpoints that ask the engine for nothing.
IDLE: Final = frozenset({"models", "tokenize", "metrics", "health", "version", "load"})
#: Those of them that machines look at again and again, a gateway's scraper twenty times a second: nobody's requests.
LOOKS: Final = frozenset({"metrics", "health"})

# The longest matching end of a path wins, so that servers mounted under a prefix are recognised too.
_ROUTES: Final[dict[tuple[str, ...], str]] = {
    ("chat", "completions"): "chat_completions",
    ("chat", "completions", "batch"): "chat_completions",
    ("v2", "chat"): "cohere_chat",
    ("completion",): "native",  # llama.cpp
    ("infill",): "native",
    ("generate",): "native",  # SGLang, TGI, and vLLM's of tokens in and tokens out
    ("generate_stream",): "native",
    ("api", "chat"): "native",  # Ollama
    ("api", "embed"): "embeddings",
    ("api", "embeddings"): "embeddings",
    ("completions",): "completions",
    ("responses",): "responses",
    ("messages",): "messages",
    ("messages", "count_tokens"): "tokenize",
    ("embeddings",): "embeddings",
    ("embed",): "embeddings",
    ("pooling",): "pooling",
    ("classify",): "classify",
    ("score",): "score",
    ("generative_scoring",): "score",
    ("rerank",): "rerank",
    ("audio", "transcriptions"): "audio",
    ("audio", "translations"): "audio",
    ("audio", "speech"): "audio",
    ("realtime",): "realtime",
    ("models",): "models",
    ("tokenize",): "tokenize",
    ("detokenize",): "tokenize",
    ("metrics",): "metrics",
    ("health",): "health",
    ("ping",): "health",
    ("version",): "health",
    ("load",): "health",
}
_LONGEST: Final = max(map(len, _ROUTES))
OTHER: Final = "other"
#: The end of a path is looked at: every route under any prefix of sense, each of its characters encoded twice.
_MOST_CHARACTERS: Final = 2048
#: Endpoints of shorter paths are remembered.
_SHORT: Final = 128
#: By the server, and by a gateway before it.
_MOST_DECODINGS: Final = 2
#: Every value `endpoint_of` can return.
ENDPOINTS: Final = frozenset(_ROUTES.values()) | {OTHER}


def endpoint_of(path: str) -> str:
    """The endpoint that `path` (with or without query and prefix) names; `other` for everything unknown.

    Whatever some server takes for an endpoint is one here: servers decode paths, and many fold slashes and dots.
    """
    path = path.partition("?")[0].partition("#")[0]
    return _known_endpoint(path) if len(path) <= _SHORT else _endpoint(path)


def _endpoint(path: str) -> str:
    if len(path) > _MOST_CHARACTERS:
        path = _folded(path)[-_MOST_CHARACTERS:]
    path = path.lower()
    if "%" in path or "//" in path or "/." in path or ";" in path or "\\" in path:
        parts = _parts(path)
    else:
        parts = path.rstrip("/").rsplit("/", _LONGEST)[-_LONGEST:]
    for length in range(_LONGEST, 0, -1):
        endpoint = _ROUTES.get(tuple(parts[-length:]))
        if endpoint is not None:
            return endpoint
    return OTHER


#: The clients of a server use a few paths, over and over.
_known_endpoint: Final = lru_cache(maxsize=256)(_endpoint)


def _folded(path: str) -> str:
    """With one slash for several."""
    path = path.replace("\\", "/")
    while "//" in path:
        path = path.replace("//", "/")
    return path


def _parts(path: str) -> list[str]:
    """The last segments of a path that is not written the usual way."""
    for _ in range(_MOST_DECODINGS):
        if "%" in path:
            path = unquote(path).lower()
    parts: list[str] = []
    for part in _folded(path).split("/"):
        name = part.partition(";")[0]
        if name == "..":
            del parts[-1:]
        elif name not in ("", "."):
            parts.append(name)
    return parts[-_LONGEST:]


def path_of(endpoint: str) -> str:
    """A path that `endpoint_of` gives this name."""
    return next(("/" + "/".join(parts) for parts, name in _ROUTES.items() if name == endpoint), "/")
