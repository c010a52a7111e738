"""From a recipe and images to trained weights in a run folder."""

from ..recipe import Recipe, field_names, load_recipe, make_recipe, recipe_names, replace_fields
from .run_folder import RunFolder
from .session import Interrupted, Trained, train

__all__ = [
    "Interrupted",
    "Recipe",
    "RunFolder",
    "Trained",
    "field_names",
    "load_recipe",
    "make_recipe",
    "recipe_names",
    "replace_fields",
    "train",
]
