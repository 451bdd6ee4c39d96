"""Selectors of our metrics. Every name and label is looked up in the exporter's table, so none can be misspelt here."""

from __future__ import annotations

from prefillwatch.export.spec import PREFIX, Kind, Spec
from prefillwatch.export.table import TABLE

_BY_NAME = {spec.name: spec for spec in TABLE}
_HISTOGRAM_SUFFIXES = ("_bucket", "_sum", "_count")
OUR_TARGETS = 'job=~"$job", instance=~"$instance"'
#: Prometheus' own: 0 where a sidecar that it knows does not answer, which no metric of ours can tell. Of jobs that had
#: a sidecar within the time shown: with all jobs chosen, those of everything else that is scraped are chosen too.
SCRAPED = f"up{{{OUR_TARGETS}}} and on (job) last_over_time(prefillwatch_build_info{{{OUR_TARGETS}}}[$__range])"


def metric(name: str, **matchers: str) -> str:
    """A selector for the targets and models chosen on the dashboard.

    A matcher's value is taken as equal, or with an operator in front: ``cause="=~prefill|client"``. Raises KeyError for
    a metric or label that the exporter does not have.
    """
    labels = _spec(name).label_names
    parts = [OUR_TARGETS]
    if "model" in labels:
        parts.append('model=~"$model"')
    for label, wanted in matchers.items():
        if label not in labels:
            raise KeyError(f"{name} has no label {label}")
        parts.append(_matcher(label, wanted))
    return f"{PREFIX}{name}{{{', '.join(parts)}}}"


def _spec(name: str) -> Spec:
    if name in _BY_NAME:
        return _BY_NAME[name]
    for suffix in _HISTOGRAM_SUFFIXES:
        spec = _BY_NAME.get(name.removesuffix(suffix))
        if spec is not None and spec.kind is Kind.HISTOGRAM:
            return spec
    raise KeyError(f"the exporter has no metric {name}")


def _matcher(label: str, wanted: str) -> str:
    for operator in ("=~", "!~", "!="):
        if wanted.startswith(operator):
            return f'{label}{operator}"{wanted.removeprefix(operator)}"'
    return f'{label}="{wanted}"'


def rate(name: str, **matchers: str) -> str:
    return f"rate({metric(name, **matchers)}[$__rate_interval])"


def increase(name: str, **matchers: str) -> str:
    return f"increase({metric(name, **matchers)}[$__rate_interval])"


def in_range(name: str, **matchers: str) -> str:
    """The increase over all the time shown, for panels that sum it up in one figure."""
    return f"increase({metric(name, **matchers)}[$__range])"


def quantile(q: float, name: str, *by: str, **matchers: str) -> str:
    labels = ", ".join(("le", *by))
    return f"histogram_quantile({q:g}, sum by ({labels}) ({rate(f'{name}_bucket', **matchers)}))"


def quantile_in_range(q: float, name: str, *by: str, **matchers: str) -> str:
    labels = ", ".join(("le", *by))
    return f"histogram_quantile({q:g}, sum by ({labels}) ({in_range(f'{name}_bucket', **matchers)}))"
