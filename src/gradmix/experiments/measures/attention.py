"""Where the network looks: maps to show side by side, and S_M(τ), how much of the image they cover."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from ...attribution import LayerCAM, activated_area, area_thresholds
from ...data import ImageSet
from ...errors import UserError
from ...losses import nt_xent, supcon
from ...methods.gradmix import GradMixSettings
from ...training import Recipe
from ...training.seeds import generator_for
from ...views import Augment
from ..images import spread_evenly
from .measure_input import Measured, MeasureInput

_SHOWN = 8  # known and as many unknown images
_MAPPED = 512  # images of each kind that areas are measured on
_HEADLINE = 1e-4  # the threshold in the middle of the paper's range
_WIDE = torch.logspace(-6, 0, 61)


def measure_maps(inputs: MeasureInput) -> Measured:
    """Draw heat maps of eight known and eight unknown images, class by class; the same in every arm.

    A map explains the similarity to the nearest training images, and is scaled to its own largest value. How
    much of a map is above half of that is a mean over many more images than are shown.
    """
    model = inputs.recognizer
    pictures, covered = {}, []
    for kind, images, classes in (
        ("known", inputs.test, inputs.test.labels.tolist()),
        ("unknown", inputs.require_unknown(), inputs.unknown_names),
    ):
        shown = images.select(_take_in_turn(classes, _SHOWN))
        pictures[f"{kind}/image"] = model.convert(shown).images[:]
        pictures[f"{kind}/heat"] = model.heat_maps(shown).contiguous()
        measured = model.heat_maps(images.select(spread_evenly(len(images), _MAPPED)))
        covered.append((measured > 0.5).double().mean((1, 2)))
    note = f"Coverage is the mean over {len(covered[0])} known and {len(covered[1])} unknown test images"
    return Measured({"spread": float(torch.cat(covered).mean())}, pictures=pictures, notes=(note,))


def measure_area(inputs: MeasureInput) -> Measured:
    """Return S_M(τ) of the raw maps of the objective, on two views of test images as in training.

    Known images: θ·L_supcon + λ·L_simclr. Unknown images have no labels: L_simclr alone. The views, their
    batches and the layers are the same for every arm, so that the scale of the maps can be compared. That
    scale goes with the size of the batch and of the network, so τ is also taken far beyond the paper's range,
    and the area above half of each map's own peak is measured, which has no scale.
    """
    thresholds = area_thresholds()
    series, metrics = {}, {}
    for kind, images in (("known", inputs.test), ("unknown", inputs.require_unknown())):
        raw = _compute_raw_maps(inputs, images, kind == "known")
        series[kind] = (thresholds.tolist(), activated_area(raw, thresholds).tolist())
        series[f"{kind}/wide"] = (_WIDE.tolist(), activated_area(raw, _WIDE).tolist())
        metrics[kind] = float(activated_area(raw, torch.tensor([_HEADLINE]))[0])
        peak = raw.amax((1, 2), keepdim=True)
        metrics[f"{kind}/relative"] = float((raw > 0.5 * peak).double().mean())
    return Measured(metrics, series)


def check_area(recipe: Recipe) -> GradMixSettings:
    """Return the settings that S_M's maps depend on; raise for methods other than gradmix."""
    settings = recipe.objective
    if not isinstance(settings, GradMixSettings):
        raise UserError(f"S_M is compared between arms of the method gradmix, and {recipe.method} is another")
    return settings


def _compute_raw_maps(inputs: MeasureInput, images: ImageSet, labelled: bool) -> Tensor:
    recipe = inputs.recipe
    settings = check_area(recipe)
    network, normalizer = inputs.recognizer.network, inputs.recognizer.normalizer
    device = next(network.parameters()).device
    picked = images.select(spread_evenly(len(images), _MAPPED))
    # Neighbours in a set sorted by class would be of one class, and a batch of one class is no contrast.
    order = torch.randperm(len(picked), generator=generator_for(0, "area order"))
    picked = inputs.recognizer.convert(picked.select(order))
    augment = Augment(recipe.views, normalizer)
    cam = LayerCAM(network, settings.layers)
    found = []
    size = min(recipe.training.batch_size, len(picked))
    for number in range(len(picked) // size):
        part = slice(number * size, (number + 1) * size)
        generator = generator_for(0, "area views", number)
        raw = picked.images[part].to(device)
        v1, v2 = augment(raw, generator), augment(raw, generator)
        labels = picked.labels[part].to(device)
        with torch.no_grad():
            z2 = F.normalize(network(v2.contiguous(memory_format=torch.channels_last)), dim=1)

        def objective(z: Tensor, z2: Tensor = z2, labels: Tensor = labels) -> Tensor:
            z1 = F.normalize(z, dim=1)
            loss = settings.lam * nt_xent(z1, z2, settings.simclr_temperature)
            if labelled and settings.theta:
                both = torch.cat([z1, z2])
                loss = loss + settings.theta * supcon(
                    both, labels.repeat(2), settings.supcon_temperature, settings.supcon_denominator
                )
            return loss

        found.append(cam(v1.contiguous(memory_format=torch.channels_last), objective).cpu())
    return torch.cat(found)


def _take_in_turn(classes: Sequence[int | str], most: int) -> list[int]:
    """Return at most ``most`` indices, from as many classes as possible: second images come after all first.

    >>> _take_in_turn(["cat", "cat", "cat", "newt"], 3)
    [0, 1, 3]
    """
    rows: dict[int | str, list[int]] = {}
    for i, name in enumerate(classes):
        rows.setdefault(name, []).append(i)
    some = [list(rows.values())[i] for i in spread_evenly(len(rows), most).tolist()]
    taken = sorted((rank, i) for i, row in enumerate(some) for rank in range(len(row)))[:most]
    return [some[i][rank] for i, rank in sorted((i, rank) for rank, i in taken)]
