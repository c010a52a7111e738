"""Drift of a served model: from any thread, and anew with every state of the model."""

from __future__ import annotations

import threading
from pathlib import Path

from gradmix.detection.drift import DriftTest
from gradmix.recognition import load
from gradmix.serve.drift_monitor import DriftMonitor
from gradmix.serve.live_model import Served
from tests.training.tiny import tiny_images


def test_every_state_of_the_model_has_its_own_odds(trained_model: Path) -> None:
    recognizer = load(trained_model)
    first, second = Served(recognizer, 1), Served(recognizer, 2)
    found = recognizer.predict(tiny_images(8, seed=7))
    monitor = DriftMonitor(first)
    assert monitor.state(first)["images"] == 0
    monitor.observe(first, found)
    expected = DriftTest(recognizer.decision)
    expected.observe(found.score.tolist(), found.nearest.tolist())
    state = monitor.state(first)
    assert (state["images"], state["model"]) == (expected.images, 1)
    assert state["log10_odds"] == round(expected.log10, 4)
    assert state["images"] > 0
    assert monitor.state(second)["images"] == 0  # it has predicted nothing yet
    monitor.observe(second, found)
    monitor.observe(first, found)  # a batch that was under way when the model changed
    assert monitor.state(second) == state | {"model": 2}


def test_no_image_is_lost_between_threads(trained_model: Path) -> None:
    served = Served(load(trained_model), 1)
    found = served.recognizer.predict(tiny_images(4, seed=7))
    monitor = DriftMonitor(served)
    monitor.observe(served, found)
    each = monitor.state(served)["images"]
    threads = [threading.Thread(target=monitor.observe, args=(served, found)) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert monitor.state(served)["images"] == 17 * each > 0
