"""What is pushed and when: all metrics every so often, and each incident when it is over."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import Any, Final
from urllib.parse import urlsplit

from prefillwatch import __version__
from prefillwatch.core.view import IncidentNow, incident_links
from prefillwatch.export import table
from prefillwatch.export.registry import Registry
from prefillwatch.observer.observation import Observation
from prefillwatch.observer.otlp.channel import Channel, Send
from prefillwatch.observer.otlp.items import IncidentSpan, MetricsNow, Origin
from prefillwatch.settings.addresses import UNIX
from prefillwatch.settings.otlp import parse_headers
from prefillwatch.settings.processes import OtlpSettings

#: Culprits and victims that the span of an incident links to, of each; as many as an incident names.
_MOST_LINKS: Final = 10
#: Incidents that wait for a receiver that is slow or gone: some hundred kilobytes.
_MOST_INCIDENTS: Final = 256
#: A receiver may take so long; one that is gone is asked again after as long.
_PATIENCE_S: Final = 10.0
#: At our end the last state is sent, unless that takes longer.
_LAST_PATIENCE_S: Final = 1.0

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


class OtlpPush:
    """Of what the settings name, or of nothing."""

    def __init__(self, settings: OtlpSettings, observation: Observation, upstream: str) -> None:
        self._interval_s = settings.interval
        self._observation = observation
        self._metrics: Channel[MetricsNow] | None = None
        self._traces: Channel[IncidentSpan] | None = None
        headers = parse_headers(settings.headers) if settings.headers else {}
        origin = _origin(upstream)
        patience_s = min(_PATIENCE_S, settings.interval)
        if settings.endpoint:
            url = f"{settings.endpoint}/v1/metrics"

            def connect_metrics() -> Send[MetricsNow]:
                from prefillwatch.observer.otlp.exporter import metrics_sender

                return metrics_sender(url, headers, patience_s, origin)

            # The newest state says all that the ones before it did.
            self._metrics = Channel("OTLP metrics", url, connect_metrics, most=1, pause_s=patience_s)
        if settings.traces:
            traces_url = f"{settings.traces}/v1/traces"

            def connect_traces() -> Send[IncidentSpan]:
                from prefillwatch.observer.otlp.exporter import traces_sender

                return traces_sender(traces_url, headers, _PATIENCE_S, origin)

            self._traces = Channel("OTLP traces", traces_url, connect_traces, most=_MOST_INCIDENTS, pause_s=_PATIENCE_S)
            observation.history.heard.append(self._incident)
        if self._channels:
            observation.more_metrics.append(self._publish)

    @property
    def _channels(self) -> dict[str, Channel[Any]]:
        both = {"metrics": self._metrics, "traces": self._traces}
        return {signal: channel for signal, channel in both.items() if channel is not None}

    def start(self) -> None:
        for channel in self._channels.values():
            channel.start()

    async def run(self) -> None:
        """For ever."""
        while True:
            await asyncio.sleep(self._interval_s)
            self.push()

    def push(self) -> None:
        """The metrics of now."""
        observation = self._observation
        if self._metrics is not None and observation.standard is not None:
            snapshot = observation.snapshot(exponential=True)
            server = observation.view().upstream.server
            self._metrics.offer(MetricsNow(time.time_ns(), snapshot, observation.standard.copy(), server))

    def close(self) -> None:
        """Send what waits. May block for a moment."""
        for channel in self._channels.values():
            channel.close(_LAST_PATIENCE_S)

    def _incident(self, incident: IncidentNow, document: dict[str, Any]) -> None:
        if self._traces is not None:
            self._traces.offer(IncidentSpan(document, incident_links(incident, _MOST_LINKS)))

    def _publish(self, registry: Registry) -> None:
        for signal, channel in self._channels.items():
            registry.counter(table.OTLP_EXPORTS).set_total((signal, "ok"), channel.succeeded)
            registry.counter(table.OTLP_EXPORTS).set_total((signal, "failed"), channel.failed)
            registry.counter(table.OTLP_DROPPED).set_total((signal,), channel.dropped)


def _origin(upstream: str) -> Origin:
    """One machine may have several of us, but no two that watch the same server."""
    if upstream.startswith(UNIX):
        address, port, watched = upstream.removeprefix(UNIX), None, upstream
    else:
        parts = urlsplit(upstream)
        address, port = parts.hostname or "", parts.port or _DEFAULT_PORTS[parts.scheme]
        watched = parts.netloc
    return Origin(__version__, f"{socket.gethostname()}/{watched}", time.time_ns(), address, port)
