"""Which labels the result of a PromQL expression can carry, worked out from the expression alone.

Good enough for rules that are written with ``without`` and explicit matching; raises LabelMismatchError where the two
sides of an operator could never meet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import promql_parser as promql

Labels = frozenset[str]

SET_OPERATORS = ("and", "or", "unless")


class LabelMismatchError(ValueError):
    """Two sides of an operator have different labels, so that no series of one matches any of the other."""


def children(node: Any) -> list[Any]:
    """The parts of an expression, in order."""
    if isinstance(node, promql.BinaryExpr):
        return [node.lhs, node.rhs]
    if isinstance(node, promql.Call):
        return list(node.args)
    if isinstance(node, promql.MatrixSelector):
        return [node.vector_selector]
    if isinstance(node, promql.AggregateExpr | promql.ParenExpr | promql.UnaryExpr | promql.SubqueryExpr):
        return [node.expr]
    return []


def walk(node: Any) -> Iterator[Any]:
    yield node
    for child in children(node):
        yield from walk(child)


def selectors(node: Any) -> list[Any]:
    return [each for each in walk(node) if isinstance(each, promql.VectorSelector)]


def operator(node: Any) -> str:
    return str(node.op)


def bare(node: Any) -> Any:
    """Without the parentheses around it."""
    while isinstance(node, promql.ParenExpr):
        node = node.expr
    return node


def labels_of(node: Any, series: Mapping[str, Labels]) -> Labels | None:
    """None for a scalar. ``series`` has the labels of every series by name; raises KeyError for one it lacks."""
    node = bare(node)
    if isinstance(node, promql.VectorSelector):
        return series[node.name or ""]
    if isinstance(node, promql.MatrixSelector | promql.UnaryExpr | promql.SubqueryExpr):
        return labels_of(children(node)[0], series)
    if isinstance(node, promql.Call):
        return _of_call(node, series)
    if isinstance(node, promql.AggregateExpr):
        return _of_aggregate(node, series)
    if isinstance(node, promql.BinaryExpr):
        return _of_binary(node, series)
    return None


def _of_call(node: Any, series: Mapping[str, Labels]) -> Labels | None:
    if node.func.name == "absent":
        (selector,) = selectors(node)
        return frozenset(each.name for each in selector.matchers.matchers if each.op == promql.MatchOp.Equal)
    found = [labels for argument in node.args if (labels := labels_of(argument, series)) is not None]
    if not found:
        return None
    return found[0] - {"le"} if node.func.name == "histogram_quantile" else found[0]


def _of_aggregate(node: Any, series: Mapping[str, Labels]) -> Labels:
    inner = labels_of(node.expr, series) or frozenset()
    if node.modifier is None:
        return frozenset()
    named = frozenset(node.modifier.labels)
    return inner & named if node.modifier.type == promql.AggModifierType.By else inner - named


def _of_binary(node: Any, series: Mapping[str, Labels]) -> Labels | None:
    left, right = labels_of(node.lhs, series), labels_of(node.rhs, series)
    if left is None or right is None:
        return right if left is None else left
    matching = node.modifier.matching if node.modifier else None
    if matching is not None and matching.type == promql.LabelModifierType.Include:
        on = frozenset(matching.labels)
        _meet(node, left & on, right & on, on)
        return left if operator(node) in SET_OPERATORS else on
    ignored = frozenset(matching.labels) if matching is not None else frozenset()
    _meet(node, left - ignored, right - ignored, left - ignored)
    if operator(node) in SET_OPERATORS:
        return left
    many_to_one = node.modifier is not None and node.modifier.card == promql.VectorMatchCardinality.ManyToOne
    return left if many_to_one else left - ignored


def _meet(node: Any, left: Labels, right: Labels, wanted: Labels) -> None:
    if not left == right == wanted:
        raise LabelMismatchError(f"{sorted(left)} never match {sorted(right)} in: {node}")
