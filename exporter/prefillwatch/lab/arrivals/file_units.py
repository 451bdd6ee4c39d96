"""The unit of times and the size of blocks in a file that names neither: what the numbers prove, else what is usual."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prefillwatch.lab.arrivals.rate import MOST_PER_SECOND

if TYPE_CHECKING:
    from collections.abc import Sequence

UNITS_S: Final = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
#: Numbers of this size are no seconds since 1970 any more, but milliseconds, microseconds or nanoseconds.
_BY_SIZE: Final = ((1e14, "ms"), (1e17, "us"), (float("inf"), "ns"))
_MOST_SECONDS: Final = 1e11
#: As prefix caches have them, and one for each token.
_BLOCK_SIZES: Final = tuple(1 << power for power in range(12))
#: Share of the rows that a block size must explain.
_EXPLAINED: Final = 0.9
_ROWS_LOOKED_AT: Final = 5000
#: vLLM's and Mooncake's, each found in files with times of one unit only.
_UNIT_OF_BLOCKS: Final = {16: "s", 512: "ms"}


def unit_by_size(times: Sequence[float]) -> str | None:
    """Of numbers that are too large for seconds."""
    largest = max(map(abs, times), default=0.0)
    if largest < _MOST_SECONDS:
        return None
    return next(unit for limit, unit in _BY_SIZE if largest < limit)


def unit_by_evidence(times: Sequence[float], blocks: int | None) -> tuple[str, str]:
    """Seconds or milliseconds, beside field names that tools use with either, and why. ``blocks`` is the proven size of
    blocks, if there is one."""
    if any(not time.is_integer() for time in times):
        return "s", "they have fractions"
    if blocks in _UNIT_OF_BLOCKS:
        unit = _UNIT_OF_BLOCKS[blocks]
        return unit, f"blocks of {blocks} tokens come with times in {unit}"
    span = (max(times) - min(times)) * UNITS_S["ms"]
    if span and (len(times) - 1) / span >= MOST_PER_SECOND:
        return "s", f"whole numbers do not tell; in milliseconds they would be {(len(times) - 1) / span:,.0f} a second"
    return "ms", "whole numbers do not tell; Mooncake's are milliseconds"


def block_size(rows: Sequence[tuple[int, int]], usual: int) -> tuple[int, bool, str]:
    """Tokens of one block, whether the rows prove it, and why; each row has prompt tokens and a number of block ids.

    A last block that is not full has an id in some files and none in others.
    """
    looked_at = rows[:_ROWS_LOOKED_AT]
    fits = {
        size: sum(ids in (-(-tokens // size), tokens // size) for tokens, ids in looked_at) for size in _BLOCK_SIZES
    }
    most = max(fits.values())
    best = [size for size in _BLOCK_SIZES if fits[size] == most]
    if most < _EXPLAINED * len(looked_at):
        return usual, False, "tokens over ids tell nothing; that is usual"
    if len(best) == 1:
        return best[0], True, "by tokens over ids"
    # Of several the smallest shares least; what was shared in truth is at least that.
    size = usual if usual in best else best[0]
    return size, False, f"tokens over ids allow {best[0]} to {best[-1]}"
