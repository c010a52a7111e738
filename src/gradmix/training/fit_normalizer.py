"""How the pixels are scaled: as the recipe says, or as the encoder's published weights want them."""

from __future__ import annotations

from ..data import ImageSet
from ..models.encoders import own_normalization
from ..recipe import Recipe
from ..views import Normalizer
from ..views.normalize import AUTO


def fit_normalizer(images: ImageSet, recipe: Recipe) -> Normalizer:
    """Return the normalizer that the recipe names; with ``normalize: auto`` that of the encoder's weights."""
    kind = recipe.views.normalize
    found = own_normalization(recipe.model) if kind == AUTO else kind
    return Normalizer.fit(images.images, found) if isinstance(found, str) else Normalizer(*found)
