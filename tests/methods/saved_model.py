"""Train, save and load: what the file answers is what the trained model answered."""

from __future__ import annotations

from pathlib import Path

import torch

from gradmix.data import ImageSet
from gradmix.recognition import Recognizer, fit, load, save
from gradmix.training import Recipe


def save_and_load(images: ImageSet, recipe: Recipe, folder: Path) -> Recognizer:
    """Return the loaded model, of which all answers were compared with those before it was saved."""
    recognizer = fit(images, recipe)
    save(recognizer, folder / "model.safetensors")
    loaded = load(folder / "model.safetensors")
    ours, theirs = recognizer.outputs(images), loaded.outputs(images)
    assert torch.equal(ours.features, theirs.features)
    assert ours.extra.keys() == theirs.extra.keys()
    for name, value in ours.extra.items():
        assert torch.equal(value, theirs.extra[name]), name
    one, other = recognizer.predict(images), loaded.predict(images)
    assert torch.equal(one.score, other.score)
    assert one.names() == other.names()
    return loaded
