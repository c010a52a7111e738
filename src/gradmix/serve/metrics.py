"""The metrics of /metrics: counts and times, with a bounded number of labels whatever clients request."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_IMAGES = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """Metrics in a separate registry, so that two servers in one process are not added up."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        registry = self._registry
        self._requests = Counter(
            "gradmix_requests", "Requests by endpoint and status.", ["endpoint", "status"], registry=registry
        )
        self._seconds = Histogram(
            "gradmix_request_seconds",
            "Seconds to an answer.",
            ["endpoint"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._batch = Histogram(
            "gradmix_batch_images",
            "Images that went through the network at once.",
            buckets=_IMAGES,
            registry=registry,
        )
        self._images = Counter(
            "gradmix_images", "Images by verdict: known or unknown.", ["verdict"], registry=registry
        )
        self._waiting = Gauge(
            "gradmix_waiting_images", "Images that wait for the network.", registry=registry
        )
        self._classes = Gauge("gradmix_classes", "Classes that the model knows.", registry=registry)
        for verdict in ("known", "unknown"):
            self._images.labels(verdict)

    def watch(self, waiting: Callable[[], float], classes: Callable[[], float]) -> None:
        """Call these for their values whenever the metrics are read."""
        self._waiting.set_function(waiting)
        self._classes.set_function(classes)

    def count_request(self, endpoint: str, status: int, seconds: float) -> None:
        self._requests.labels(endpoint, str(status)).inc()
        self._seconds.labels(endpoint).observe(seconds)

    def observe_batch(self, images: int) -> None:
        self._batch.observe(images)

    def count_images(self, known: int, unknown: int) -> None:
        self._images.labels("known").inc(known)
        self._images.labels("unknown").inc(unknown)

    def text(self) -> bytes:
        """Return the metrics in the text format of Prometheus."""
        return generate_latest(self._registry)
