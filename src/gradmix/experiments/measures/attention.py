"""Where the network looks: maps to show side by side, and S_M(τ), how much of the image they cover."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from ...attribution import LayerCAM, activated_area, area_thresholds
from ...data import ImageSet
from ...errors import UserError
from ...losses import nt_xent, supcon
from ...methods.gradmix import GradMixSettings
from ...training.seeds import generator_for
from ...views import Augment
from .subject import Measured, Subject

_SHOWN = 8  # known and as many unknown images
_MAPPED = 512  # images of each kind that S_M is measured on
_HEADLINE = 1e-4  # the threshold in the middle of the paper's range
_WIDE = torch.logspace(-6, 0, 61)


def maps(subject: Subject) -> Measured:
    """Heat maps of the first image of each class, known and unknown; the same images in every arm.

    A map explains the similarity to the nearest training images, and is scaled to its own largest value.
    """
    known = _spread(subject.test)
    unknown = _spread_by_name(subject.needs_unknown(), subject.unknown_names)
    heat = {"known": subject.recognizer.heat_maps(known), "unknown": subject.recognizer.heat_maps(unknown)}
    above_half = torch.cat(list(heat.values())) > 0.5
    ready = {"known": subject.recognizer.fitted(known), "unknown": subject.recognizer.fitted(unknown)}
    pictures = {f"{kind}/image": images.images[:] for kind, images in ready.items()}
    pictures |= {f"{kind}/heat": one.contiguous() for kind, one in heat.items()}
    return Measured({"spread": float(above_half.double().mean())}, pictures=pictures)


def area(subject: Subject) -> Measured:
    """S_M(τ) of the raw maps of the objective, on two views of test images as in training.

    Known images: θ·L_supcon + λ·L_simclr. Unknown images have no labels: L_simclr alone. The views, their
    batches and the layers are the same for every arm, so that the scale of the maps can be compared. That
    scale goes with the size of the batch and of the network, so τ is also taken far beyond the paper's range,
    and the area above half of each map's own peak is measured, which has no scale.
    """
    thresholds = area_thresholds()
    series, metrics = {}, {}
    for kind, images in (("known", subject.test), ("unknown", subject.needs_unknown())):
        raw = _raw_maps(subject, images, kind == "known")
        series[kind] = (thresholds.tolist(), activated_area(raw, thresholds).tolist())
        series[f"{kind}/wide"] = (_WIDE.tolist(), activated_area(raw, _WIDE).tolist())
        metrics[kind] = float(activated_area(raw, torch.tensor([_HEADLINE]))[0])
        peak = raw.amax((1, 2), keepdim=True)
        metrics[f"{kind}/relative"] = float((raw > 0.5 * peak).double().mean())
    return Measured(metrics, series)


def _raw_maps(subject: Subject, images: ImageSet, labelled: bool) -> Tensor:
    recipe = subject.recognizer.recipe
    settings = recipe.objective
    if not isinstance(settings, GradMixSettings):
        raise UserError(f"S_M is compared between arms of the method gradmix, and {recipe.method} is another")
    network, normalizer = subject.recognizer.network, subject.recognizer.normalizer
    device = next(network.parameters()).device
    picked = images.select(torch.linspace(0, len(images) - 1, min(len(images), _MAPPED)).round().long())
    # Neighbours in a set sorted by class would be of one class, and a batch of one class is no contrast.
    order = torch.randperm(len(picked), generator=generator_for(0, "area order"))
    picked = subject.recognizer.fitted(picked.select(order))
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


def _spread(images: ImageSet) -> ImageSet:
    """The first image of each class, at most eight."""
    first = [int((images.labels == c).nonzero()[0, 0]) for c in range(min(len(images.class_names), _SHOWN))]
    return images.select(first)


def _spread_by_name(images: ImageSet, names: tuple[str, ...]) -> ImageSet:
    first: dict[str, int] = {}
    for i, name in enumerate(names):
        first.setdefault(name, i)
    chosen = list(first.values())
    step = max(1, len(chosen) // _SHOWN)
    some = chosen[::step][:_SHOWN]
    if len(some) < _SHOWN:  # fewer classes than places: a second image of each
        second = [i + 1 for i in some if i + 1 < len(names) and names[i + 1] == names[i]]
        some = sorted([*some, *second])[:_SHOWN]
    return images.select(some)
