"""Which recipe a folder of images gets when nobody names one."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields

from ..detection.settings import DetectionSettings
from ..methods.frozen import FrozenSettings
from ..models.published import INSTALL, is_available
from .files import read_recipe_values

PRETRAINED_RECIPE, UNTRAINED_RECIPE = "photos", "small"
# Fields that say nothing about how a network is trained: they go with any recipe, or with a frozen network.
_NEUTRAL = {
    *("seed", "device", "limit_per_class"),
    *(f.name for settings in (DetectionSettings, FrozenSettings) for f in fields(settings)),
}


@dataclass(frozen=True)
class Choice:
    """The recipe's name, why it was chosen, and whether that is worth a warning."""

    recipe: str
    reason: str
    warn: bool = False


def choose_recipe(given: Collection[str], own_images: bool) -> Choice:
    """Choose for images of the user's own, or a published data set; ``given`` are the fields that were set.

    Published data sets start from nothing: a network that has seen ImageNet knows many of their "unknown"
    classes. Whoever sets a field of the training wants a training, and gets one.

    >>> choose_recipe({"epochs"}, own_images=True).recipe
    'small'
    """
    if not own_images:
        return Choice(UNTRAINED_RECIPE, "a published data set is learned from nothing")
    about_training = sorted(name for name in given if name not in _NEUTRAL)
    if about_training:
        return Choice(UNTRAINED_RECIPE, f"{about_training[0]} is given, so a network is trained from nothing")
    if is_available(str(read_recipe_values(PRETRAINED_RECIPE)["encoder"])):
        return Choice(PRETRAINED_RECIPE, "a network trained on ImageNet, frozen: best for few images")
    return Choice(
        UNTRAINED_RECIPE,
        "no pre-trained weights are installed, so a network is trained from nothing, which takes a quarter "
        f"of an hour and far more images; get them with: {INSTALL}",
        warn=True,
    )
