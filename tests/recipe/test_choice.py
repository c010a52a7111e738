"""Which recipe a folder gets when nobody names one."""

from __future__ import annotations

import pytest

from gradmix.models import published
from gradmix.recipe.choice import choose_recipe


def test_photographs_get_a_pretrained_network() -> None:
    choice = choose_recipe({}, own_images=True)
    assert choice.recipe == "photos"
    assert not choice.warn


@pytest.mark.parametrize("field", ["false_reject", "k", "holdout", "detector", "seed", "limit_per_class"])
def test_what_says_nothing_about_training_changes_nothing(field: str) -> None:
    assert choose_recipe({field}, own_images=True).recipe == "photos"


@pytest.mark.parametrize("field", ["evidence", "whiten", "train_head"])
def test_what_only_a_frozen_network_has_leaves_it_frozen(field: str) -> None:
    assert choose_recipe({field}, own_images=True).recipe == "photos"
    assert choose_recipe({field, "epochs"}, own_images=True).recipe == "small"


@pytest.mark.parametrize("field", ["epochs", "method", "encoder", "image_size", "lr"])
def test_who_sets_a_field_of_the_training_gets_a_training(field: str) -> None:
    choice = choose_recipe({"seed", field}, own_images=True)
    assert choice.recipe == "small"
    assert field in choice.reason


def test_published_sets_are_learned_from_nothing() -> None:
    assert choose_recipe({}, own_images=False).recipe == "small"


def test_without_weights_there_is_a_warning_and_a_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published, "locate", lambda published: None)
    choice = choose_recipe({}, own_images=True)
    assert choice.recipe == "small"
    assert choice.warn
    assert "pip install" in choice.reason
