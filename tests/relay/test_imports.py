"""The parts of a relay stand on each other and nowhere in a circle, not even for the sake of types."""

from __future__ import annotations

import ast
import graphlib
from pathlib import Path

import prefillwatch.relay

ROOT = Path(prefillwatch.relay.__file__).parent
PACKAGE = "prefillwatch.relay"


def modules() -> dict[str, Path]:
    return {
        ".".join((PACKAGE, *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__"): path
        for path in ROOT.rglob("*.py")
    }


def imported(path: Path) -> set[str]:
    """Every module that is imported anywhere in a file, also where only a type checker looks."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


def test_no_part_of_the_relay_imports_what_imports_it() -> None:
    known = modules()
    assert f"{PACKAGE}.exchange.core" in known
    graph = {name: imported(path) & (known.keys() - {PACKAGE}) for name, path in known.items()}
    order = list(graphlib.TopologicalSorter(graph).static_order())  # raises CycleError, which names the circle
    assert order.index(f"{PACKAGE}.exchange.core") < order.index(f"{PACKAGE}.ports")
    assert order.index(f"{PACKAGE}.ports") < order.index(f"{PACKAGE}.client")


def test_the_core_of_an_exchange_knows_no_sockets_and_no_clock() -> None:
    known, seen, queue = modules(), set[str](), [f"{PACKAGE}.exchange.core"]
    outside: set[str] = set()
    while queue:
        name = queue.pop()
        if name in seen:
            continue
        seen.add(name)
        for other in imported(known[name]):
            if other in known:
                queue.append(other)
            else:
                outside.add(other.partition(".")[0])
    assert not outside & {"socket", "select", "ssl", "time", "os", "threading"}
    assert f"{PACKAGE}.reactor" not in seen
