"""OTLP metrics handed on to a real Prometheus as its own OTLP receiver would store them, by its remote-write receiver.

Debian builds Prometheus without the former. What it does is specified: https://opentelemetry.io/docs/specs/otel/compatibility/
prometheus_and_openmetrics. Native histograms are checked by Prometheus when it takes them.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import Any, Final

import httpx
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

#: prometheus/prometheus, prompb/remote.proto and types.proto, as far as it is needed: message -> field -> number, type.
_MESSAGES: Final[dict[str, dict[str, tuple[int, str]]]] = {
    "Label": {"name": (1, "string"), "value": (2, "string")},
    "Sample": {"value": (1, "double"), "timestamp": (2, "int64")},
    "BucketSpan": {"offset": (1, "sint32"), "length": (2, "uint32")},
    "Histogram": {
        "count_int": (1, "uint64"),
        "sum": (3, "double"),
        "schema": (4, "sint32"),
        "zero_threshold": (5, "double"),
        "zero_count_int": (6, "uint64"),
        "positive_spans": (11, "*BucketSpan"),
        "positive_deltas": (12, "*sint64"),
        "timestamp": (15, "int64"),
    },
    "TimeSeries": {"labels": (1, "*Label"), "samples": (2, "*Sample"), "histograms": (4, "*Histogram")},
    "WriteRequest": {"timeseries": (1, "*TimeSeries")},
}
#: What Prometheus takes as zero where OTLP does not say.
_ZERO_THRESHOLD: Final = 1e-128
_WRITTEN_OUT: Final = {"s": "seconds", "By": "bytes"}


def _request_class() -> Any:
    """Of WriteRequest, made from the table above."""
    file = descriptor_pb2.FileDescriptorProto(name="prefillwatch_tests_remote.proto", package="remote", syntax="proto3")
    for message, fields in _MESSAGES.items():
        made = file.message_type.add(name=message)
        for name, (number, kind) in fields.items():
            field = made.field.add(name=name, number=number)
            field.label = field.LABEL_REPEATED if kind.startswith("*") else field.LABEL_OPTIONAL
            kind = kind.removeprefix("*")
            if kind in _MESSAGES:
                field.type, field.type_name = field.TYPE_MESSAGE, f".remote.{kind}"
            else:
                field.type = getattr(field, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("remote.WriteRequest"))


_WriteRequest: Final = _request_class()


def hand_on(metrics: Any, prometheus: str) -> None:
    """A state of all metrics, as our receiver got it. Fails where Prometheus does not take all of it."""
    (of_resource,) = metrics.resource_metrics
    attributes = {each.key: each.value.string_value for each in of_resource.resource.attributes}
    target = {"job": attributes["service.name"], "instance": attributes["service.instance.id"]}
    request = _WriteRequest()
    for metric in of_resource.scope_metrics[0].metrics:
        for name, point in _series(metric):
            labels = {**target, **{_label(each.key): _text(each.value) for each in point.attributes}, "__name__": name}
            made = request.timeseries.add()
            for label in sorted(labels):
                made.labels.add(name=label, value=labels[label])
            at_ms = point.time_unix_nano // 10**6
            if metric.WhichOneof("data") == "exponential_histogram":
                _native(made.histograms.add(timestamp=at_ms), point)
            else:
                made.samples.add(value=point.as_double, timestamp=at_ms)
    answer = httpx.post(
        f"{prometheus}/api/v1/write",
        content=_snappy(request.SerializeToString()),
        headers={
            "Content-Encoding": "snappy",
            "Content-Type": "application/x-protobuf",
            "X-Prometheus-Remote-Write-Version": "0.1.0",
        },
        timeout=30.0,
    )
    assert answer.status_code == 204, answer.text


def _series(metric: Any) -> Iterator[tuple[str, Any]]:
    """Of a histogram with fixed bounds, nothing: what comes of it is as old as Prometheus."""
    kind = metric.WhichOneof("data")
    name = re.sub("[^a-zA-Z0-9_]", "_", metric.name)
    if metric.unit in _WRITTEN_OUT:
        name += f"_{_WRITTEN_OUT[metric.unit]}"
    if kind == "sum":
        name += "_total"
    elif kind == "gauge" and metric.unit == "1":
        name += "_ratio"
    if kind != "histogram":
        for point in getattr(metric, kind).data_points:
            yield name, point


def _native(made: Any, point: Any) -> None:
    """Prometheus numbers a bucket by its upper bound, OTLP by its lower one."""
    made.count_int, made.sum, made.schema = point.count, point.sum, point.scale
    made.zero_threshold, made.zero_count_int = _ZERO_THRESHOLD, point.zero_count
    counts = list(point.positive.bucket_counts)
    if counts:
        made.positive_spans.add(offset=point.positive.offset + 1, length=len(counts))
        made.positive_deltas.extend(count - before for before, count in zip([0, *counts], counts, strict=False))


def _label(name: str) -> str:
    return re.sub("[^a-zA-Z0-9_]", "_", name)


def _text(value: Any) -> str:
    return str(getattr(value, value.WhichOneof("value")))


def _snappy(data: bytes) -> bytes:
    """Literals only, which every reader of snappy's block format takes."""
    length, head = len(data), bytearray()
    while length > 0x7F:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    head.append(length)
    parts = [data[start : start + 0x10000] for start in range(0, len(data), 0x10000)]
    return bytes(head) + b"".join(b"\xf4" + struct.pack("<H", len(part) - 1) + part for part in parts)
