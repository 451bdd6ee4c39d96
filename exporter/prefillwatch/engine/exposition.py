"""Picks wanted samples out of a metrics page, which may be huge, cut off or partly garbage. Pure.

A full parse of a page of some megabytes takes seconds, and one bad line spoils it. So the wanted names are found as
bytes first, and only their lines are read; a line that cannot be read is as good as absent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final, NamedTuple

#: A page is searched in slices of so many bytes, so that no single search holds the interpreter for long.
_SLICE: Final = 1 << 20
#: Longer lines are not read. The longest wanted one lists a whole configuration in its labels, a few kilobytes.
_LONGEST_LINE: Final = 1 << 15
#: More samples than this are not read from one page.
_MOST_SAMPLES: Final = 4096

_LABEL: Final = re.compile(
    rb'[ \t]*([A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*"((?:[^"\\]|\\.)*)"[ \t]*(?:,|(?=\}))', re.DOTALL
)
_LABELS_END: Final = re.compile(rb"[ \t]*\}")
# A value must look whole: "0." or "1e" is what is left of a line that was cut.
_VALUE: Final = re.compile(
    rb"[ \t]*([+-]?(?:\d*\.)?\d+(?:e[+-]?\d+)?|[+-]?inf|nan)(?:[ \t]+-?\d+(?:\.\d+)?)?[ \t]*(?:#.*)?\r?$", re.IGNORECASE
)
_ESCAPE: Final = re.compile(rb"\\(.)", re.DOTALL)
_ANY_SAMPLE: Final = re.compile(
    rb"(?:^|\n)[ \t]*[A-Za-z_:][A-Za-z0-9_:]*(?:\{[^\n]*\})?[ \t]+[+-]?(?:\d|inf|nan)", re.IGNORECASE
)


class Sample(NamedTuple):
    namespace: str
    name: str  # without namespace
    labels: Mapping[str, str]
    value: float


class Found(NamedTuple):
    samples: list[Sample]
    left_out: int


class SampleFinder:
    """Finds the samples of some names. ``names`` maps a namespace, such as ``vllm``, to names without it; between the
    two a page may write ``:`` or ``_``, and a relabelling layer may have put ``ray_`` or ``kserve_`` in front."""

    def __init__(self, names: Mapping[str, frozenset[str]]) -> None:
        choices = "|".join(
            f"(?:{re.escape(namespace)}[:_](?:{'|'.join(map(re.escape, sorted(members)))}))"
            for namespace, members in sorted(names.items())
        )
        self._pattern = re.compile(rf"\n[ \t]*(?:ray_|kserve_)?({choices})(?=[{{ \t])".encode())

    def find(self, page: bytes) -> Iterator[Sample]:
        """The wanted samples in the order of the page, up to the most that are read of one."""
        return iter(self.read(page).samples)

    def read(self, page: bytes) -> Found:
        """The wanted samples in the order of the page, and how many more there are than are read of one page."""
        page = b"\n" + page  # so that each line, the first too, starts after a newline
        positions = self._positions(page)
        samples = []
        for start, name in islice(positions, _MOST_SAMPLES):
            end = page.find(b"\n", start, start + _LONGEST_LINE)
            sample = _read_sample(name, page[start : end if end >= 0 else start + _LONGEST_LINE])
            if sample is not None:
                samples.append(sample)
        return Found(samples, sum(1 for _ in positions))

    def _positions(self, page: bytes) -> Iterator[tuple[int, bytes]]:
        position = 0
        for end in range(_SLICE, len(page) + _SLICE, _SLICE):
            # A name may lie across the end of a slice: search a little beyond, and go on behind what was found.
            while (match := self._pattern.search(page, position, end + 256)) is not None:
                position = match.end()
                yield position, match.group(1)
            position = max(position, end)


def looks_like_metrics(page: bytes) -> bool:
    """Whether the beginning of the page holds any sample or metadata at all, as a web page or JSON does not."""
    head = page[:_SLICE]
    return b"# TYPE " in head or b"# HELP " in head or _ANY_SAMPLE.search(head) is not None


def _read_sample(full_name: bytes, rest: bytes) -> Sample | None:
    labels: dict[str, str] = {}
    position = 0
    if rest.startswith(b"{"):
        position = _read_labels(rest, labels)
    value = _VALUE.match(rest, position) if position >= 0 else None
    if value is None:
        return None
    namespace, name = re.split("[:_]", full_name.decode(), maxsplit=1)
    return Sample(namespace, name, labels, float(value.group(1)))


def _read_labels(rest: bytes, labels: dict[str, str]) -> int:
    """Fill ``labels`` from what follows a name; the position after the closing brace, or -1 when there is none."""
    position = 1
    while (pair := _LABEL.match(rest, position)) is not None:
        value = pair.group(2)
        if b"\\" in value:
            value = _ESCAPE.sub(lambda match: b"\n" if match.group(1) == b"n" else match.group(1), value)
        labels[pair.group(1).decode()] = value.decode("utf-8", "replace")
        position = pair.end()
    closing = _LABELS_END.match(rest, position)
    return closing.end() if closing is not None else -1
