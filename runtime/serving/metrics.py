"""Counters and histograms in Prometheus' text form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...engines.errors import MissingExtraError

__all__ = ["Metrics"]

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_IMAGES = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """What the server counts, in a registry of its own. Raises MissingExtraError without prometheus-client.

    Labels are model names and gRPC's names of errors ("OK" for none), so their number is bounded.
    """

    def __init__(self) -> None:
        try:
            import prometheus_client as prometheus
        except ImportError as error:
            raise MissingExtraError("prometheus-client is not installed; install xbench-fast[serve].") from error
        self._prometheus: Any = prometheus
        self._registry = prometheus.CollectorRegistry()
        self._children: dict[tuple[object, ...], Any] = {}
        make: dict[str, Any] = {"registry": self._registry, "namespace": "xbench"}
        model = ["model"]
        self._requests = prometheus.Counter("requests", "Requests by outcome", [*model, "code"], **make)
        self._latency = prometheus.Histogram(
            "request_seconds", "Time from a whole request to its answer", model, buckets=_SECONDS, **make
        )
        self._images = prometheus.Counter("images", "Images answered", model, **make)
        self._batches = prometheus.Histogram("batch_images", "Images of an engine call", model, buckets=_IMAGES, **make)
        self._engine = prometheus.Histogram("engine_seconds", "Time of an engine call", model, buckets=_SECONDS, **make)
        self._waiting = prometheus.Gauge("queue_images", "Images that wait for the engine", model, **make)
        self._way = prometheus.Gauge("in_flight_images", "Images accepted and not answered yet", model, **make)
        self._http = prometheus.Counter("http_responses", "HTTP responses by status", ["status"], **make)
        self._grpc = prometheus.Counter("grpc_calls", "gRPC calls by status", ["code"], **make)

    def watch(self, model: str, waiting: Callable[[], int], on_their_way: Callable[[], int]) -> None:
        """Reads the two gauges of a model from functions, when they are asked for."""
        self._waiting.labels(model).set_function(waiting)
        self._way.labels(model).set_function(on_their_way)

    def request(self, model: str, code: str, seconds: float, images: int) -> None:
        """A request of `images` that ended with `code` after `seconds`."""
        self._child(self._requests, model, code).inc()
        self._child(self._latency, model).observe(seconds)
        if code == "OK":
            self._child(self._images, model).inc(images)

    def refused(self, model: str, code: str) -> None:
        """A request that ended with `code` before it was a whole one."""
        self._child(self._requests, model, code).inc()

    def batch(self, model: str, images: int, seconds: float) -> None:
        """An engine call."""
        self._child(self._batches, model).observe(images)
        self._child(self._engine, model).observe(seconds)

    def http(self, status: int) -> None:
        """An HTTP response."""
        self._child(self._http, str(status)).inc()

    def grpc(self, code: str) -> None:
        """A gRPC call that ended with the status `code`."""
        self._child(self._grpc, code).inc()

    def _child(self, metric: Any, *labels: str) -> Any:
        """`metric.labels(*labels)`, which takes a lock and checks the labels at every call."""
        key = (id(metric), *labels)
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = metric.labels(*labels)
        return child

    def render(self) -> tuple[bytes, str]:
        """The text and its content type."""
        return self._prometheus.generate_latest(self._registry), self._prometheus.CONTENT_TYPE_LATEST
