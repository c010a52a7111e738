"""What can be asked of a served model: the API and the page both come here, so both meet the same limits.

Every question returns a future: decoding has a few threads, the network its workers, explanations and
changes a lane each. Refusals are raised at once, or are the future's.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from ..cores import cores
from ..data import ImageSet
from ..recognition import Discovery, Explanation, Recognizer
from ..recognition.calibration import rejects_nothing
from .auth import Guard
from .batcher import Batcher
from .form import Upload, shown_name
from .lane import Lane
from .limits import Limits
from .live_model import LiveModel
from .metrics import Metrics
from .refusal import Refusal
from .uploads import Pictures, read_pictures
from .verdicts import Verdicts, judge

MOST_EXPLAINED = 16  # images of one request: each needs a gradient
_LONGEST_NAME = 100


@dataclass(frozen=True)
class Changed:
    """What became of a class: ``images`` are all that the index now has of it; ``note``: if it needs care."""

    name: str
    images: int
    classes: tuple[str, ...]
    note: str = ""

    def plain(self) -> dict[str, Any]:
        """As JSON can hold it; a note only if there is one."""
        return {key: value for key, value in vars(self).items() if key != "note" or value}


class Desk:
    """The live model, its batcher, its lanes and its limits."""

    def __init__(
        self,
        model: str | Path,
        limits: Limits | None = None,
        token: str | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self.guard = Guard(token)
        self.metrics = Metrics()
        self.live = LiveModel(model)
        self._batcher = Batcher(
            self._judge,
            default_workers(),
            self.limits.waiting_images,
            seen=self.metrics.batch,
        )
        self._decoders = ThreadPoolExecutor(cores(), thread_name_prefix="decode")
        self._explaining = Lane("explain")
        self._changing = Lane("change")
        self.metrics.watch(
            lambda: self._batcher.waiting, lambda: len(self.live.current.recognizer.class_names)
        )

    def read(self, uploads: Sequence[Upload]) -> Pictures:
        """Decode, in the caller's thread, to what the model in use takes."""
        return read_pictures(uploads, self.live.current.wanted, self.limits)

    @property
    def decoders(self) -> ThreadPoolExecutor:
        """Threads for :meth:`read`: Pillow decodes without holding Python's lock."""
        return self._decoders

    def predict(self, images: Tensor) -> Future[Verdicts]:
        """Verdicts on images (n, C, S, S) uint8."""
        return self._batcher.submit(images)

    def explain(self, images: ImageSet, classes: int = 3, neighbours: int = 5) -> Future[list[Explanation]]:
        """Why; at most :data:`MOST_EXPLAINED` images at once."""
        if len(images) > MOST_EXPLAINED:
            raise Refusal(413, f"{len(images)} images to explain at once; the limit is {MOST_EXPLAINED}")

        def work() -> list[Explanation]:
            found = self.live.current.explainer.explain(images, classes, neighbours)
            return [_without_folders(explanation) for explanation in found]

        return self._explaining.submit(work)

    def discover(self, images: ImageSet, min_size: int = 5) -> Future[Discovery]:
        """What of the images is unknown, in groups."""
        return self._explaining.submit(lambda: self.live.current.explainer.discover(images, min_size))

    def enroll(self, name: str, images: ImageSet, add: bool = False) -> Future[Changed]:
        """Teach the model a class, on disk and in use. The caller has checked the token."""
        if len(name) > _LONGEST_NAME:
            raise Refusal(422, f"a class's name may have {_LONGEST_NAME} characters, not {len(name)}")

        def change() -> Changed:
            return _about(name, self.live.change(lambda known: known.enrolled(name, images, add)))

        return self._changing.submit(change)

    def forget(self, name: str) -> Future[Changed]:
        """Make the model forget a class. The caller has checked the token."""
        return self._changing.submit(
            lambda: _about(name, self.live.change(lambda known: known.forgotten(name)))
        )

    def close(self) -> None:
        """Finish what was taken on."""
        self.live.close()
        self._decoders.shutdown(wait=True)
        self._batcher.close()
        self._explaining.close()
        self._changing.close()

    def _judge(self, images: Tensor) -> Verdicts:
        served = self.live.current
        verdicts = judge(served.recognizer, images, served.number)
        known = verdicts.known()
        self.metrics.judged(known, len(images) - known)
        return verdicts


def default_workers() -> int:
    """Two batches at a time where there are two cores: one core need not wait for the other."""
    return min(2, cores())


def _without_folders(explanation: Explanation) -> Explanation:
    """Where the training images lie on this machine is nobody's business elsewhere: their names alone."""
    classes = tuple(
        replace(
            evidence,
            neighbours=tuple(
                replace(near, source=shown_name(near.source, f"image {near.index}"))
                for near in evidence.neighbours
            ),
        )
        for evidence in explanation.classes
    )
    return replace(explanation, classes=classes)


def _about(name: str, recognizer: Recognizer) -> Changed:
    names, note = recognizer.class_names, rejects_nothing(recognizer.threshold)
    if name not in names:
        return Changed(name, 0, names, note)
    return Changed(name, int((recognizer.knn.state()["labels"] == names.index(name)).sum()), names, note)
