"""Counters and histograms in Prometheus' text form."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ...engines.errors import MissingExtraError
from ...engines.extras import missing_package

if TYPE_CHECKING:
    from prometheus_client import Counter, Gauge, Histogram

Metric = TypeVar("Metric", bound="Counter | Histogram")
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_IMAGES = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """The metrics of the server, in a separate registry. Raises MissingExtraError without prometheus-client.

    Labels are model names, statuses and gRPC's names of errors ("OK" for none), so their number is bounded.
    """

    def __init__(self) -> None:
        try:
            import prometheus_client as prometheus
        except ImportError as error:
            raise MissingExtraError(missing_package("prometheus-client", "serve")) from error
        self._registry = prometheus.CollectorRegistry()
        self._children: dict[tuple[Any, tuple[str, ...]], Any] = {}
        counter = partial(prometheus.Counter, registry=self._registry, namespace="xbench")
        gauge = partial(prometheus.Gauge, registry=self._registry, namespace="xbench")
        histogram = partial(prometheus.Histogram, registry=self._registry, namespace="xbench")
        self.requests: Counter = counter("requests", "Requests by outcome", ["model", "code"])
        self.request_seconds: Histogram = histogram(
            "request_seconds", "Time from a whole request to its answer", ["model"], buckets=_SECONDS
        )
        self.images: Counter = counter("images", "Images answered", ["model"])
        self.batch_images: Histogram = histogram("batch_images", "Images of an engine call", ["model"], buckets=_IMAGES)
        self.engine_seconds: Histogram = histogram(
            "engine_seconds", "Time of an engine call", ["model"], buckets=_SECONDS
        )
        self.waiting: Gauge = gauge("queue_images", "Images that wait for the engine", ["model"])
        self.accepted: Gauge = gauge("in_flight_images", "Images accepted and not answered yet", ["model"])
        # part: "image", files that need not be prepared again; "features", images that need not be encoded again.
        self.cache_hits: Counter = counter("cache_hits", "Images found in the feature cache", ["part"])
        self.cache_misses: Counter = counter("cache_misses", "Images not found in the feature cache", ["part"])
        self.cache_evictions: Counter = counter("cache_evictions", "Entries removed from a full feature cache")
        self.cache_bytes: Gauge = gauge("cache_bytes", "Bytes of the arrays in the feature cache")
        self.http_responses: Counter = counter("http_responses", "HTTP responses by status", ["status"])
        self.grpc_calls: Counter = counter("grpc_calls", "gRPC calls by status", ["code"])

    def child(self, metric: Metric, *labels: str) -> Metric:
        """`metric.labels(*labels)`, which checks the labels each time and costs as much as a request's headers."""
        key = (metric, labels)
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = metric.labels(*labels)
        return cast("Metric", child)

    def render(self) -> tuple[bytes, str]:
        """The text and its content type."""
        from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

        return generate_latest(self._registry), CONTENT_TYPE_LATEST
