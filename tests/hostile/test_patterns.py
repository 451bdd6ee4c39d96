"""Every regular expression of the product costs its input's length and not its square, whatever the input.

For each repeat in a pattern, an input is made that leads up to it, repeats it, and then fails. All patterns that
modules keep are found by themselves: a new one is in the table without anybody's doing.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import prefillwatch

try:
    from re import _constants as codes
    from re import _parser as parser
except ImportError:  # Python 3.10
    import sre_constants as codes
    import sre_parse as parser

#: What strangers never reach: the experiments, and what operators write.
_OPERATORS = ("lab", "commands", "settings", "doctor", "config", "cli", "recorder", "__main__")
_N = 4_000
#: What no linear pattern takes for 16 KB; a quadratic one takes a hundred times as much.
_CPU_S = 0.02
_RATIO = 8.0
_ENDS = ("\x00", "\x01", "", "\n", "\x7f", "!", " ")
_LIKELY = ' \ta0f"\\:;,=-_.{}[]\r\n\xff'


@dataclass(frozen=True)
class Used:
    """A pattern, and whether it is tried at one place or at all: what starts anew at each place costs more."""

    pattern: re.Pattern[Any]
    ways: tuple[str, ...]


def patterns() -> Iterator[tuple[str, Used]]:
    seen = set()
    sources = "\n".join(path.read_text() for path in Path(prefillwatch.__path__[0]).rglob("*.py"))
    for module in pkgutil.walk_packages(prefillwatch.__path__, "prefillwatch."):
        if module.name.split(".")[1] in _OPERATORS or module.name.endswith(("__main__", "plugin.entry")):
            continue
        for name, value in vars(importlib.import_module(module.name)).items():
            if isinstance(value, re.Pattern) and id(value) not in seen:
                seen.add(id(value))
                ways = set(re.findall(rf"\b{name}\.(fullmatch|match|search|finditer|findall|sub|split)\b", sources))
                one = ways & {"fullmatch", "match"}
                found = [*sorted(one), *(["search"] if ways - one else [])] or ["search", "fullmatch"]
                yield f"{module.name.removeprefix('prefillwatch.')}.{name}", Used(value, tuple(found))


def attacks(pattern: re.Pattern[Any]) -> Iterator[tuple[str, str]]:
    """(what leads up to a repeat, what it repeats), for each repeat and several of the signs that it takes."""
    text = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    yield from _in_sequence(parser.parse(text, pattern.flags & ~re.UNICODE), "")


def _in_sequence(items: Any, before: str) -> Iterator[tuple[str, str]]:
    for code, argument in items:
        if code in (codes.MAX_REPEAT, codes.MIN_REPEAT):
            _, most, inner = argument
            if most > 8:
                yield from ((before, pump) for pump in _samples(inner))
            yield from _in_sequence(inner, before)
        elif code == codes.SUBPATTERN:
            yield from _in_sequence(argument[-1], before)
        elif code == codes.BRANCH:
            for branch in argument[1]:
                yield from _in_sequence(branch, before)
        before += next(_samples([(code, argument)]), "")


def _samples(items: Any) -> Iterator[str]:
    """Texts that the items take: the shortest, with one likely sign after the other where there is a choice."""
    told = set()
    for liked in _LIKELY:
        text = "".join(_one(item, liked) for item in items)
        if text and text not in told:
            told.add(text)
            yield text


def _one(item: Any, liked: str) -> str:
    code, argument = item
    if code == codes.LITERAL:
        return chr(argument)
    if code == codes.NOT_LITERAL:
        return liked if ord(liked) != argument else "a"
    if code == codes.ANY:
        return liked
    if code == codes.IN:
        return _of_class(argument, liked)
    if code in (codes.MAX_REPEAT, codes.MIN_REPEAT):
        return "".join(_one(each, liked) for each in argument[2]) * max(1 if argument[0] else 0, argument[0])
    if code == codes.SUBPATTERN:
        return "".join(_one(each, liked) for each in argument[-1])
    if code == codes.BRANCH:
        return "".join(_one(each, liked) for each in argument[1][0])
    return ""


def _of_class(members: Any, liked: str) -> str:
    whole = re.compile("[" + "".join(map(_class_text, members)) + "]", re.DOTALL)
    return next((sign for sign in (liked, *_LIKELY, *map(chr, range(256))) if whole.match(sign)), "")


def _class_text(member: Any) -> str:
    code, argument = member
    if code == codes.NEGATE:
        return "^"
    if code == codes.RANGE:
        return f"\\x{argument[0]:02x}-\\x{min(argument[1], 255):02x}"
    if code == codes.CATEGORY:
        return {codes.CATEGORY_DIGIT: r"\d", codes.CATEGORY_WORD: r"\w", codes.CATEGORY_SPACE: r"\s"}[argument]
    return f"\\x{argument:02x}"


def seconds(act: Callable[[], object], limit: int = 3) -> float:
    """CPU time of this thread, the least of a few tries."""
    least = float("inf")
    for _ in range(limit):
        begun = time.thread_time()
        act()
        least = min(least, time.thread_time() - begun)
        if least < _CPU_S / 10:
            break
    return least


def worst(used: Used) -> str:
    """An input that costs more than its length; empty where there is none."""
    pattern = used.pattern
    for before, pump in attacks(pattern):
        for end in _ENDS:
            for way in used.ways:
                act = getattr(pattern, way)
                costs = []
                for n in (_N, 4 * _N):
                    text = before + pump * (n // len(pump)) + end
                    subject: Any = text if isinstance(pattern.pattern, str) else text.encode("latin-1")
                    costs.append(seconds(lambda act=act, subject=subject: act(subject)))  # type: ignore[misc]
                if costs[1] > _CPU_S and costs[1] > _RATIO * costs[0]:
                    return f"{before!r} + {pump!r} × n + {end!r}: {costs[0]:.4f} s, four times as long {costs[1]:.4f} s"
    return ""


FOUND = dict(patterns())


def test_patterns_are_found_and_attacked() -> None:
    assert {"relay.http_head._HEADER", "relay.framing._SIZE_LINE", "engine.exposition._LABEL"} <= FOUND.keys()
    assert list(attacks(FOUND["relay.http_head._HEADER"].pattern))


def test_a_pattern_that_costs_the_square_is_noticed() -> None:
    assert worst(Used(re.compile(rb"([a-z]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)"), ("fullmatch",)))


@pytest.mark.parametrize("name", FOUND)
def test_a_pattern_costs_its_inputs_length(name: str) -> None:
    assert worst(FOUND[name]) == ""
