"""What can be requested of a served model. The API and the page both call it, so the same limits apply.

Every method returns a future: decoding has a pool of threads, the network its workers, explanations and
changes one thread each. Errors are raised at once, or are the future's. A future that is cancelled before
its work has begun costs nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from torch import Tensor

from ..data import ImageSet
from ..machine import count_cores
from ..recognition import Discovery, Explanation, Recognizer
from ..recognition.model_format import GivenModule
from .access import AccessToken
from .drift_monitor import DriftMonitor
from .http import HTTPError
from .limits import Deadline, Limits, PixelBudget, RequestContext
from .live_model import BatchPredictions, LiveModel, predict_batch
from .uploads import DecodedImages, Upload, UploadDecoder, display_name
from .workers import Batcher, DecodePool, SerialWorker

MOST_EXPLAINED = 16  # images per request: each needs a backward pass
_LONGEST_NAME = 100
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # the buckets of the metrics
_IMAGES = (1, 2, 4, 8, 16, 32, 64, 128)


@dataclass(frozen=True)
class ClassChange:
    """The state of a class after a change.

    ``images`` is the number of its images in the index; ``note`` is a warning, if there is one.
    """

    name: str
    images: int
    classes: tuple[str, ...]
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return what JSON can hold; the note only if there is one."""
        return {key: value for key, value in vars(self).items() if key != "note" or value}


class Metrics:
    """The metrics of /metrics: counts and times, with a bounded number of labels whatever clients request.

    In a separate registry, so that two servers in one process are not added up.
    """

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
        self._drift = {
            name: Gauge(f"gradmix_drift_{name}", about, registry=registry)
            for name, about in (
                ("log10_odds", "Odds that accepted images no longer look like the known ones: log10, now."),
                ("highest_log10_odds", "The highest since this state of the model began; 2 is an alarm."),
                ("images", "Accepted images that the odds are from."),
            )
        }
        for verdict in ("known", "unknown"):
            self._images.labels(verdict)
        self._find_drift: Callable[[], dict[str, Any]] = dict

    def watch(
        self,
        waiting: Callable[[], float],
        classes: Callable[[], float],
        drift: Callable[[], dict[str, Any]],
    ) -> None:
        """Call these for their values whenever the metrics are read."""
        self._waiting.set_function(waiting)
        self._classes.set_function(classes)
        self._find_drift = drift

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
        found = self._find_drift()
        for name, gauge in self._drift.items():
            gauge.set(found.get(name, 0))
        return generate_latest(self._registry)


class ModelService:
    """The live model with its workers, limits, token and metrics."""

    def __init__(
        self,
        model: str | Path,
        limits: Limits | None = None,
        token: str | None = None,
        detector: str = "",
        backbone: GivenModule | str | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self.token = AccessToken(token)
        self.metrics = Metrics()
        self.live = LiveModel(model, detector, backbone)
        self.closing = False
        self._batcher = Batcher(
            self._predict_batch,
            default_workers(),
            self.limits.waiting_images,
            on_batch=self.metrics.observe_batch,
        )
        self._decoders = DecodePool(count_cores(), PixelBudget(self.limits))
        self._helpers = ThreadPoolExecutor(count_cores(), thread_name_prefix="helper")
        self._explain_worker = SerialWorker("explain")
        self._change_worker = SerialWorker("change")
        self._drift = DriftMonitor(self.live.current)
        self.metrics.watch(
            lambda: self._batcher.waiting,
            lambda: len(self.live.current.recognizer.class_names),
            self.drift,
        )

    @property
    def broken(self) -> str:
        """Return what only a restart of the process would mend, or an empty text."""
        if not self._batcher.works or not self._decoders.works:
            return "a thread that decodes or predicts has ended"
        if self.live.lost_track:
            return "the thread that follows the model file has ended"
        return ""

    def new_context(self, client: str) -> RequestContext:
        """Return the context of a request that has arrived now."""
        return RequestContext(client, Deadline(self.limits.answer_seconds))

    def decode(
        self, uploads: Callable[[], Sequence[Upload]], context: RequestContext
    ) -> Future[DecodedImages]:
        """Decode to the format of the current model; ``uploads`` is called in the decoding thread."""
        return self._decoders.submit(
            lambda: UploadDecoder(uploads(), self.live.current.wanted, self.limits), context
        )

    @property
    def helpers(self) -> ThreadPoolExecutor:
        """Return threads for work that would block the event loop."""
        return self._helpers

    def predict(self, images: Tensor) -> Future[BatchPredictions]:
        """Predict images (n, C, S, S) uint8."""
        return self._batcher.submit(images)

    def drift(self) -> dict[str, Any]:
        """Return whether the images that were accepted still look like the known ones."""
        return self._drift.state(self.live.current)

    def explain(
        self,
        images: ImageSet,
        classes: int = 3,
        neighbours: int = 5,
        false_reject: float | None = None,
    ) -> Future[list[Explanation]]:
        """Explain at most :data:`MOST_EXPLAINED` images, at another rate than the model's if one is given."""
        if len(images) > MOST_EXPLAINED:
            raise HTTPError(413, f"{len(images)} images to explain at once; the limit is {MOST_EXPLAINED}")

        def work() -> list[Explanation]:
            explainer = self.live.current.explainer
            if false_reject is not None:
                explainer = explainer.at_rate(false_reject)
            found = explainer.explain(images, classes, neighbours)
            return [_strip_folders(explanation) for explanation in found]

        return self._explain_worker.submit(work)

    def discover(self, images: ImageSet, min_size: int = 5) -> Future[Discovery]:
        """Group the images that are unknown."""
        return self._explain_worker.submit(lambda: self.live.current.explainer.discover(images, min_size))

    def enroll(self, name: str, images: ImageSet, add: bool = False) -> Future[ClassChange]:
        """Teach the model a class, on disk and in memory. The caller has checked the token."""
        if len(name) > _LONGEST_NAME:
            raise HTTPError(422, f"a class's name may have {_LONGEST_NAME} characters, not {len(name)}")

        def change() -> ClassChange:
            return _describe_class(name, self.live.change(lambda known: known.enroll(name, images, add)))

        return self._change_worker.submit(change)

    def forget(self, name: str) -> Future[ClassChange]:
        """Make the model forget a class. The caller has checked the token."""

        def change() -> ClassChange:
            return _describe_class(name, self.live.change(lambda known: known.forget(name)))

        return self._change_worker.submit(change)

    def undo(self) -> Future[Recognizer]:
        """Bring back the model of before the last change. The caller has checked the token."""
        return self._change_worker.submit(self.live.undo)

    def close(self) -> None:
        """Finish the queued work, then end all threads."""
        self.closing = True
        self.live.close()
        self._decoders.close()
        self._helpers.shutdown(wait=True)
        self._batcher.close()
        self._explain_worker.close()
        self._change_worker.close()

    def _predict_batch(self, images: Tensor) -> BatchPredictions:
        served = self.live.current
        predictions = predict_batch(served.recognizer, images, served.number)
        known = predictions.count_known()
        self.metrics.count_images(known, len(images) - known)
        self._drift.observe(served, predictions.found)
        return predictions


def default_workers() -> int:
    """Return two where there are two cores, so that neither core waits for the other."""
    return min(2, count_cores())


def _strip_folders(explanation: Explanation) -> Explanation:
    """Strip local folders from responses: of the training images, only the names of the files remain."""
    classes = tuple(
        replace(
            evidence,
            neighbours=tuple(
                replace(near, source=display_name(near.source, f"image {near.index}"))
                for near in evidence.neighbours
            ),
        )
        for evidence in explanation.classes
    )
    return replace(explanation, classes=classes)


def _describe_class(name: str, recognizer: Recognizer) -> ClassChange:
    names, note = recognizer.class_names, recognizer.threshold.describe_limit()
    if name not in names:
        return ClassChange(name, 0, names, note)
    return ClassChange(name, recognizer.count_images(name), names, note)
