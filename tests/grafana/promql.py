"""What may be wrong with a query of a panel, found on the parsed expression. Rules as in Grafana's dashboard-linter,
and ours: only metrics and labels that the exporter has, and functions only on the kind of metric they are made for.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterator

import promql_parser
from grafana.render.model import Frame, substituted

from prefillwatch.export.spec import PREFIX, Kind, Spec
from prefillwatch.export.table import TABLE

TARGET_LABELS = {"job", "instance"}
#: Its own metric, which tells of sidecars that do not answer.
OF_PROMETHEUS = "up"
SCRAPE_LABELS = {*TARGET_LABELS, "le"}
COUNTING = {"rate", "irate", "increase"}
# Numbers that stand for the variables, so that one sees in the parsed expression which was written.
FRAME = Frame(start=0, end=86413, step=1, scrape=1234)
RATE_INTERVAL = datetime.timedelta(seconds=FRAME.rate_interval)
RANGE = datetime.timedelta(seconds=FRAME.range_seconds)
VARIABLES = {"job": "JOB", "instance": "INSTANCE", "model": "MODEL", "window": "1m"}
CHOSEN = {"job": "JOB", "instance": "INSTANCE", "model": "MODEL"}


def problems(expr: str, *, instant: bool) -> list[str]:
    try:
        parsed = promql_parser.parse(substituted(expr, VARIABLES, FRAME))
    except KeyError as error:
        return [f"unknown variable {error}"]
    except ValueError as error:
        return [f"no PromQL: {error}"]
    return [problem for node, inside in _walk(parsed) for problem in _of_node(node, inside, instant)]


def _of_node(node: object, inside: str | None, instant: bool) -> Iterator[str]:
    if isinstance(node, promql_parser.VectorSelector):
        yield from _of_selector(node, inside)
    elif isinstance(node, promql_parser.MatrixSelector):
        yield from _of_range(node, inside, instant)
    elif isinstance(node, promql_parser.AggregateExpr):
        yield from _of_aggregation(node)
    elif isinstance(node, promql_parser.Call) and node.func.name == "histogram_quantile":
        argument = node.args[1]
        if not isinstance(argument, promql_parser.AggregateExpr) or "le" not in _kept_labels(argument):
            yield "histogram_quantile without a sum by (le)"


def _of_selector(node: promql_parser.VectorSelector, inside: str | None) -> Iterator[str]:
    spec, part = _metric(node.name or "")
    if spec is None:
        if node.name != OF_PROMETHEUS:
            yield f"the exporter has no metric {node.name}"
        yield from _targets(node, TARGET_LABELS)
        return
    counts = spec.kind is Kind.COUNTER or (spec.kind is Kind.HISTOGRAM and part != "")
    if spec.kind is Kind.HISTOGRAM and not part:
        yield f"{node.name} is a histogram: its series end in _bucket, _sum and _count"
    if counts and inside not in COUNTING:
        yield f"{node.name} counts up, so it needs a rate or an increase"
    if not counts and inside in COUNTING:
        yield f"{node.name} is a gauge, and {inside} is for counters"
    yield from _targets(node, CHOSEN.keys() & (TARGET_LABELS | set(spec.label_names)))
    for label in {matcher.name for matcher in node.matchers.matchers} - TARGET_LABELS - set(spec.label_names):
        yield f"{node.name} has no label {label}"


def _targets(node: promql_parser.VectorSelector, labels: Collection[str]) -> Iterator[str]:
    """What is chosen on the dashboard has to be asked for."""
    matchers = {matcher.name: matcher for matcher in node.matchers.matchers}
    for label in labels:
        found = matchers.get(label)
        if found is None or found.value != CHOSEN[label] or found.op != promql_parser.MatchOp.Re:
            yield f'{node.name} lacks {label}=~"${label}"'


def _of_range(node: promql_parser.MatrixSelector, inside: str | None, instant: bool) -> Iterator[str]:
    """dashboard-linter wants $__rate_interval always. A sum over all the time shown is another thing, and so is whether
    there was anything; both are exempt: see .lint for the reason."""
    if node.range == RATE_INTERVAL:
        return
    if not (node.range == RANGE and instant and inside in ("increase", "last_over_time")):
        yield f"{inside} over {node.range}: use $__rate_interval, or $__range for an increase asked for once"


def _of_aggregation(node: promql_parser.AggregateExpr) -> Iterator[str]:
    known = SCRAPE_LABELS | {label for spec in TABLE for label in spec.label_names}
    for label in _kept_labels(node):
        if label not in known:
            yield f"no metric has the label {label}"


def _kept_labels(node: promql_parser.AggregateExpr) -> list[str]:
    return list(node.modifier.labels) if node.modifier else []


def _metric(name: str) -> tuple[Spec | None, str]:
    for spec in TABLE:
        part = name.removeprefix(PREFIX + spec.name)
        if part != name and (part == "" or (spec.kind is Kind.HISTOGRAM and part in ("_bucket", "_sum", "_count"))):
            return spec, part
    return None, ""


def _walk(node: object, inside: str | None = None) -> Iterator[tuple[object, str | None]]:
    """Every part of an expression with the function that it is directly an argument of."""
    yield node, inside
    if isinstance(node, promql_parser.Call):
        for argument in node.args:
            yield from _walk(argument, node.func.name)
    elif isinstance(node, promql_parser.MatrixSelector):
        yield from _walk(node.vector_selector, inside)
    elif isinstance(node, promql_parser.BinaryExpr):
        yield from _walk(node.lhs)
        yield from _walk(node.rhs)
    elif isinstance(node, promql_parser.AggregateExpr):
        yield from _walk(node.expr)
    elif isinstance(node, promql_parser.ParenExpr | promql_parser.UnaryExpr | promql_parser.SubqueryExpr):
        yield from _walk(node.expr, inside)
