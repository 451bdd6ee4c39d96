"""What is kept of each incident, for its story: gathered when it closes, while all that was seen is there."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

import msgspec

from prefillwatch.core.view import IncidentNow, View
from prefillwatch.observer.api.incidents import IncidentHistory
from prefillwatch.story import Account

#: Of those that are over, the newest. Each takes up to some tens of kilobytes.
MOST_TOLD: Final = 100


class Accounts:
    """Of the incidents of a history."""

    def __init__(self, view: Callable[[], View], history: IncidentHistory, most: int = MOST_TOLD) -> None:
        """``view`` gives what is known now."""
        self._view = view
        self._history = history
        self._kept: deque[bytes] = deque(maxlen=most)
        history.closed = self._close

    def keep(self, most: int) -> None:
        """So many instead."""
        self._kept = deque(self._kept, most)

    def _close(self, incident: IncidentNow, document: dict[str, Any]) -> None:
        self._kept.append(_encoder.encode(self._view().account(incident, document)))

    def newest(self) -> list[Account]:
        """The newest first."""
        view = self._view()
        found = [_decoder.decode(each) for each in self._kept]
        found += [view.account(each, self._history.document(each)) for each in view.incidents]
        return sorted(found, key=lambda account: -account.incident["started_at"])


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Account)
