"""Images and a recipe in, a recognizer out: hold images out, train, index, set the threshold."""

from __future__ import annotations

import warnings
from contextlib import ExitStack
from dataclasses import replace

import torch

from ..data import ImageSet
from ..detection import AUTO, KNN, Decision, Detector, Ensemble, Outputs, Threshold, make_detector_with
from ..distributed import SINGLE_PROCESS, ProcessGroup
from ..errors import UserError
from ..machine import reuse_freed_memory
from ..methods import METHODS
from ..methods.frozen import NAME as FROZEN
from ..methods.frozen import Frozen
from ..models import Body, HubTower, Network, NetworkSpec
from ..models.backbone import BACKBONE
from ..models.tower_files import is_tower
from ..recipe import Recipe
from ..training import RunFolder, Trained, train
from ..training.fit_normalizer import fit_normalizer
from ..training.hardware import pick_device
from ..training.seeds import generator_for
from ..training.session import build_method, describe_network
from .calibration import set_decision, split_held_out
from .features import apply_projection, cached_extract
from .model_checks import check_names
from .model_file import save
from .recognizer import Gallery, Recognizer
from .trainable import check_class, plan_holdout

_WHAT = "features of the training images"


def fit(
    images: ImageSet, recipe: Recipe, run: RunFolder | None = None, held_out: ImageSet | None = None
) -> Recognizer:
    """Hold out, train, index, set the threshold; with a run folder, resumable, and saved there at the end.

    ``held_out``: images of the same classes to set the threshold with; then all of ``images`` are trained on.
    """
    recognizer = fit_distributed(images, recipe, run, SINGLE_PROCESS, held_out)
    assert recognizer is not None
    return recognizer


def fit_distributed(
    images: ImageSet,
    recipe: Recipe,
    run: RunFolder | None,
    group: ProcessGroup,
    held_out: ImageSet | None = None,
) -> Recognizer | None:
    """Do what :func:`fit` does with the processes of ``group``: all train, and rank 0 does the rest.

    The others return None, and need no run folder. Nobody else trains in it until the model is saved.
    """
    run = run if group.rank == 0 else None
    recipe = recipe if held_out is None else without_holdout(recipe)
    with ExitStack() as stack:
        with group.raise_together():
            if run:
                stack.enter_context(run.exclusive())
            size, channels = recipe.views.image_size, recipe.views.channels
            to_train, drawn = hold_out(images.convert(size, channels), recipe)
            if held_out is not None:
                drawn = _check_held_out(images, held_out).convert(size, channels)
        if is_frozen(recipe):
            group.leave()
            if group.rank:
                return None
            with reuse_freed_memory():
                trained, recognizer = fit_frozen(to_train, drawn, recipe)
        else:
            trained = train(to_train, recipe, run, group)
            group.leave()
            if group.rank:
                return None
            recognizer = build_recognizer(trained, to_train, drawn, recipe)
        if run:
            save(recognizer, run.model_file)
            run.add_facts(steps=trained.steps, minutes=round(trained.minutes, 2))
        return recognizer


def without_holdout(recipe: Recipe) -> Recipe:
    """Return the recipe for where the threshold has images of its own."""
    return replace(recipe, detection=replace(recipe.detection, holdout=0.0))


def _check_held_out(images: ImageSet, held_out: ImageSet) -> ImageSet:
    if held_out.class_names != images.class_names or bool((held_out.labels < 0).any()):
        raise UserError("the images that set the threshold must be of the classes that are trained")
    return held_out


def hold_out(images: ImageSet, recipe: Recipe) -> tuple[ImageSet, ImageSet | None]:
    """Return (to train on, to set the threshold with): the recipe's share of every class, drawn by its seed.

    Also applies ``limit_per_class``, and refuses a class that has fewer than k images left, or an odd name.
    Where the network is frozen and these images would be too few for a threshold, none are held out.
    """
    s = recipe.training
    check_names(images.class_names)
    generator = generator_for(s.seed, "holdout")
    held = plan_holdout(images.class_counts(), recipe)
    to_train, kept_back = [], []
    for label, name in enumerate(images.class_names):
        of_class = (images.labels == label).nonzero()[:, 0]
        check_class(name, len(of_class), held[name], recipe)
        of_class = of_class[torch.randperm(len(of_class), generator=generator)][: s.limit_per_class]
        kept_back.append(of_class[: held[name]])
        to_train.append(of_class[held[name] :])
    rows, back_rows = torch.cat(to_train).sort().values, torch.cat(kept_back).sort().values
    return images.select(rows), images.select(back_rows) if len(back_rows) else None


def build_recognizer(
    trained: Trained, train_images: ImageSet, held_out: ImageSet | None, recipe: Recipe
) -> Recognizer:
    """Index ``train_images``, fit the detector that decides, and set its threshold from ``held_out``.

    Without held-out images the threshold comes from the training images; see :mod:`.calibration`.
    """
    outputs = cached_extract(trained.network, trained.normalizer, train_images, what=_WHAT)
    calibration = None
    if held_out is not None:
        calibration = cached_extract(trained.network, trained.normalizer, held_out)
    return assemble(trained, train_images, outputs, calibration, recipe)


def assemble(
    trained: Trained, train_images: ImageSet, outputs: Outputs, calibration: Outputs | None, recipe: Recipe
) -> Recognizer:
    """Do what :func:`build_recognizer` does, given what the network says about the two sets of images."""
    classes, d = len(train_images.class_names), recipe.detection
    index = KNN(**d.knn_settings()).fit(outputs, classes)
    detector: Detector = make_own_detector(recipe)
    if isinstance(detector, KNN):
        detector = index.with_settings(**detector.settings())
    else:
        detector.require(outputs)
        if isinstance(detector, Ensemble):
            detector.share_index(index)
        detector.fit(outputs, classes, held_out=split_held_out(detector, calibration)[0])
    decision = set_decision(detector, classes, outputs, calibration, d.false_reject)
    if detector.name == METHODS[recipe.method].detector:
        decision = _apply_own_rule(decision, recipe, outputs)
    spec = describe_trained(trained, recipe, classes)
    return Recognizer(
        trained.network,
        spec,
        trained.normalizer,
        index,
        decision,
        train_images.class_names,
        tuple(getattr(recipe.objective, "layers", ())),
        recipe.flat() | ({"encoder": spec.encoder} if is_tower(spec.encoder) else {}),
        calibration,
        Gallery.of(train_images),
    )


def _apply_own_rule(decision: Decision, recipe: Recipe, train: Outputs) -> Decision:
    """Return the decision with the threshold of the method's own rule, if it has one: nothing is promised."""
    value = METHODS[recipe.method].find_threshold(recipe.objective, train)
    if value is None:
        return decision
    rule = Threshold(value, recipe.detection.false_reject, len(train.labels), guaranteed=True, held_out=False)
    return replace(decision, threshold=replace(rule, spread=decision.threshold.spread))


def describe_trained(trained: Trained, recipe: Recipe, num_classes: int) -> NetworkSpec:
    """Return the network as plain values, with what only became known when it was built."""
    spec, encoder = describe_network(recipe, num_classes), trained.network.encoder
    body = encoder.resolve(spec.body) if isinstance(encoder, Body) and spec.body is not None else spec.body
    # A tower's name without the folder where it was on this machine.
    name = encoder.source if isinstance(encoder, HubTower) else spec.encoder
    return replace(spec, encoder=name, stem=str(encoder.stem), body=body)


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


def fit_frozen(images: ImageSet, held_out: ImageSet | None, recipe: Recipe) -> tuple[Trained, Recognizer]:
    """Return what :func:`train` would return, had it been asked for no step, and the recognizer made of it.

    The encoder sees every image once, whatever linear maps are then fitted to its features. They are not
    whitened if no images are held out: images that the whitening was fitted to lie too near to each other,
    and a threshold from them would reject far too many new ones.
    """
    given = recipe.model.init or recipe.model.encoder == BACKBONE or is_tower(recipe.model.encoder)
    if recipe.method == FROZEN and not given:
        warnings.warn(
            "recipe frozen without trained weights: the features of an untrained encoder tell little; "
            "give init, or a backbone",
            stacklevel=2,
        )
    normalizer = fit_normalizer(images, recipe)
    method = build_method(recipe, images.class_names, normalizer, pick_device(recipe.training.device))
    method.check_images(images)
    network = method.network.eval()
    trained = Trained(network, normalizer, steps=0, minutes=0.0)
    if not (isinstance(method, Frozen) and method.fits_features):
        return trained, build_recognizer(trained, images, held_out, recipe)
    encoder = Network(network.encoder, int(network.encoder.dim), 0, "none").eval()  # type: ignore[arg-type]
    known = cached_extract(encoder, normalizer, images, what=_WHAT)
    method.fit_features(known.features, known.labels, whiten=held_out is not None)
    outputs = apply_projection(network, known)
    calibration = None
    if held_out is not None:
        calibration = apply_projection(network, cached_extract(encoder, normalizer, held_out))
    return trained, assemble(trained, images, outputs, calibration, recipe)
