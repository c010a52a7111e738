"""A network that is used as it comes: encoder, and no projection, for an untrained one would only blur it."""

from __future__ import annotations

import warnings

from torch import nn

from ..data import ImageSet
from ..methods.frozen import NAME
from ..models import Network
from ..training import Recipe, Trained
from ..training.hardware import pick_device
from ..training.session import build_network
from ..views import Normalizer
from .backbone import BACKBONE


def is_frozen(recipe: Recipe) -> bool:
    """Whether there is nothing to train."""
    return recipe.method == NAME


def frozen(images: ImageSet, recipe: Recipe) -> Trained:
    """What :func:`train` would return, had it been asked for no step."""
    if not recipe.model.init and recipe.model.encoder != BACKBONE:
        warnings.warn(
            "recipe frozen without trained weights: the features of an untrained encoder tell little; "
            "give init, or a backbone",
            stacklevel=2,
        )
    network = network_of(recipe, len(images.class_names)).to(pick_device(recipe.training.device))
    network.eval()
    return Trained(network, Normalizer.fit(images.images, recipe.views.normalize), steps=0, minutes=0.0)


def network_of(recipe: Recipe, num_classes: int) -> Network:
    """The network of a recipe before training; of a frozen one, that of use."""
    network = build_network(recipe, num_classes)
    if is_frozen(recipe):
        dim = network.encoder.dim
        assert isinstance(dim, int)
        network.projection, network.feature_dim = nn.Identity(), dim
    return network
