"""Recipes: typed settings, their YAML files, and the conversion between the two."""

from .files import (
    load_own_method,
    load_recipe,
    parse_values,
    read_recipe_values,
    recipe_description,
    recipe_names,
)
from .recipe import Recipe, field_names, make_recipe, replace_fields
from .training_settings import TrainingSettings

__all__ = [
    "Recipe",
    "TrainingSettings",
    "field_names",
    "load_own_method",
    "load_recipe",
    "make_recipe",
    "parse_values",
    "read_recipe_values",
    "recipe_description",
    "recipe_names",
    "replace_fields",
]
