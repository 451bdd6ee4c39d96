"""A receiver of OTLP over HTTP that keeps what it is sent, read by OpenTelemetry's own messages."""

from __future__ import annotations

import contextlib
import http.server
import threading
from collections.abc import Iterator
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from tests.kit.eventually import PATIENCE_S


class Receiver:
    """``status`` is what it answers with."""

    def __init__(self) -> None:
        self.status = 200
        self.metrics: list[Any] = []
        self.traces: list[Any] = []
        self.headers: list[dict[str, str]] = []
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.headers.append({name.lower(): value for name, value in self.headers.items()})
                if receiver.status == 200:
                    if self.path == "/v1/metrics":
                        receiver.metrics.append(ExportMetricsServiceRequest.FromString(body))
                    else:
                        assert self.path == "/v1/traces"
                        receiver.traces.append(ExportTraceServiceRequest.FromString(body))
                self.send_response(receiver.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *arguments: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(PATIENCE_S)

    # --- The newest of it, as plain values ---

    def metric(self, name: str) -> Any:
        """The message of one metric; None: it was not sent."""
        (of_resource,) = self.metrics[-1].resource_metrics
        (of_scope,) = of_resource.scope_metrics
        return next((metric for metric in of_scope.metrics if metric.name == name), None)

    def names(self) -> set[str]:
        return {metric.name for metric in self.metrics[-1].resource_metrics[0].scope_metrics[0].metrics}

    def spans(self) -> list[Any]:
        """All that were sent."""
        return [
            span
            for request in self.traces
            for of_resource in request.resource_spans
            for of_scope in of_resource.scope_spans
            for span in of_scope.spans
        ]


def plain(attributes: Any) -> dict[str, Any]:
    """Attributes as values."""
    return {each.key: _value(each.value) for each in attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return list(map(_value, value.array_value.values)) if kind == "array_value" else getattr(value, kind)


@contextlib.contextmanager
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    try:
        yield made
    finally:
        made.close()
