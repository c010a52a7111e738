"""Images and a recipe in, a recognizer out: hold images out, train, index, set the threshold."""

from __future__ import annotations

import warnings
from contextlib import ExitStack
from dataclasses import replace

import torch

from ..data import ImageSet
from ..detection import AUTO, KNN, Detector, make_detector_with
from ..distributed import SINGLE_PROCESS, ProcessGroup
from ..errors import UserError
from ..methods import METHODS
from ..methods.frozen import NAME as FROZEN
from ..models import Body, NetworkSpec
from ..models.backbone import BACKBONE
from ..recipe import Recipe
from ..training import RunFolder, Trained, train
from ..training.hardware import pick_device
from ..training.seeds import generator_for
from ..training.session import build_method, describe_network
from ..views import Normalizer
from .calibration import set_decision, split_held_out
from .enroll import check_name
from .features import cached_extract
from .model_file import save
from .recognizer import Gallery, Recognizer


def fit(images: ImageSet, recipe: Recipe, run: RunFolder | None = None) -> Recognizer:
    """Hold out, train, index, set the threshold; with a run folder, resumable, and saved there at the end."""
    recognizer = fit_distributed(images, recipe, run, SINGLE_PROCESS)
    assert recognizer is not None
    return recognizer


def fit_distributed(
    images: ImageSet, recipe: Recipe, run: RunFolder | None, group: ProcessGroup
) -> Recognizer | None:
    """Do what :func:`fit` does with the processes of ``group``: all train, and rank 0 does the rest.

    The others return None, and need no run folder. Nobody else trains in it until the model is saved.
    """
    run = run if group.rank == 0 else None
    with ExitStack() as stack:
        with group.raise_together():
            if run:
                stack.enter_context(run.exclusive())
            ready = images.convert(recipe.views.image_size, recipe.views.channels)
            to_train, held_out = hold_out(ready, recipe)
        trained = (
            skip_training(to_train, recipe) if is_frozen(recipe) else train(to_train, recipe, run, group)
        )
        group.leave()
        if group.rank:
            return None
        recognizer = build_recognizer(trained, to_train, held_out, recipe)
        if run:
            save(recognizer, run.model_file)
            run.add_facts(steps=trained.steps, minutes=round(trained.minutes, 2))
        return recognizer


def hold_out(images: ImageSet, recipe: Recipe) -> tuple[ImageSet, ImageSet | None]:
    """Return (to train on, to set the threshold with): the recipe's share of every class, drawn by its seed.

    Also applies ``limit_per_class``, and refuses a class that has fewer than k images left, or an odd name.
    """
    s, d = recipe.training, recipe.detection
    generator = generator_for(s.seed, "holdout")
    to_train, kept_back = [], []
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
        to_train.append(of_class[back:])
    rows, back_rows = torch.cat(to_train).sort().values, torch.cat(kept_back).sort().values
    return images.select(rows), images.select(back_rows) if len(back_rows) else None


def build_recognizer(
    trained: Trained, train_images: ImageSet, held_out: ImageSet | None, recipe: Recipe
) -> Recognizer:
    """Index ``train_images``, fit the detector that decides, and set its threshold from ``held_out``.

    Without held-out images the threshold comes from the training images; see :mod:`.calibration`.
    """
    classes, d = len(train_images.class_names), recipe.detection
    outputs = cached_extract(
        trained.network, trained.normalizer, train_images, what="features of the training images"
    )
    index = KNN(**d.knn_settings()).fit(outputs, classes)
    detector: Detector = make_own_detector(recipe)
    calibration = None
    if held_out is not None:
        calibration = cached_extract(trained.network, trained.normalizer, held_out)
    if isinstance(detector, KNN):
        detector = index.with_settings(**detector.settings())
    else:
        detector.require(outputs)
        detector.fit(outputs, classes, held_out=split_held_out(detector, calibration)[0])
    decision = set_decision(detector, classes, outputs, calibration, d.false_reject)
    return Recognizer(
        trained.network,
        describe_trained(trained, recipe, classes),
        trained.normalizer,
        index,
        decision,
        train_images.class_names,
        tuple(getattr(recipe.objective, "layers", ())),
        recipe.flat(),
        calibration,
        Gallery.of(train_images),
    )


def describe_trained(trained: Trained, recipe: Recipe, num_classes: int) -> NetworkSpec:
    """Return the network as plain values, with what only became known when it was built."""
    spec, encoder = describe_network(recipe, num_classes), trained.network.encoder
    body = encoder.resolve(spec.body) if isinstance(encoder, Body) and spec.body is not None else spec.body
    return replace(spec, stem=str(encoder.stem), body=body)


def own_detector_name(recipe: Recipe) -> str:
    """Return the score that decides: the recipe's, or with ``detector: auto`` the method's own."""
    name = recipe.detection.detector
    return METHODS[recipe.method].detector if name == AUTO else name


def make_own_detector(recipe: Recipe) -> Detector:
    """Make the detector that decides, not fitted yet, with the recipe's settings."""
    name, d = own_detector_name(recipe), recipe.detection
    temperature = METHODS[recipe.method].score_temperature if d.detector == AUTO else None
    return make_detector_with(name, lambda part: d.settings_of(part, temperature))


def is_frozen(recipe: Recipe) -> bool:
    """Return whether there is nothing to train."""
    return not METHODS[recipe.method].needs_training


def skip_training(images: ImageSet, recipe: Recipe) -> Trained:
    """Return what :func:`train` would return, had it been asked for no step."""
    if recipe.method == FROZEN and not recipe.model.init and recipe.model.encoder != BACKBONE:
        warnings.warn(
            "recipe frozen without trained weights: the features of an untrained encoder tell little; "
            "give init, or a backbone",
            stacklevel=2,
        )
    normalizer = Normalizer.fit(images.images, recipe.views.normalize)
    method = build_method(recipe, images.class_names, normalizer, pick_device(recipe.training.device))
    method.check_images(images)
    return Trained(method.network.eval(), normalizer, steps=0, minutes=0.0)
