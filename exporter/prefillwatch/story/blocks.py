"""What a story is made of: headings, paragraphs, lists, tables and one picture. Names that others chose are set apart
from our own words, so that no writer takes them for markup."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Name:
    """A request id or a model, as somebody else chose it; or a setting, which is set like one."""

    text: str


Said: TypeAlias = "str | Name | Sequence[str | Name]"


@dataclass(frozen=True, slots=True)
class Heading:
    text: str
    level: int = 2


@dataclass(frozen=True, slots=True)
class Text:
    said: Said


@dataclass(frozen=True, slots=True)
class Points:
    items: Sequence[Said]


@dataclass(frozen=True, slots=True)
class Table:
    """The first ``words`` columns hold words, the others figures."""

    head: Sequence[str]
    rows: Sequence[Sequence[Said]]
    words: int = 1


@dataclass(frozen=True, slots=True)
class Picture:
    svg: str
    label: str


Block: TypeAlias = Heading | Text | Points | Table | Picture


def parts_of(said: Said) -> Sequence[str | Name]:
    return (said,) if isinstance(said, (str, Name)) else said
