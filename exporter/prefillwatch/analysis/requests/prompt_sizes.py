"""Prompt sizes: buckets for labels, an estimate before usage reports the size, and the window for the longest prompt.

A bucket includes its lower bound and excludes its upper one: a prompt of exactly 512 tokens is in ``512-2k``. That is
how ``128k+`` reads (128k or more), and it puts the round sizes of benchmarks (2048, 8192) into the bucket that starts
with them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterable, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from prefillwatch.analysis.arrays import FloatArray
from prefillwatch.analysis.tokens import SlidingWindows
from prefillwatch.contract.buckets import PROMPT_EDGES, WINDOWS_S

#: Bucket number and label of "no prompt at all".
NONE: Final = -1
NONE_LABEL: Final = "none"
#: Longer than any context window in use.
_LONGEST_PROMPT_TOKENS: Final = 2.0**26


def _size(tokens: int) -> str:
    for unit, name in ((1 << 20, "m"), (1 << 10, "k")):
        if tokens % unit == 0:
            return f"{tokens // unit}{name}"
    return str(tokens)


class PromptBuckets:
    """Sizes of prompts in tokens, cut at ``edges``.

    Buckets are numbered from 0; ``NONE`` (-1) stands for no prompt. ``labels`` names the buckets,
    ``labels_with_none`` ends with ``none``, so that both can be indexed with what ``bucket`` and ``bucket_many``
    give.
    """

    __slots__ = ("_array", "edges", "labels", "labels_with_none")

    def __init__(self, edges: Iterable[int] = PROMPT_EDGES) -> None:
        """Raises ValueError unless the edges are positive and increasing."""
        self.edges = tuple(edges)
        if not self.edges or self.edges[0] < 1 or any(a >= b for a, b in pairwise(self.edges)):
            raise ValueError(
                f"prompt bucket edges must be positive token counts in increasing order, not {list(self.edges)}; "
                f"the default is {list(PROMPT_EDGES)}"
            )
        names = ["0", *map(_size, self.edges)]
        self.labels = (*(f"{a}-{b}" for a, b in pairwise(names)), f"{names[-1]}+")
        self.labels_with_none = (*self.labels, NONE_LABEL)
        self._array = np.asarray(self.edges, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.labels)

    def bucket(self, tokens: int) -> int:
        """The bucket of a prompt; ``NONE`` for a negative size."""
        return bisect_right(self.edges, tokens) if tokens >= 0 else NONE

    def bucket_many(self, tokens: npt.NDArray[np.integer[Any]] | Sequence[int]) -> npt.NDArray[np.intp]:
        """``bucket`` of each size."""
        sizes = np.asarray(tokens, dtype=np.int64)
        return np.where(sizes < 0, NONE, np.searchsorted(self._array, sizes, side="right"))

    def label(self, tokens: int) -> str:
        return self.labels_with_none[self.bucket(tokens)]


def prompt_length_windows(windows_s: Iterable[int] = WINDOWS_S) -> SlidingWindows:
    """Sliding windows over prompt lengths, in tokens."""
    return SlidingWindows(windows_s, lowest=1.0, highest=_LONGEST_PROMPT_TOKENS)


def _weighted_median(values: FloatArray, weights: FloatArray) -> float:
    order = np.argsort(values, kind="stable")
    cumulative = np.cumsum(weights[order])
    return float(values[order[np.searchsorted(cumulative, cumulative[-1] / 2)]])


class _RatioBook:
    """The last requests of one model: characters of their prompts, and tokens by usage."""

    __slots__ = ("_chars", "_fit", "_fitted", "_next", "_tokens")

    KEPT: Final = 128
    #: Learned anew when one in so many of those kept is new: a bound on work.
    NEWS: Final = 4
    #: How far texts differ in tokens per character, and how many tokens a template may add: these weigh the evidence.
    SPREAD: Final = 0.2
    TEMPLATE_TOKENS: Final = 30.0
    #: The assumption before anything is learned, and how much evidence it takes to leave it.
    PRIOR_RATIO: Final = 4.0
    PRIOR_WEIGHT: Final = 20.0
    MOST_OVERHEAD_TOKENS: Final = 512.0

    def __init__(self) -> None:
        self._chars: FloatArray = np.zeros(self.KEPT)
        self._tokens: FloatArray = np.zeros(self.KEPT)
        self._next = 0
        self._fit = (self.PRIOR_RATIO, 0.0)
        self._fitted = 0  # by how many requests

    def add(self, chars: int, tokens: int) -> None:
        place = self._next % self.KEPT
        self._chars[place] = chars
        self._tokens[place] = tokens
        self._next += 1

    def samples(self) -> list[tuple[int, int]]:
        kept = min(self._next, self.KEPT)
        places = (self._next - kept + np.arange(kept)) % self.KEPT
        chars, tokens = self._chars[places].astype(int), self._tokens[places].astype(int)
        return list(zip(chars.tolist(), tokens.tolist(), strict=True))

    def fit(self) -> tuple[float, float]:
        """(characters per token, tokens of overhead per request)."""
        if self.NEWS * (self._next - self._fitted) >= min(self._next, self.KEPT) > 0:
            self._fit, self._fitted = self._learn(), self._next
        return self._fit

    def _learn(self) -> tuple[float, float]:
        chars, tokens = self._chars[: self._next], self._tokens[: self._next]
        overhead = 0.0
        for _ in range(2):
            ratio = self._ratio(chars, np.maximum(tokens - overhead, 1.0))
            overhead = self._overhead(chars, tokens, ratio)
        return ratio, overhead

    def _ratio(self, chars: FloatArray, tokens: FloatArray) -> float:
        # A short prompt says little about the ratio, since the template's share of it is unknown.
        unknown_share = self.TEMPLATE_TOKENS * self.PRIOR_RATIO / chars
        weights = 1 / (self.SPREAD**2 + unknown_share**2)
        ratios = np.append(chars / tokens, self.PRIOR_RATIO)
        return _weighted_median(ratios, np.append(weights, self.PRIOR_WEIGHT))

    def _overhead(self, chars: FloatArray, tokens: FloatArray, ratio: float) -> float:
        # ... and a long one says little about the template, since the spread of its text is larger than that.
        weights = 1 / (1 + (self.SPREAD * chars / ratio) ** 2)
        overhead = _weighted_median(tokens - chars / ratio, weights)
        return min(max(overhead, 0.0), self.MOST_OVERHEAD_TOKENS)


def _plausible(chars: int, tokens: int) -> bool:
    """Whether text can be so many tokens: at most four (bytes) to a character, at least one to a hundred spaces."""
    return 0 < chars <= 100 * tokens and tokens <= 4 * chars + _RatioBook.MOST_OVERHEAD_TOKENS


class TokenRatio:
    """Estimates prompt tokens from prompt characters, per model, learning from every request whose usage is known.

    tokens = characters / ratio + overhead, where the overhead stands for what a chat template adds. Both are weighted
    medians over the last 128 requests of the model, so single outliers do nothing and a change of traffic is followed
    within that many requests. Before anything is learned it is 4 characters to a token.
    """

    __slots__ = ("_books",)

    def __init__(self) -> None:
        self._books: dict[Hashable, _RatioBook] = {}

    def learn(self, model: Hashable, chars: int, tokens: int) -> None:
        """Note that a prompt of ``chars`` characters of text was ``tokens`` tokens by usage.

        Only for prompts of text alone: an image's tokens are not in its characters. Figures that no tokenizer makes are
        left out.
        """
        if _plausible(chars, tokens):
            self._books.setdefault(model, _RatioBook()).add(chars, tokens)

    def estimate(self, model: Hashable, chars: int) -> int:
        """Tokens of a prompt of ``chars`` characters, at least 1."""
        book = self._books.get(model)
        ratio, overhead = book.fit() if book is not None else (_RatioBook.PRIOR_RATIO, 0.0)
        return max(1, round(max(chars, 0) / ratio + overhead))

    def learned(self, model: Hashable) -> bool:
        """Whether usage gave the size of any prompt of the model, so that estimates are more than the assumption."""
        return model in self._books

    def samples(self, model: Hashable) -> list[tuple[int, int]]:
        """The latest (characters, tokens) given to `learn`, in order."""
        book = self._books.get(model)
        return book.samples() if book is not None else []

    def forget(self, model: Hashable) -> None:
        """Drop what was learned about a model that is gone."""
        self._books.pop(model, None)
