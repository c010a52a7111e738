from __future__ import annotations

import pytest
import torch

from gradmix.data import ImageSet
from gradmix.errors import UserError
from gradmix.recognition import find_obstacles, fit, hold_out, refuse_untrainable
from tests.training.tiny import tiny_images, tiny_recipe


def test_hold_out_refuses_exactly_the_classes_with_an_obstacle() -> None:
    for count in range(1, 12):
        for holdout in (0.0, 0.3, 0.5):
            for limit in (None, 4):
                recipe = tiny_recipe(holdout=holdout, limit_per_class=limit)
                images = tiny_images(count)
                found = find_obstacles(images.class_counts(), recipe)
                assert len(found) in (0, 3)
                if found:
                    with pytest.raises(UserError) as error:
                        hold_out(images, recipe)
                    assert str(error.value) == found[0].reason
                else:
                    hold_out(images, recipe)


def test_all_obstacles_are_found_and_the_first_is_raised() -> None:
    counts = {"a": 9, "unknown": 9, "b\n": 9, "c": 1}
    found = find_obstacles(counts, tiny_recipe())
    assert [name for name, _ in found] == ["unknown", "b\n", "c"]
    with pytest.raises(
        UserError, match=r"^photos: no class can be called .*\(and 2 more: gradmix data check photos\)"
    ):
        refuse_untrainable(counts, tiny_recipe(), "photos")
    assert find_obstacles({}, tiny_recipe()) == [("", "there is no class to train on")]
    refuse_untrainable({"a": 9, "b": 9}, tiny_recipe(), "photos")


def test_images_of_no_class_are_not_a_class() -> None:
    images = ImageSet(torch.zeros(3, 1, 8, 8, dtype=torch.uint8), torch.tensor([-1, 0, 0]), ("unknown", "b"))
    assert images.class_counts() == {"unknown": 2, "b": 0}


def test_images_for_the_threshold_must_be_of_the_same_classes() -> None:
    train, other = tiny_images(4), tiny_images(4).only([0, 1])
    with pytest.raises(UserError, match="must be of the classes that are trained"):
        fit(train, tiny_recipe(), held_out=other)
