"""What is wrong with a rule: the defects that published rule sets repeat, and pint's checks that need no server.

``problems`` of a rule is empty when there is none. The checks work on parsed expressions, not on their text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import promql_parser as promql
from alerts.rulebook.source import parse_duration
from tests.alerts.promql_labels import (
    SET_OPERATORS,
    LabelMismatchError,
    Labels,
    bare,
    labels_of,
    operator,
    selectors,
    walk,
)

from prefillwatch.export.spec import Kind, Spec

Rule = dict[str, Any]

COMPARISONS = ("==", "!=", ">", "<", ">=", "<=")
OF_COUNTERS = ("rate", "irate", "increase", "resets", "changes")
OF_GAUGES = ("avg_over_time", "min_over_time", "max_over_time", "sum_over_time", "delta", "deriv", "quantile_over_time")
UNSTABLE = ("topk", "bottomk", "limitk", "limit_ratio")
SEVERITIES = ("critical", "warning", "info")
TARGET_LABELS: Labels = frozenset({"job", "instance"})
_PLACEHOLDER = re.compile(r"\$labels\.(\w+)")
_QUERY = re.compile(r"printf `([^`]+)`")


@dataclass(frozen=True)
class World:
    """What rules may refer to. ``specs`` are our metrics by full name, ``series`` the labels of everything else that
    exists: target metrics, the engine's, and what other rules record."""

    specs: dict[str, Spec]
    series: dict[str, Labels]
    scrape_seconds: float

    def spec(self, name: str) -> Spec | None:
        """The family of a sample name."""
        spec = self.specs.get(name)
        if spec is not None and spec.kind is not Kind.HISTOGRAM:
            return spec
        family = re.sub(r"_(bucket|sum|count)$", "", name)
        spec = self.specs.get(family)
        return spec if spec is not None and spec.kind is Kind.HISTOGRAM and family != name else None

    def labels(self) -> dict[str, Labels]:
        known = dict(self.series)
        for name, spec in self.specs.items():
            labels = TARGET_LABELS | set(spec.label_names)
            if spec.kind is Kind.HISTOGRAM:
                known |= {f"{name}_bucket": labels | {"le"}, f"{name}_sum": labels, f"{name}_count": labels}
            else:
                known[name] = labels
        return known

    def is_counter(self, name: str) -> bool:
        spec = self.spec(name)
        if spec is not None:
            return spec.kind in (Kind.COUNTER, Kind.HISTOGRAM)
        return ":" in name and name.endswith(("_bucket", "_sum", "_count", "_total"))


def problems(rule: Rule, world: World) -> list[str]:
    """One line per defect. A rule that cannot be parsed, or names what does not exist, is not looked at further."""
    try:
        expression = promql.parse(rule["expr"])
    except ValueError as error:
        return [f"does not parse: {error}"]
    unknown = [f"no such series: {each.name}" for each in selectors(expression) if each.name not in world.labels()]
    if unknown:
        return unknown
    try:
        labels = labels_of(expression, world.labels())
    except LabelMismatchError as error:
        return [f"labels do not match: {error}"]
    found = [problem for check in EXPRESSION_CHECKS for problem in check(expression, world)]
    if "alert" in rule:
        found += [problem for check in ALERT_CHECKS for problem in check(rule, expression, world)]
        found += _templates(rule, labels or frozenset(), world)
    return found


# --- Expressions ---


def _rates(expression: Any, world: World) -> Iterator[str]:
    """Rates of counters only, counters in rates only, over windows that hold enough scrapes."""
    covered = set()
    for call in (each for each in walk(expression) if isinstance(each, promql.Call)):
        names = [each.name for each in selectors(call)]
        if call.func.name in OF_COUNTERS:
            covered |= {id_of(each) for each in selectors(call)}
            yield from (f"{call.func.name}() of the gauge {name}" for name in names if not world.is_counter(name))
            yield from _windows(call, world)
        elif call.func.name in OF_GAUGES:
            yield from (f"{call.func.name}() of the counter {name}" for name in names if world.is_counter(name))
    for selector in selectors(expression):
        if world.is_counter(selector.name) and id_of(selector) not in covered:
            yield f"the counter {selector.name} without rate() or increase()"


def id_of(selector: Any) -> str:
    return str(selector)


def _windows(call: Any, world: World) -> Iterator[str]:
    for matrix in (each for each in walk(call) if isinstance(each, promql.MatrixSelector)):
        seconds = matrix.range.total_seconds()
        if seconds < 4 * world.scrape_seconds:
            yield f"a window of {seconds:g} s is shorter than four scrapes"


def _quantiles(expression: Any, world: World) -> Iterator[str]:
    """Quantiles of summed rates of buckets; no mean of quantiles."""
    for call in (each for each in walk(expression) if isinstance(each, promql.Call)):
        if call.func.name != "histogram_quantile":
            continue
        buckets = call.args[1]
        if "le" not in (labels_of(buckets, world.labels()) or ()):
            yield "histogram_quantile() without le"
        recorded = all(re.search(r":\w*rate\w*$", each.name) for each in selectors(buckets))
        rated = any(isinstance(each, promql.Call) and each.func.name == "rate" for each in walk(buckets))
        if not rated and not recorded:
            yield "histogram_quantile() of buckets since the start of the process, without rate()"
    for aggregate in (each for each in walk(expression) if isinstance(each, promql.AggregateExpr)):
        if operator(aggregate) in ("avg", "sum") and any(
            re.search(r"[:_]p\d+", each.name) for each in selectors(aggregate)
        ):
            yield "an average or sum of quantiles"


def _divisions(expression: Any, world: World) -> Iterator[str]:
    """0/0 is NaN, which spoils every sum that it gets into: the denominator has to be above 0."""
    for node in (each for each in walk(expression) if isinstance(each, promql.BinaryExpr) and operator(each) == "/"):
        below = bare(node.rhs)
        if isinstance(below, promql.NumberLiteral):
            continue
        if not (isinstance(below, promql.BinaryExpr) and operator(below) == ">" and _number(below.rhs) == 0):
            yield f"division by something that can be 0: {node.rhs}"


def _tautologies(expression: Any, world: World) -> Iterator[str]:
    """A share of something in itself, such as an error budget made of one counter twice, is always 1."""
    for node in (each for each in walk(expression) if isinstance(each, promql.BinaryExpr) and operator(each) == "/"):
        above, below = ({str(each) for each in selectors(side)} for side in (node.lhs, node.rhs))
        levels = [labels_of(side, world.labels()) for side in (node.lhs, node.rhs)]
        if above == below and levels[0] == levels[1]:
            yield f"both sides of a division read the same: {node}"


def _shares(expression: Any, world: World) -> Iterator[str]:
    """A share goes from 0 to 1; 90 is a percentage."""
    for node in (each for each in walk(expression) if isinstance(each, promql.BinaryExpr)):
        limit = _number(node.rhs)
        if operator(node) not in COMPARISONS or limit is None:
            continue
        if _is_share(bare(node.lhs)) and not 0 <= limit < 1:
            yield f"a share compared with {limit:g}: {node}"


def _is_share(node: Any) -> bool:
    """Pressures are ratios that are no part of anything."""
    if isinstance(node, promql.Call) and node.func.name in OF_GAUGES:
        return _is_share(bare(node.args[0]).vector_selector)
    if isinstance(node, promql.AggregateExpr):
        return operator(node) in ("max", "min", "avg", "quantile") and _is_share(bare(node.expr))
    if not isinstance(node, promql.VectorSelector):
        return False
    return re.search(r"(?<!_pressure)_ratio$|:ratio", node.name or "") is not None


def _matchers(expression: Any, world: World) -> Iterator[str]:
    """Labels that exist, values that they can take, regular expressions only where they are needed."""
    for selector in selectors(expression):
        for matcher in selector.matchers.matchers:
            if matcher.name not in world.labels()[selector.name]:
                yield f"{selector.name} has no label {matcher.name}"
            yield from _matched_values(selector.name, matcher, world)


def _matched_values(name: str, matcher: Any, world: World) -> Iterator[str]:
    is_regex = matcher.op in (promql.MatchOp.Re, promql.MatchOp.NotRe)
    if is_regex and not re.search(r"[|.*+?\[(]", matcher.value.replace("128k+", "")):
        yield f"{matcher.name}=~{matcher.value!r} needs no regular expression"
    spec = world.spec(name)
    if spec is None:
        return
    allowed = {label.name: label.values for label in spec.labels}.get(matcher.name, ())
    if matcher.name == "le":
        allowed = (*map(repr, spec.bounds), "+Inf")
    values = matcher.value.split("|") if is_regex else [matcher.value]
    if allowed:
        yield from (f"{name} never has {matcher.name}={value!r}" for value in values if value not in allowed)


EXPRESSION_CHECKS: tuple[Callable[[Any, World], Iterator[str]], ...] = (
    _rates,
    _quantiles,
    _divisions,
    _tautologies,
    _shares,
    _matchers,
)


# --- Alerts ---


def _condition(rule: Rule, expression: Any, world: World) -> Iterator[str]:
    has_comparison = any(
        isinstance(each, promql.BinaryExpr) and operator(each) in COMPARISONS for each in walk(expression)
    )
    absents = [each for each in walk(expression) if isinstance(each, promql.Call) and each.func.name == "absent"]
    if not has_comparison and not absents:
        yield "no comparison: it fires for any value"
    if any(_is_always_there(each) for each in _alternatives(expression)):
        yield "a part of it has no comparison: it fires for any value"
    if absents and parse_duration(rule.get("for", "0s")) < 2 * world.scrape_seconds:
        yield "absent() has to hold for two scrapes, or a single missed one fires"
    for each in walk(expression):
        if isinstance(each, promql.AggregateExpr) and operator(each) in UNSTABLE:
            yield f"{operator(each)} in an alert: its series come and go"


def _alternatives(expression: Any) -> list[Any]:
    node = bare(expression)
    if isinstance(node, promql.BinaryExpr) and operator(node) == "or":
        return [*_alternatives(node.lhs), *_alternatives(node.rhs)]
    return [node]


def _is_always_there(node: Any) -> bool:
    """Whether a part of an alert filters nothing."""
    if isinstance(node, promql.Call) and node.func.name == "absent":
        return False
    if isinstance(node, promql.BinaryExpr) and operator(node) in (*COMPARISONS, *SET_OPERATORS):
        return not any(isinstance(each, promql.BinaryExpr) and operator(each) in COMPARISONS for each in walk(node))
    return True


def _means(rule: Rule, expression: Any, world: World) -> Iterator[str]:
    """A mean hides the one in a hundred that an alert is about."""
    for node in (each for each in walk(expression) if isinstance(each, promql.BinaryExpr) and operator(each) == "/"):
        sums = {each.name.removesuffix("_sum") for each in selectors(node.lhs) if each.name.endswith("_sum")}
        counts = {each.name.removesuffix("_count") for each in selectors(node.rhs) if each.name.endswith("_count")}
        yield from (f"the mean of {name}, where a quantile is meant" for name in sorted(sums & counts))


def _metadata(rule: Rule, expression: Any, world: World) -> Iterator[str]:
    labels, annotations = rule.get("labels", {}), rule.get("annotations", {})
    if not re.fullmatch(r"([A-Z]+[a-z]*)+", rule["alert"]):
        yield f"the name {rule['alert']} is not CamelCase"
    if labels.get("severity") not in SEVERITIES:
        yield f"severity {labels.get('severity')!r} is none of {', '.join(SEVERITIES)}"
    yield from (f"the label {name} has a template" for name, value in labels.items() if "{{" in value)
    yield from (f"no {name}" for name in ("summary", "description", "runbook_url") if not annotations.get(name))
    link = annotations.get("runbook_url", "")
    if link and not re.fullmatch(r"(https?://|\{\{ \$externalURL \}\}/)\S+", link):
        yield f"the runbook_url is no address: {link}"
    if re.match(r"https?://([^/]*\.)?(example(\.\w+)?|invalid|test|localhost|127\.0\.0\.1)(:\d+)?(/|$)", link):
        yield f"the runbook_url leads nowhere: {link}"
    summary = annotations.get("summary", "")
    if "{{" in summary or not re.fullmatch(r"\S[^.]*\.", summary):
        yield f"the summary is no plain sentence: {summary!r}"
    if parse_duration(rule.get("for", "0s")) <= 0:
        yield "for is missing or 0: a single evaluation fires"
    if parse_duration(rule.get("keep_firing_for", "0s")) < 2 * world.scrape_seconds:
        yield "keep_firing_for is missing or shorter than two scrapes: a gap in scraping resolves it"


ALERT_CHECKS: tuple[Callable[[Rule, Any, World], Iterator[str]], ...] = (_condition, _means, _metadata)


def _templates(rule: Rule, labels: Labels, world: World) -> Iterator[str]:
    """Descriptions name only labels that the result has, and ask only for what exists."""
    text = rule.get("annotations", {}).get("description", "")
    available = labels | rule.get("labels", {}).keys()
    for name in sorted(set(_PLACEHOLDER.findall(text)) - available):
        yield f"the description names the label {name}, which the result does not have"
    for query in _QUERY.findall(text):
        expression = promql.parse(query.replace("%q", '"x"'))
        for selector in selectors(expression):
            if selector.name not in world.labels():
                yield f"the description asks for {selector.name}, which does not exist"
            else:
                yield from _matchers(expression, world)


def _number(node: Any) -> float | None:
    node = bare(node)
    if isinstance(node, promql.UnaryExpr):
        inner = _number(node.expr)
        return None if inner is None else -inner
    return float(node.val) if isinstance(node, promql.NumberLiteral) else None
