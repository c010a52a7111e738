"""Save, load, predict: what the file answers is what the trained model answered, for every method that is
trained and has no test of its own for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gradmix.methods import METHODS
from tests.methods.saved_model import save_and_load
from tests.training.tiny import tiny_images, tiny_recipe

FIELDS: dict[str, dict[str, Any]] = {
    "arpl": {},
    "openauc": {},
    "conosr": {"head_share": 0.5, "contrast_dim": 8},
    "proser": {"finetune_share": 0.5},
    "logitnorm": {},
    "rotpred": {},
    "ce": {},
    "ce+ssl": {},
}


@pytest.mark.parametrize("method", FIELDS)
def test_saved_and_loaded_it_answers_the_same(method: str, tmp_path: Path) -> None:
    recipe = tiny_recipe(method=method, max_steps=4, **FIELDS[method])
    again = save_and_load(tiny_images(6), recipe, tmp_path)
    assert again.decision.detector.name == METHODS[method].detector
    parts = {name.partition(".")[0] for name in again.network.state_dict()}
    assert parts <= {"encoder", "projection", "classifier", "probe"}  # nothing that only training needs
