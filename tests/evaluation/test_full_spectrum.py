"""Known images under the corruptions count as known: the right ones, in order, a part at a time."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from gradmix.data.corruptions import CORRUPTIONS, corrupt
from gradmix.errors import UserError
from gradmix.evaluation import auroc, evaluate_open_set, full_spectrum
from gradmix.evaluation.full_spectrum import add_corrupted, join_outputs
from gradmix.recognition import Recognizer, fit
from tests.training.tiny import tiny_images, tiny_recipe

pytestmark = pytest.mark.filterwarnings("ignore:no frost pictures")


@pytest.fixture(scope="module")
def recognizer() -> Recognizer:
    return fit(tiny_images(), tiny_recipe(method="ce"))


def test_each_corruption_of_each_image_in_order(
    recognizer: Recognizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = tiny_images(each=2, seed=1)
    monkeypatch.setattr(full_spectrum, "_IMAGES_AT_ONCE", 4)  # two parts: 4 and 2 images
    found = add_corrupted(recognizer, images, recognizer.outputs(images), severity=2)
    assert len(found.features) == 16 * len(images)
    assert found.labels.tolist() == images.labels.tolist() * 16
    for i, name in enumerate(CORRUPTIONS, start=1):
        whole = replace(images, images=corrupt(images.images[:], name, 2))
        expected, rows = recognizer.outputs(whole), slice(i * len(images), (i + 1) * len(images))
        torch.testing.assert_close(found.features[rows], expected.features, rtol=1e-4, atol=1e-5)
        assert found.logits is not None
        assert expected.logits is not None
        torch.testing.assert_close(found.logits[rows], expected.logits, rtol=1e-4, atol=1e-5)


def test_metrics_are_of_clean_and_corrupted_together(recognizer: Recognizer) -> None:
    known = tiny_images(each=2, seed=1)
    unknown = tiny_images(classes=("cross",), seed=2).only([0], as_unknown=True)
    clean = evaluate_open_set(recognizer, known, unknown)
    all_of_them = evaluate_open_set(recognizer, known, unknown, severity=5, detectors=["msp"])
    assert len(all_of_them.known.score) == 16 * len(clean.known.score)
    torch.testing.assert_close(all_of_them.known.score[: len(known)], clean.known.score)
    assert all_of_them.main["auroc"] == auroc(all_of_them.known.score, all_of_them.unknown.score)
    assert set(all_of_them.metrics) == {"mls", "msp"}


def test_a_severity_that_is_none_is_refused(recognizer: Recognizer) -> None:
    known = tiny_images(each=1)
    with pytest.raises(UserError, match="severity must be one of 1 to 5, not 6"):
        add_corrupted(recognizer, known, recognizer.outputs(known), 6)


def test_joining_keeps_what_there_is(recognizer: Recognizer) -> None:
    outputs = recognizer.outputs(tiny_images(each=1))
    assert join_outputs([replace(outputs, logits=None)] * 2).logits is None
    more = replace(outputs, extra={"a": torch.arange(len(outputs.labels))})
    assert join_outputs([more, more]).extra["a"].tolist() == [0, 1, 2, 0, 1, 2]
