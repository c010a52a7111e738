"""Images and a recipe in, a saved recognizer out."""

from __future__ import annotations

from ..data import ImageSet
from ..training import Recipe, RunFolder, train
from ..world import ALONE, World
from .build import build_recognizer, hold_out
from .frozen import frozen, is_frozen
from .model_file import save
from .recognizer import Recognizer


def fit(images: ImageSet, recipe: Recipe, run: RunFolder | None = None) -> Recognizer:
    """Hold out, train, index, set the threshold; with a run folder, resumable, and saved there at the end."""
    recognizer = fit_together(images, recipe, run, ALONE)
    assert recognizer is not None
    return recognizer


def fit_together(images: ImageSet, recipe: Recipe, run: RunFolder | None, world: World) -> Recognizer | None:
    """:func:`fit` with the processes of ``world``: they train together and part; rank 0 does the rest.

    The others return None, and need no run folder.
    """
    with world.together():
        ready = images.converted(recipe.views.image_size, recipe.views.channels)
        to_train, held_out = hold_out(ready, recipe)
    trained = frozen(to_train, recipe) if is_frozen(recipe) else train(to_train, recipe, run, world)
    world.leave()
    if world.rank:
        return None
    recognizer = build_recognizer(trained, to_train, held_out, recipe)
    if run:
        save(recognizer, run.model_file)
        run.add_facts(steps=trained.steps, minutes=round(trained.minutes, 2))
    return recognizer
