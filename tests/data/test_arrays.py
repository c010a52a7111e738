from __future__ import annotations

import numpy as np
import pytest
import torch

from gradmix.data import ImageSet
from gradmix.errors import UserError

PIXELS = np.random.default_rng(0).integers(0, 256, (4, 3, 6, 5), np.uint8)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (PIXELS, PIXELS),
        (PIXELS.transpose(0, 2, 3, 1), PIXELS),
        (torch.from_numpy(PIXELS), PIXELS),
        (PIXELS[:, 0], PIXELS[:, :1]),
        (PIXELS[:, 0, ..., None], PIXELS[:, :1]),
        (list(PIXELS), PIXELS),
    ],
)
def test_every_usual_layout_gives_the_same_images(given: object, expected: np.ndarray) -> None:
    made = ImageSet.from_arrays(given, [0, 1, 1, -1])
    assert np.array_equal(made.images.numpy(), expected)
    assert made.images.is_contiguous()
    assert made.class_names == ("0", "1")


def test_labels_as_text_columns_or_nothing() -> None:
    assert ImageSet.from_arrays(PIXELS, ["b", "a", "b", "c"]).labels.tolist() == [1, 0, 1, 2]
    named = ImageSet.from_arrays(PIXELS, np.array(["b", "a", "b", "b"]), class_names=["b", "a", "z"])
    assert named.counts() == {"b": 3, "a": 1, "z": 0}
    assert ImageSet.from_arrays(PIXELS, np.array([[0], [1], [0], [1]], np.uint8)).labels.tolist() == [
        0,
        1,
        0,
        1,
    ]
    assert ImageSet.from_arrays(PIXELS).labels.tolist() == [-1] * 4


@pytest.mark.parametrize(
    ("images", "labels", "names", "complaint"),
    [
        (PIXELS / 255, [0] * 4, None, "float64.*255"),
        (torch.zeros(4, 3, 6, 5), [0] * 4, None, "images are float32"),
        (PIXELS[0, 0], [0], None, r"\(6, 5\)"),
        (np.zeros((4, 5, 6, 7), np.uint8), [0] * 4, None, "accepted are"),
        (PIXELS, [0.5, 1, 2, 3], None, "float64"),
        (PIXELS, [0, 1, 2], None, "4 images"),
        (PIXELS, [0, 1, 2, 10**9], None, "1000000000"),
        (PIXELS, ["a", "b", "a", "q"], ["a", "b"], "'q'"),
        (PIXELS, [0, 1, 2, 3], ["a", "b"], "label 3"),
    ],
)
def test_what_is_not_accepted_is_said(images: object, labels: object, names: object, complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        ImageSet.from_arrays(images, labels, names)  # type: ignore[arg-type]
