"""What people see who open the admin port in a browser without scripts: how it is now, and where to look. Pure."""

from __future__ import annotations

from html import escape
from typing import Final

from prefillwatch import __version__
from prefillwatch.export import table
from prefillwatch.export.registry import Labels, Snapshot
from prefillwatch.export.spec import Spec
from prefillwatch.report import ABSENT, duration, share

_LINKS: Final = (
    ("/metrics", "metrics for Prometheus"),
    ("/api/state", "streams and prefills now, as JSON"),
    ("/api/live", "what the live page shows, as server-sent events"),
    ("/api/incidents", "freezes and waits, newest first, as JSON"),
    ("/explain", "the story of the newest incident, for people"),
    ("/readyz", "whether requests are served now"),
    ("/healthz", "whether this process runs"),
)

Row = list[str]


def fallback(snapshot: Snapshot, ready: bool, reason: str = "") -> str:
    """HTML for the body of the page: figures as of now, and links."""
    values = {family.spec.name: family.values for family in snapshot}
    status = "serving" if ready else f'<span class="bad">not serving: {escape(reason)}</span>'
    links = "".join(f'<li><a href="{path}">{path}</a>: {text}</li>' for path, text in _LINKS)
    return (
        "<h1>prefillwatch</h1><p>Times every streamed token of a vLLM server and names the prompt that froze the "
        f"others.</p><p>Version {escape(__version__)}, {status}.</p>"
        + _table(("model", "decoding", "in prefill", *_GAP_TITLES), _models(values))
        + _table(("engine", "KV cache used", "running", "waiting", "preemptions"), _engines(values))
        + f"<ul>{links}</ul>"
    )


_GAP_WINDOW: Final = table.WINDOW.values[1]
_GAP_TITLES: Final = tuple(f"ITL p99 {_GAP_WINDOW}, {population}" for population in table.POPULATION.values)


def _models(values: dict[str, dict[Labels, float]]) -> list[Row]:
    models = sorted({labels[0] for labels in values[table.DECODING_STREAMS.name]})
    return [
        [
            model,
            _whole(values, table.DECODING_STREAMS, (model,)),
            _whole(values, table.PREFILLING_REQUESTS, (model,)),
            *(
                duration(values[table.INTER_TOKEN_LATENCY_P99.name].get((model, _GAP_WINDOW, population)))
                for population in table.POPULATION.values
            ),
        ]
        for model in models
    ]


def _engines(values: dict[str, dict[Labels, float]]) -> list[Row]:
    engines = sorted({labels[0] for labels in values[table.UPSTREAM_REQUESTS.name]})
    return [
        [
            engine,
            share(values[table.KV_CACHE_USAGE.name].get((engine,))),
            _whole(values, table.UPSTREAM_REQUESTS, (engine, "running")),
            _whole(values, table.UPSTREAM_REQUESTS, (engine, "waiting")),
            _whole(values, table.PREEMPTIONS, (engine,)),
        ]
        for engine in engines
    ]


def _table(titles: tuple[str, ...], rows: list[Row]) -> str:
    if not rows:
        return f"<p>No {titles[0]} seen yet.</p>"
    head = "".join(f"<th>{escape(title)}</th>" for title in titles)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _whole(values: dict[str, dict[Labels, float]], spec: Spec, labels: Labels) -> str:
    value = values[spec.name].get(labels)
    return ABSENT if value is None else f"{value:.0f}"
