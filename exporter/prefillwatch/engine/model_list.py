"""The models that a server says it serves, by its OpenAI-compatible list of them."""

from __future__ import annotations

from typing import Final

import msgspec

PATH: Final = "/v1/models"
LARGEST_BYTES: Final = 1 << 20


class ServedModel(msgspec.Struct):
    """``max_model_len``: what vLLM says of the longest context, in tokens; other servers leave it out."""

    id: str
    max_model_len: object = None

    @property
    def context_tokens(self) -> int | None:
        return self.max_model_len if isinstance(self.max_model_len, int) else None


class _ModelList(msgspec.Struct):
    data: list[ServedModel]


_decoder = msgspec.json.Decoder(_ModelList)


def served_models(body: bytes) -> list[ServedModel]:
    """In the server's order. Raises msgspec.DecodeError for what is no list of models."""
    return _decoder.decode(body).data
