"""Why images cannot be trained on: what ``gradmix train`` refuses and ``gradmix data check`` reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ..detection import AUTO, KNN
from ..detection.threshold import needed_images
from ..errors import UserError
from ..methods import METHODS
from ..recipe import Recipe
from .model_checks import check_name, check_names


class Obstacle(NamedTuple):
    """A class that a recipe cannot train on ("" for all of them together), and why."""

    class_name: str
    reason: str


def find_obstacles(counts: Mapping[str, int], recipe: Recipe) -> list[Obstacle]:
    """Return why a recipe cannot be trained on so many images per class; an empty list if it can.

    >>> from gradmix.recipe import load_recipe
    >>> for obstacle in find_obstacles({"cat": 2, "unknown": 9}, load_recipe("small")): print(obstacle.reason)
    class 'cat' has 2 training images, fewer than k = 3 neighbours; add images or lower --k
    no class can be called 'unknown': that is the answer for all others
    """
    found = [Obstacle("", reason)] if (reason := why_too_few_classes(counts, recipe)) else []
    back = plan_holdout(counts, recipe)
    for name, count in counts.items():
        try:
            check_class(name, count, back[name], recipe)
        except UserError as error:
            found.append(Obstacle(name, str(error)))
    if not found:
        try:
            check_names(counts)
        except UserError as error:
            found.append(Obstacle("", str(error)))
    return found


def why_too_few_classes(counts: Mapping[str, int], recipe: Recipe) -> str:
    """Return why there are too few classes, or ""; one class alone is told by its neighbours."""
    if len(counts) > 1:
        return ""
    if not counts:
        return "there is no class to train on"
    if not METHODS[recipe.method].takes_one_class:
        return (
            f"there is only one class ({next(iter(counts))}), and method {recipe.method} learns from what "
            "tells classes apart; add another class, or take the recipe photos, which can do with one"
        )
    d = recipe.detection
    if d.detector.partition(":")[0] not in (AUTO, KNN.name) or d.detector == "knn:sum":
        return f"detector {d.detector} compares classes, and there is only one; leave --detector out"
    if d.score_normalize == "sum":
        return "score_normalize sum is a share among classes, and there is only one; take none or shifted"
    return ""


def refuse_untrainable(counts: Mapping[str, int], recipe: Recipe, source: str) -> None:
    """Raise for the first obstacle; ``source`` says where the images are from."""
    obstacles = find_obstacles(counts, recipe)
    if obstacles:
        more = f" (and {len(obstacles) - 1} more: gradmix data check {source})" if len(obstacles) > 1 else ""
        raise UserError(f"{source}: {obstacles[0].reason}{more}")


def plan_holdout(counts: Mapping[str, int], recipe: Recipe) -> dict[str, int]:
    """Return how many images of each class are held out, given how many there are.

    None, if nothing is trained and they would be too few for a threshold: then each image is left out of its
    own neighbours instead.
    """
    d = recipe.detection
    back = {name: round(d.holdout * _count_used(count, recipe)) for name, count in counts.items()}
    too_few = sum(back.values()) < needed_images(d.false_reject)
    return dict.fromkeys(back, 0) if too_few and not METHODS[recipe.method].needs_training else back


def check_class(name: str, count: int, back: int, recipe: Recipe) -> None:
    """Refuse an odd name, and a class of ``count`` images of which fewer than k are left without ``back``."""
    check_name(name)
    left, k = _count_used(count, recipe) - back, recipe.detection.k
    if left < k:
        held = f" after {back} were held out" if back else ""
        raise UserError(
            f"class '{name}' has {left} training images{held}, fewer than k = {k} "
            f"neighbours; add images or lower --k"
        )


def _count_used(count: int, recipe: Recipe) -> int:
    limit = recipe.training.limit_per_class
    return count if limit is None else min(count, limit)
