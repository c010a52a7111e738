"""Images and a recipe in, a saved recognizer out."""

from __future__ import annotations

from ..data import ImageSet
from ..training import Recipe, RunFolder, train
from .build import build_recognizer, hold_out
from .model_file import save
from .recognizer import Recognizer


def fit(images: ImageSet, recipe: Recipe, run: RunFolder | None = None) -> Recognizer:
    """Hold out, train, index, set the threshold; with a run folder, resumable, and saved there at the end."""
    ready = images.converted(recipe.views.image_size, recipe.views.channels)
    to_train, held_out = hold_out(ready, recipe)
    trained = train(to_train, recipe, run)
    recognizer = build_recognizer(trained, to_train, held_out, recipe)
    if run:
        save(recognizer, run.model_file)
        run.add_facts(steps=trained.steps, minutes=round(trained.minutes, 2))
    return recognizer
