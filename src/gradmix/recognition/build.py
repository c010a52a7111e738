"""From a trained network to a recognizer: index the training images, set the threshold."""

from __future__ import annotations

import torch

from ..data import ImageSet
from ..detection import KNN, Outputs
from ..errors import UserError
from ..training import Recipe, Trained
from ..training.seeds import generator_for
from .calibration import known_threshold
from .class_names import check_name
from .feature_cache import cached_extract
from .gallery import Gallery
from .recognizer import Recognizer


def hold_out(images: ImageSet, recipe: Recipe) -> tuple[ImageSet, ImageSet | None]:
    """(to train on, to set the threshold with): the recipe's share of every class, drawn by its seed.

    Also applies ``limit_per_class``, and refuses a class that has fewer than k images left, or an odd name.
    """
    s, d = recipe.training, recipe.detection
    generator = generator_for(s.seed, "holdout")
    train, kept_back = [], []
    for label, name in enumerate(images.class_names):
        check_name(name)
        of_class = (images.labels == label).nonzero()[:, 0]
        of_class = of_class[torch.randperm(len(of_class), generator=generator)][: s.limit_per_class]
        back = round(d.holdout * len(of_class))
        if len(of_class) - back < d.k:
            held = f" after {back} were held out" if back else ""
            raise UserError(
                f"class '{name}' has {len(of_class) - back} training images{held}, fewer than k = {d.k} "
                f"neighbours; add images or lower --k"
            )
        kept_back.append(of_class[:back])
        train.append(of_class[back:])
    back_index = torch.cat(kept_back).sort().values
    return images.select(torch.cat(train).sort().values), images.select(back_index) if len(
        back_index
    ) else None


def build_recognizer(
    trained: Trained, train: ImageSet, held_out: ImageSet | None, recipe: Recipe
) -> Recognizer:
    """Index ``train``; threshold from ``held_out``, else from ``train``, each image left out in turn."""
    d = recipe.detection
    outputs = cached_extract(
        trained.network, trained.normalizer, train, what="features of the training images"
    )
    knn = KNN(k=d.k, normalize=d.score_normalize, index=d.knn_index).fit(outputs, len(train.class_names))
    calibration = None
    if held_out is not None:
        of_held_out = cached_extract(trained.network, trained.normalizer, held_out)
        calibration = Outputs(of_held_out.features, of_held_out.labels)
    threshold = known_threshold(knn, len(train.class_names), calibration, d.false_reject)
    return Recognizer(
        trained.network,
        trained.normalizer,
        knn,
        threshold,
        train.class_names,
        recipe,
        calibration,
        Gallery.of(train),
    )
