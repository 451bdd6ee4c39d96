"""Model names that may become label values, so that no client can make series at will.

A name is admitted when upstream serves it (adapters too); while upstream has not said what it serves, when it
answered a request for it. Some servers answer to any name, and say in the answer which model it was: then the name
asked for stands for that one. At most ``cap`` names hold a place at a time. Every other name is ``other``. A request
keeps the label it was admitted under until it is released, whatever upstream's list does meanwhile, so what goes up
for a label comes down for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

OTHER: Final = "other"
#: So many names that are asked for and stand for others are remembered, for each place that a label may take.
_ALIASES_PER_PLACE: Final = 8
#: Longer names are never labels.
MAX_NAME_CHARACTERS: Final = 256


class ModelNames:
    """Admits requests under bounded labels.

    Every label has a small stable number, an index for arrays: 0 is ``other``, the rest are at most ``cap``. A place is
    taken by the first request for a name. When all are taken, a name that upstream no longer serves and that no request
    holds gives its place up, number and all; ``take_retired`` reports it.
    """

    __slots__ = ("_aliases", "_answered", "_held", "_labels", "_numbers", "_retired", "_served", "cap")

    def __init__(self, cap: int = 32) -> None:
        if cap < 1:
            raise ValueError(f"the cap on model names must be at least 1, not {cap}")
        self.cap = cap
        self._served: dict[str, None] | None = None  # in upstream's order; None: not known
        self._answered: dict[str, None] = {}  # seen to work while the list is not known
        self._aliases: dict[str, str] = {}  # the oldest first
        self._labels: list[str] = [OTHER]
        self._numbers: dict[str, int] = {OTHER: 0}
        self._held: list[int] = [0]
        self._retired: list[tuple[int, str]] = []

    @property
    def labels(self) -> tuple[str, ...]:
        """The label of each number."""
        return tuple(self._labels)

    def label(self, number: int) -> str:
        """The label of a number."""
        return self._labels[number]

    def number(self, label: str) -> int:
        """The number of a label that was admitted; KeyError for any other."""
        return self._numbers[label]

    def serve(self, names: Iterable[str]) -> None:
        """What upstream serves now, the base model first. Replaces what it served before."""
        self._served = dict.fromkeys(filter(_fits, names))

    def answered(self, name: str) -> None:
        """Upstream answered a request for this name with success. Counts only while its list is not known."""
        if self._served is None and len(self._answered) < self.cap and _fits(name):
            self._answered[name] = None

    def stands_for(self, asked: str, name: str) -> None:
        """Upstream answered a request for one name as another."""
        if _fits(asked) and asked not in self._known() and self._aliases.get(asked) != name:
            if len(self._aliases) >= _ALIASES_PER_PLACE * self.cap:
                del self._aliases[next(iter(self._aliases))]
            self._aliases[asked] = name

    def is_served(self, name: str) -> bool:
        """Whether upstream answers to this name, as far as it is known what it serves."""
        known = self._known()
        return not known or name in known or name in self._aliases

    def admit(self, name: str | None) -> str:
        """The label for a request, held until ``release``. None and "" stand for upstream's default model."""
        label = self._label(name or next(iter(self._served or self._answered), OTHER))
        self._held[self._numbers[label]] += 1
        return label

    def release(self, label: str) -> None:
        """The request admitted under this label is over. ValueError when no request holds it."""
        number = self._numbers.get(label)
        if number is None or not self._held[number]:
            raise ValueError("a model label was released more often than it was admitted")
        self._held[number] -= 1

    def take_retired(self) -> list[tuple[int, str]]:
        """(number, label) of names that gave their place up since the last call: their series and books go with them.

        The number belongs to another name already.
        """
        retired, self._retired = self._retired, []
        return retired

    def _label(self, name: str) -> str:
        known = self._known()
        if name not in known:
            name = self._aliases.get(name, OTHER)
        if name not in known:
            return OTHER
        if name in self._numbers or self._take_place(name):
            return name
        return OTHER

    def _known(self) -> dict[str, None]:
        return self._answered if self._served is None else self._served

    def _take_place(self, name: str) -> bool:
        if len(self._labels) <= self.cap:
            self._numbers[name] = len(self._labels)
            self._labels.append(name)
            self._held.append(0)
            return True
        known = self._known()
        vacant = (n for n, label in enumerate(self._labels) if n and label not in known and not self._held[n])
        number = next(vacant, None)
        if number is None:
            return False
        old = self._labels[number]
        self._retired.append((number, old))
        del self._numbers[old]
        self._labels[number] = name
        self._numbers[name] = number
        return True


def _fits(name: str) -> bool:
    """Whether a name can be a label value at all."""
    return 0 < len(name) <= MAX_NAME_CHARACTERS and name != OTHER and name.isprintable()
