from __future__ import annotations

import pytest
import torch

from gradmix.data import ImageSet
from gradmix.detection import Threshold
from gradmix.errors import UserError
from gradmix.recognition import Recognizer, fit
from tests.training.tiny import CLASSES, tiny_images, tiny_recipe


@pytest.fixture(scope="module")
def strict() -> Recognizer:
    """Rejects everything."""
    recognizer = fit(tiny_images(20), tiny_recipe(epochs=15))
    return recognizer.with_threshold(Threshold(1e9, 0.1, 60, guaranteed=True))


def test_shapes_fall_into_groups(strict: Recognizer) -> None:
    images = tiny_images(12, CLASSES, seed=4)
    found = strict.discover(images)
    assert not found.accepted
    members = [i for group in found.groups for i in group.members]
    assert sorted([*members, *found.left_over]) == list(range(len(images)))
    sizes = [len(group.members) for group in found.groups]
    assert sizes == sorted(sizes, reverse=True)
    labels = images.labels
    pure = sum(int(labels[list(g.members)].bincount().max()) for g in found.groups)
    assert pure >= 0.8 * max(1, len(members))
    for group in found.groups:
        assert -1 <= group.cohesion <= 1
        assert group.nearest in CLASSES


def test_the_same_images_give_the_same_groups(strict: Recognizer) -> None:
    images = tiny_images(10, seed=6)
    assert strict.discover(images) == strict.discover(images)


def test_only_rejected_images_are_grouped(strict: Recognizer) -> None:
    images = tiny_images(10, seed=6)
    lenient = strict.with_threshold(Threshold(-1e9, 0.1, 60, guaranteed=True))
    found = lenient.discover(images)
    assert found.groups == ()
    assert found.left_over == ()
    assert found.accepted == tuple(range(30))


def test_one_new_class_alone_is_one_group(strict: Recognizer) -> None:
    image = tiny_images(1, ("cross",), seed=1).images[:]
    alike = ImageSet(image.repeat(8, 1, 1, 1), torch.full((8,), -1), ())
    (group,) = strict.discover(alike).groups
    assert len(group.members) == 8
    assert group.cohesion == pytest.approx(1.0, abs=1e-4)


def test_too_few_for_a_group_are_left_over(strict: Recognizer) -> None:
    found = strict.discover(tiny_images(1, seed=6))
    assert found.groups == ()
    assert found.left_over == (0, 1, 2)
    nothing = strict.discover(tiny_images(1).select([]))
    assert nothing.groups == nothing.left_over == nothing.accepted == ()
    with pytest.raises(UserError, match="at least 2 images"):
        strict.discover(tiny_images(1), min_size=1)
