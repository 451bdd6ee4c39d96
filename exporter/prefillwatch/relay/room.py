"""How many clients a relay can have, by the descriptors that it may open. Pure arithmetic."""

from __future__ import annotations

from typing import Final

#: Standard streams, loop, listeners, tap, a name lookup, and what a TLS context or a traceback opens for a moment.
_OWN: Final = 24
#: Sockets that are closed take effect between two turns of the loop, and so many may be accepted in one.
_IN_TRANSIT: Final = 64
#: Below it no client could be served at all.
_LEAST: Final = 4


def most_clients(descriptors: int) -> int:
    """Clients that can be connected at once, so that each of them can have a connection to upstream as well."""
    in_transit = min(_IN_TRANSIT, descriptors // 8)
    return max(_LEAST, (descriptors - _OWN - in_transit) // 2)
