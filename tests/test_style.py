"""One form for each thing, as CONTRIBUTING says it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import prefillwatch

ROOT = Path(prefillwatch.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]+")
#: A table of declarations, each of which has a type and a name that is looked up.
TABLES = {"export/table.py"}


def assigned(path: Path) -> Iterator[tuple[str, ast.expr]]:
    """Names that a module gives values to without an annotation."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, node.value


def called(value: ast.expr) -> str:
    return ast.unparse(value.func) if isinstance(value, ast.Call) else ""


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_there_are_files() -> None:
    assert len(FILES) > 300


def test_constants_are_final() -> None:
    loose = {
        (name_of(path), name)
        for path in FILES
        if name_of(path) not in TABLES
        for name, value in assigned(path)
        if CONSTANT.fullmatch(name) and called(value) != "TypeVar"
    }
    assert not loose


def test_loggers_have_one_name() -> None:
    loggers = {name for path in FILES for name, value in assigned(path) if called(value) == "logging.getLogger"}
    assert loggers == {"log"}


def test_sections_begin_in_one_way() -> None:
    lines = {line.strip() for path in FILES for line in path.read_text().splitlines()}
    rules = {line for line in lines if re.match(r"# ?[-=#]{3,}", line)}
    assert len(rules) > 20
    assert not {line for line in rules if not re.fullmatch(r"# --- \S.*\S ---", line)}


def test_a_string_stands_nowhere_but_as_a_docstring() -> None:
    """What a field means stands above it, as of a constant."""
    loose = [
        (name_of(path), statement.lineno)
        for path in FILES
        for scope in ast.walk(ast.parse(path.read_text()))
        if isinstance(scope, ast.Module | ast.ClassDef)
        for statement in scope.body[1:]
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        if isinstance(statement.value.value, str)
    ]
    assert not loose
