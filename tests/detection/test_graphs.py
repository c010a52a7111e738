"""What a score says as a graph is what it says otherwise, for every score that has one."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from gradmix.detection import DETECTORS, KNN, Detector, Outputs, make_detector
from gradmix.errors import UserError
from tests.detection.post_hoc_toy import CLASSES, TEST, TRAIN, toy

REFUSED = {"knn", "knn_distance", "relation"}  # they look at all training images; knn is exported as an index


def add_parts(outputs: Outputs, seed: int) -> Outputs:
    """The same with everything that some network gives."""
    n = len(outputs.features)
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> torch.Tensor:
        return torch.rand(n, *shape, generator=generator, dtype=torch.float64)

    shapes = {"dummies": (2,), "errors": (CLASSES,), "rotation": (4, 4), "cosines": (CLASSES,)}
    shapes |= {"local_mcm": (1,), "negative_cosines": (2 * CLASSES,), "no_logits": (CLASSES,)}
    return replace(outputs, extra={name: draw(*shape) for name, shape in shapes.items()})


LEARNED, SEEN, HELD_OUT = add_parts(TRAIN, 1), add_parts(TEST, 2), add_parts(toy(30, 4), 3)


@pytest.mark.parametrize("name", [*(name for name in DETECTORS if name not in REFUSED), "mls+nno"])
def test_a_graph_says_what_the_score_says(name: str) -> None:
    made = make_detector(name).fit(LEARNED, CLASSES, held_out=HELD_OUT)
    score, label = made.graph(SEEN)
    wanted = made.score(SEEN)
    torch.testing.assert_close(score, wanted.score, rtol=1e-9, atol=1e-9)
    assert torch.equal(label, wanted.label)
    assert score.dtype == torch.float64


def test_without_logits_neco_names_by_the_nearest_mean() -> None:
    made = make_detector("neco").fit(replace(LEARNED, logits=None, head=None), CLASSES)
    score, label = made.graph(replace(SEEN, logits=None, head=None))
    wanted = made.score(replace(SEEN, logits=None, head=None))
    torch.testing.assert_close(score, wanted.score, rtol=1e-9, atol=1e-9)
    assert torch.equal(label, wanted.label)


@pytest.mark.parametrize("name", [*sorted(REFUSED), "knn+mls"])
def test_those_that_need_all_training_images_are_refused(name: str) -> None:
    made = make_detector(name).fit(LEARNED, CLASSES, held_out=HELD_OUT)
    shown = made.name.replace("+", ".")
    with pytest.raises(UserError, match=f"detector '{shown}' cannot be .* knn or nno, or mls"):
        made.graph(SEEN)


def test_only_these_are_refused() -> None:
    plain = {name for name, kind in DETECTORS.items() if kind.graph is Detector.graph}
    assert plain == {KNN.name, "knn_distance"}
