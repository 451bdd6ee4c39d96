"""Request paths folded to a small, fixed set of endpoint names."""

from __future__ import annotations

from typing import Final

#: Endpoints whose answers carry generated text; the only ones that are read in depth.
GENERATING: Final = frozenset({"chat_completions", "completions", "responses", "messages"})

# The longest matching end of a path wins, so that servers mounted under a prefix are recognised too.
_ROUTES: Final[dict[tuple[str, ...], str]] = {
    ("chat", "completions"): "chat_completions",
    ("completions",): "completions",
    ("responses",): "responses",
    ("messages",): "messages",
    ("messages", "count_tokens"): "tokenize",
    ("embeddings",): "embeddings",
    ("embed",): "embeddings",
    ("pooling",): "pooling",
    ("classify",): "classify",
    ("score",): "score",
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
    ("version",): "version",
    ("load",): "load",
}
_LONGEST: Final = max(map(len, _ROUTES))
OTHER: Final = "other"
#: Every value `endpoint_of` can return.
ENDPOINTS: Final = frozenset(_ROUTES.values()) | {OTHER}


def endpoint_of(path: str) -> str:
    """The endpoint that `path` (with or without query and prefix) names; `other` for everything unknown."""
    path = path.partition("?")[0]
    parts = tuple(path.lower().rstrip("/").rsplit("/", _LONGEST)[-_LONGEST:])
    for length in range(_LONGEST, 0, -1):
        endpoint = _ROUTES.get(parts[-length:])
        if endpoint is not None:
            return endpoint
    return OTHER


def path_of(endpoint: str) -> str:
    """A path that `endpoint_of` gives this name."""
    return next(("/" + "/".join(parts) for parts, name in _ROUTES.items() if name == endpoint), "/")
