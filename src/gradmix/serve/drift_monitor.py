"""The running test for drift of a served model; see :mod:`gradmix.detection.drift`."""

from __future__ import annotations

import threading
from typing import Any

from ..detection import Predictions
from ..detection.drift import DriftTest
from .live_model import Served


class DriftMonitor:
    """Takes every prediction into account, from any thread; begins anew with every state of the model."""

    def __init__(self, served: Served) -> None:
        self._lock = threading.Lock()
        self._model = served.number
        self._test: DriftTest | None = None

    def observe(self, served: Served, found: Predictions) -> None:
        """Add the images of a batch that ``served`` predicted; those of a state of before are left out."""
        with self._lock:
            if served.number < self._model:
                return
            if self._test is None or served.number > self._model:
                self._model, self._test = served.number, DriftTest(served.recognizer.decision)
            self._test.observe(found.score.tolist(), found.nearest.tolist())

    def state(self, served: Served) -> dict[str, Any]:
        """Return what the test says about the images that ``served`` has predicted, as JSON can hold it."""
        with self._lock:
            current = self._test if self._model == served.number else None
            test = DriftTest(served.recognizer.decision) if current is None else current
            return {
                "model": served.number,
                "images": test.images,
                "log10_odds": round(test.log10, 4),
                "highest_log10_odds": round(test.highest_log10, 4),
                "alarm": test.alarm,
                "text": test.describe(),
            }
