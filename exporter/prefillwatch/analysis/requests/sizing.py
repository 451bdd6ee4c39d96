"""Sizes of prompts: by the request's own count or an estimate from its text, until usage reports them."""

from __future__ import annotations

from typing import Final

from prefillwatch.analysis.requests.prefix_cache import PrefixMemory
from prefillwatch.analysis.requests.prompt_sizes import TokenRatio
from prefillwatch.analysis.requests.request import Request
from prefillwatch.wire.fingerprint import BLOCK_CHARS, BLOCK_TOKENS

#: Tokens per block of the KV cache until upstream reports it (vLLM's default). Whole blocks are cached.
_BLOCK_SIZE: Final = 16


class PromptSizing:
    """Sets ``prompt_tokens``, ``cached_tokens`` and ``likely_cached`` of requests, and learns from usage."""

    def __init__(self) -> None:
        self.ratio = TokenRatio()
        self.prefixes = PrefixMemory()
        self._block_size = _BLOCK_SIZE
        self._caches = True

    def cache_reported(self, block_size: int | None, *, in_use: bool | None) -> None:
        """What upstream's metrics say of its prefix cache; None: nothing."""
        self._block_size = block_size or self._block_size
        self._caches = in_use is not False

    def estimate(self, request: Request) -> None:
        """The size as well as it is known before usage."""
        if not request.prompt_exact:
            request.prompt_tokens = self.ratio.estimate(request.model, request.prompt_chars)
        shared = self.prefixes.shared(request.model, request.prefix) if self._caches else 0
        if not shared:
            request.likely_cached = 0
            return
        if request.prompt_chars:
            tokens = shared * BLOCK_CHARS * request.prompt_tokens // request.prompt_chars
        else:
            tokens = shared * BLOCK_TOKENS
        # The last token of a prompt is computed in any case: the first new one is made from it.
        request.likely_cached = min(tokens, request.prompt_tokens - 1) // self._block_size * self._block_size

    def reported(self, request: Request, prompt_tokens: int, cached_tokens: int | None) -> bool:
        """Usage reported the size; ``cached_tokens`` None: not reported. Returns whether that changed anything."""
        cached = cached_tokens or 0
        if cached_tokens is not None:
            self.prefixes.reported(request.model, request.likely_cached, cached)
            request.likely_cached = 0
        if request.prompt_exact and prompt_tokens == request.prompt_tokens and cached == request.cached_tokens:
            return False
        if request.text_only and not request.prompt_exact:
            self.ratio.learn(request.model, request.prompt_chars, prompt_tokens)
        request.prompt_tokens, request.cached_tokens, request.prompt_exact = prompt_tokens, cached, True
        return True

    def is_sure(self, request: Request) -> bool:
        """Whether the size is exact, or estimated by what other prompts of the model showed."""
        return request.prompt_exact or self.ratio.learned(request.model)

    def worked_on(self, request: Request) -> None:
        """The server has the prompt in its cache now. Its digests, the largest part of a request, are let go."""
        self.prefixes.remember(request.model, request.prefix)
        request.prefix = ()

    def forget_model(self, model: int) -> None:
        self.ratio.forget(model)
        self.prefixes.forget(model)
