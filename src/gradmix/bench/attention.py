"""The covering test: does a network still name an image when the place that a map points at is covered?

A gray square goes on the peak of each image's map, and the images that are still named right are counted,
beside those with a square at a random place. The fewer are left, the better the map finds what the network
relies on; as many as at random: it finds nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from ..attribution import Capture, aggregate, layercam_map
from ..attribution.cam import SIGNS, turn_towards
from ..data import ImageSet
from ..errors import UserError
from ..losses import nt_xent, supcon
from ..methods.gradmix import GradMixSettings
from ..methods.mixed_views import unit
from ..mixing import Boxes, boxes_at_peak, random_boxes
from ..progress import progress
from ..recipe import Recipe, make_recipe
from ..recognition import Recognizer
from ..recognition.explain import last_layer
from ..training.seeds import generator_for
from ..views import Augment

SIDE = 0.375  # of the square, of the image's side: 12 of 32 pixels
HEAT_MAP = "heat map of explain"
_BATCH = 128
Target = Callable[[Tensor], Tensor]  # from what the network gives to one value per image


@dataclass(frozen=True)
class Covered:
    """How many images are named right with the peak of these maps covered: a share of 1."""

    target: str
    sign: str
    layers: tuple[str, ...]
    left: float


@dataclass(frozen=True)
class CoveringTest:
    """Shares of ``images`` that are named right: uncovered, covered at random, and at the peak of maps."""

    images: int
    uncovered: float
    random: float
    rows: tuple[Covered, ...]

    @property
    def error(self) -> float:
        """Return the largest standard error that a share of so many images can have."""
        return math.sqrt(0.25 / self.images)


def measure_covering(recognizer: Recognizer, images: ImageSet, side: float = SIDE) -> CoveringTest:
    """Cover each image at the peaks of maps of every target, sign and set of layers; name it again.

    Images are labelled by the classes of the model. Targets: the loss and the largest logit of a network with
    a classifier, the terms of a model trained by ``gradmix``, and the heat maps of ``explain``.
    """
    if not 0 < side < 1:
        raise UserError(f"the side of the square must lie between 0 and 1 of the image's, not {side}")
    if not len(images):
        raise UserError("the covering test needs images of the known classes")
    ready = recognizer.convert(images)
    ratio = torch.full((len(ready),), side)
    size = (ready.images.shape[2], ready.images.shape[3])
    fill = _mean_color(recognizer, ready)

    def left(boxes: Boxes | None) -> float:
        pixels = ready.images[:]
        if boxes is not None:
            pixels = torch.where(boxes.mask(size)[:, None], fill, pixels)
        scores = recognizer.scores(recognizer.outputs(replace(ready, images=pixels)))
        return float((scores.label == ready.labels).double().mean())

    names = _list_layers(recognizer)
    sets = [*((name,) for name in names), *([tuple(names)] if len(names) > 1 else [])]
    kinds = _list_targets(recognizer)
    rows = []
    with progress("covering", sum(map(len, kinds.values())) * len(sets) + 3) as advance:
        uncovered = left(None)
        advance()
        at_random = left(random_boxes(len(ready), ratio, size, generator_for(0, "covering")))
        advance()
        for target, signs in kinds.items():
            maps = _make_maps(recognizer, ready, target, signs, names)
            for layers in sets:
                for sign in signs:
                    together = aggregate([maps[sign, name] for name in layers], size, "per_image")
                    rows.append(Covered(target, sign, layers, left(boxes_at_peak(together, ratio))))
                    advance()
        heat = boxes_at_peak(recognizer.heat_maps(ready), ratio)
        rows.append(
            Covered(HEAT_MAP, "evidence", recognizer.layers or last_layer(recognizer.network), left(heat))
        )
        advance()
    return CoveringTest(len(ready), uncovered, at_random, tuple(rows))


def _mean_color(recognizer: Recognizer, images: ImageSet) -> Tensor:
    """Return the gray that the network sees as zero, as a pixel (C, 1, 1)."""
    mean = torch.tensor(recognizer.normalizer.mean) * 255
    return mean.round().to(images.images[:1].dtype).view(-1, 1, 1)


def _list_layers(recognizer: Recognizer) -> list[str]:
    names = list(getattr(recognizer.network.encoder, "layer_names", {}))
    if not names:
        raise UserError("the covering test needs an encoder with named layers, and this one has none")
    return names


def _list_targets(recognizer: Recognizer) -> dict[str, tuple[str, ...]]:
    """Return the targets that this model has, each with its signs: a score's gradient is evidence already."""
    targets: dict[str, tuple[str, ...]] = {}
    if recognizer.network.classifier is not None:
        targets |= {"cross-entropy": SIGNS, "logit": ("evidence",)}
    if _read_objective(recognizer) is not None:
        targets |= {"objective": SIGNS, "ssl": SIGNS, "similarity": ("evidence",)}
    if not targets:
        raise UserError("the covering test knows models with a classifier, and those of method gradmix")
    return targets


def _read_objective(recognizer: Recognizer) -> Recipe | None:
    """Return the recipe of a model trained by ``gradmix``."""
    if recognizer.recipe.get("method") != "gradmix":
        return None
    recipe = make_recipe(recognizer.recipe)
    assert isinstance(recipe.objective, GradMixSettings)
    return recipe


def _make_maps(
    recognizer: Recognizer, images: ImageSet, target: str, signs: Sequence[str], layers: Sequence[str]
) -> dict[tuple[str, str], Tensor]:
    """Return the maps (N, h, w) of each sign and layer on the CPU, from one backward per batch."""
    network = recognizer.network.eval()
    device = next(network.parameters()).device
    found: dict[tuple[str, str], list[Tensor]] = {(sign, name): [] for sign in signs for name in layers}
    for first in range(0, len(images), _BATCH):
        part = slice(first, first + _BATCH)
        raw, labels = images.images[part].to(device), images.labels[part].to(device)
        with torch.no_grad():
            value = _make_target(recognizer, target, raw, labels, first)
            ready = recognizer.normalizer(raw).contiguous(memory_format=torch.channels_last)
        with Capture(network, layers) as capture:
            z = network(ready.requires_grad_())
            activations = capture.activations()
            gradients = torch.autograd.grad(value(z).sum(), activations)
        for name, a, g in zip(layers, activations, gradients, strict=True):
            for sign in signs:
                turned = turn_towards(g, sign) if len(signs) > 1 else g
                found[sign, name].append(layercam_map(a.detach(), turned).cpu())
    return {key: torch.cat(maps) for key, maps in found.items()}


def _make_target(recognizer: Recognizer, name: str, raw: Tensor, labels: Tensor, number: int) -> Target:
    """Return what the maps of a batch explain, as a function of its embeddings (N, d)."""
    network = recognizer.network

    def logits(z: Tensor) -> Tensor:
        found = network.logits(z)
        assert found is not None
        return found

    if name == "logit":
        return lambda z: logits(z).amax(1)
    if name == "cross-entropy":
        return lambda z: F.cross_entropy(logits(z), labels, reduction="none")
    recipe = _read_objective(recognizer)
    assert recipe is not None
    s = recipe.objective
    # The other view of each image is drawn as in training; the image itself is the first.
    augment = Augment(recipe.views, recognizer.normalizer)
    view = augment(raw, generator_for(0, "covering views", number))
    other = unit(network(view.contiguous(memory_format=torch.channels_last)))

    def objective(z: Tensor) -> Tensor:
        loss = z.new_zeros(())
        if s.lam:
            loss = loss + s.lam * nt_xent(unit(z), other, s.simclr_temperature)
        if s.theta:
            both = torch.cat([unit(z), other])
            loss = loss + s.theta * supcon(both, labels.repeat(2), s.supcon_temperature, s.supcon_denominator)
        return loss

    if name == "ssl":
        return lambda z: nt_xent(unit(z), other, s.simclr_temperature)
    return objective if name == "objective" else lambda z: (unit(z) * other).sum(1)
