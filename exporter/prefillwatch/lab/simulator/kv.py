"""KV cache blocks: a pool with reference counts and a prefix cache, evicting the least recently freed block first."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def hash_blocks(tokens: Sequence[object], block_size: int) -> tuple[int, ...]:
    """Chained hashes of the full blocks of a prompt: equal hashes mean equal text up to the end of that block."""
    hashes: list[int] = []
    parent = 0
    for end in range(block_size, len(tokens) + 1, block_size):
        parent = hash((parent, tuple(tokens[end - block_size : end])))
        hashes.append(parent)
    return tuple(hashes)


class BlockPool:
    """Blocks by number. Block 0 is the null block that vLLM keeps for itself, so `num_blocks - 1` are usable.

    A block whose last user went keeps its content until it is handed out again, so it can still be a prefix cache hit.
    """

    __slots__ = ("_block_of_hash", "_free", "_hash_of_block", "_users", "usable")

    def __init__(self, num_blocks: int) -> None:
        self.usable = num_blocks - 1
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(1, num_blocks))
        self._users = [0] * num_blocks
        self._hash_of_block: dict[int, int] = {}
        self._block_of_hash: dict[int, int] = {}

    @property
    def free(self) -> int:
        """Blocks without a user, those with reusable content included."""
        return len(self._free)

    @property
    def usage(self) -> float:
        """Share of usable blocks in use, 0 to 1, as vLLM's `kv_cache_usage_perc` counts it."""
        return 1.0 - len(self._free) / self.usable if self.usable else 0.0

    def match(self, hashes: Iterable[int], limit: int) -> list[int]:
        """Blocks that hold the longest known prefix of `hashes`, at most `limit`. They are not taken yet."""
        found: list[int] = []
        for key in hashes:
            block = self._block_of_hash.get(key)
            if block is None or len(found) == limit:
                break
            found.append(block)
        return found

    def idle(self, blocks: Iterable[int]) -> int:
        """How many of `blocks` have no user now and would leave the free list if shared."""
        return sum(1 for block in blocks if not self._users[block])

    def share(self, blocks: Iterable[int]) -> None:
        """Adds a user to blocks found by `match`."""
        for block in blocks:
            if not self._users[block]:
                del self._free[block]
            self._users[block] += 1

    def take(self, count: int) -> list[int]:
        """Hands out `count` blocks and forgets what they held. The caller has checked `free`."""
        blocks = [self._free.popitem(last=False)[0] for _ in range(count)]
        for block in blocks:
            self._users[block] = 1
            key = self._hash_of_block.pop(block, None)
            if key is not None:
                del self._block_of_hash[key]
        return blocks

    def remember(self, block: int, key: int) -> None:
        """Makes a full block findable. Where the same content is known already, the older block stays the one found."""
        if key not in self._block_of_hash:
            self._block_of_hash[key] = block
            self._hash_of_block[block] = key

    def release(self, blocks: Sequence[int]) -> None:
        """Takes one user away from each block, the end of the sequence first so that the start survives longest."""
        for block in reversed(blocks):
            self._users[block] -= 1
            if not self._users[block]:
                self._free[block] = None
